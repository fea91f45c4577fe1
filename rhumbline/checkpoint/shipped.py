"""Where checkpoints with a name lie: in this package, and in installed packages of weights.

A package adds a folder of checkpoints by an entry point in its `pyproject.toml`:

    [project.entry-points."rhumbline.weights"]
    research = "rhumbline_research_weights:FOLDER"

That one is in the repository (`packages/research-weights`), but not in the wheel of rhumbline: only
research needs its policies.
"""

from collections.abc import Iterator
from pathlib import Path

from rhumbline.errors import MissingExtra
from rhumbline.registry import Registry
from rhumbline.weights import FOLDER as SHIPPED_FOLDER

RESEARCH_WEIGHTS = (
    "cvrp100-latents",
    "cvrp100-single",
    "jssp-l2d",
    "tsp100-poppy",
    "tsp100-single",
)
# In a clone they are found without being installed.
RESEARCH_FOLDER = Path(__file__).parents[2] / "packages/research-weights/rhumbline_research_weights"

WEIGHT_FOLDERS: Registry[Path] = Registry("weights", {})


def shipped_checkpoints() -> dict[str, Path]:
    """Return all checkpoints that have a name, in the order of their names."""
    found: dict[str, Path] = {}
    for folder in weight_folders():
        for path in folder.glob("*.safetensors"):
            found.setdefault(path.stem, path)
    by_name = sorted(found.items())
    return dict(by_name)


def weight_folders() -> Iterator[Path]:
    """Yield the folders of checkpoints; of two with one name, the first counts."""
    yield SHIPPED_FOLDER
    if RESEARCH_FOLDER.is_dir():
        yield RESEARCH_FOLDER
    for _, folder in WEIGHT_FOLDERS.working():
        yield folder


def refuse_research_weights(name: str) -> None:
    """Raise with the command that installs it if a name is that of a research checkpoint."""
    if name in RESEARCH_WEIGHTS:
        what = f"'{name}' is one of the research weights"
        raise MissingExtra(f"{what}; get them with: pip install 'rhumbline[research]'")
