"""The reference of recipes: the files, and every key."""

import inspect
import tomllib
from pathlib import Path
from typing import Any

from tools.docs.fields import settings_table
from tools.docs.markdown import as_code, make_table

ROOT = Path(__file__).resolve().parents[2]


def describe_recipes() -> str:
    """Return a table of the recipes with their first comments."""
    rows: list[tuple[str, str, str]] = []
    for path in sorted((ROOT / "recipes").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        recipe = tomllib.loads(text)
        loss = recipe.get("objective", {}).get("loss", "reinforce")
        rows.append((as_code(path.name), as_code(loss), first_comment(text)))
    return make_table(("recipe", "loss", "what it trains"), rows)


def first_comment(text: str) -> str:
    """Return the comment at the beginning of a file on one line."""
    words: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        words.append(line.removeprefix("#").strip())
    return " ".join(words)


def describe_recipe_keys() -> str:
    """Return a section with the keys of each table of a recipe."""
    from rhumbline.training.config import Objective, Optimiser, TrainConfig, Validation

    tables: dict[str, type[Any]] = {
        "Top level": TrainConfig,
        "[objective]": Objective,
        "[optimiser]": Optimiser,
        "[validation]": Validation,
    }
    parts: list[str] = []
    for title, record in tables.items():
        parts.append(f"### {title}")
        parts.append(inspect.cleandoc(record.__doc__ or ""))
        parts.append(settings_table(record))
    return "\n\n".join(parts)
