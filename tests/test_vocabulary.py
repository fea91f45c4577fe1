"""The words of the field: private ones, which a newcomer would have to learn, stay out.

Code, comments, docstrings, messages and docs are read line by line. The message of a failure says
what to write instead.
"""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]

# Bodies of kernels are not edited for their words: what is compiled for them depends on their text.
KERNELS = SETTINGS["ruff"]["format"]["exclude"]

# Each phrase, as a regular expression between word boundaries, and what to write instead.
PHRASES = {
    r"told[ ]apart": "distinguished; or: (no) significant difference",
    r"nobody|somebody|whoever|anybody|everybody": "users; developers; or the thing itself",
    r"so[ ]many|that[ ]many": "the number itself, or a name for it",
    r"anew": "again; or: re-sampled",
    r"what[ ]has[ ]begun": "partial solutions; prefixes",
    r"of[ ]one's[ ]own": "user data",
    r"herds?": "elite set",
    r"dearer": "costs more",
    r"rehears\w*": "warm-up run",
    r"hast(?:e|y|en)|hurr(?:y|ied)": "time-critical",
    r"carr(?:y|ies|ied)[ ]on": "continue; completed",
    r"lessons": "imitation targets",
    r"walkers?": "worker threads",
    r"company": "the other instances of the batch",
}

# The same for parts of identifiers, and for words of the package that docs may use as English.
WORDS = {
    r"herd": "elite_set",
    r"crafts?": "plan tools",
    r"arms": "start bandit",
    r"crew": "worker threads",
    r"aside": "interruptible",
    r"abreast": "at_once",
    r"apiece": "per plan",
    r"fewest": "min_",
    r"hurried": "is_time_critical",
    r"luck": "uniforms",
    r"beginnings": "prefixes",
    r"stock": "route_pool",
    r"usual": "default",
    r"walkers?": "workers",
}

# Former names of settings, which users may still give.
FORMER_SETTINGS = {
    "rhumbline/search/strategies/cmaes_refine.py": {"stock", "abreast"},
}


def is_kernel(path: Path) -> bool:
    """Return whether a module holds device code."""
    return any(fnmatch(str(path.relative_to(ROOT)), pattern) for pattern in KERNELS)


PACKAGE = [path for path in sorted((ROOT / "rhumbline").rglob("*.py")) if not is_kernel(path)]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]


def prose_words(line: str) -> list[str]:
    """Return the phrases of a line that the field does not use, each with a better one."""
    found: list[str] = []
    for phrase, better in PHRASES.items():
        match = re.search(rf"\b(?:{phrase})\b", line, re.IGNORECASE)
        if match:
            found.append(f"{match[0]} -> {better}")
    return found


def coined_words(line: str, allowed: set[str]) -> list[str]:
    """Return the coined words of a line of code, parts of identifiers too."""
    found: list[str] = []
    for word, better in WORDS.items():
        match = re.search(rf"(?<![a-z])(?:{word})(?![a-z])", line, re.IGNORECASE)
        if match and match[0] not in allowed:
            found.append(f"{match[0]} -> {better}")
    return found


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_speaks_the_words_of_the_field(path: Path) -> None:
    """Identifiers, comments, docstrings and messages have none of the private words."""
    allowed = FORMER_SETTINGS.get(str(path.relative_to(ROOT)), set())
    found: dict[int, list[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = prose_words(line) + coined_words(line, allowed)
        if words:
            found[number] = words
    assert found == {}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs_speak_the_words_of_the_field(path: Path) -> None:
    """The README and the pages of docs/ have none of the private phrases; research/ may."""
    found: dict[int, list[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = prose_words(line)
        if words:
            found[number] = words
    assert found == {}


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("a Herd of plans", 1),
        ("def usual_rate(x):", 1),
        ("unusually large stockpiles of farms", 0),
        ("fewest, hurried", 2),
        ("self.stock = 3", 0),
    ],
)
def test_coined_words_are_found_in_identifiers(line: str, count: int) -> None:
    """Parts of identifiers count; longer words that contain one, and public settings, do not."""
    assert len(coined_words(line, {"stock"})) == count


@pytest.mark.parametrize(
    ("line", "count"), [("Told apart by nobody", 2), ("anewly, nobodys", 0), ("so many", 1)]
)
def test_phrases_are_found(line: str, count: int) -> None:
    """In whatever case, and as whole words."""
    assert len(prose_words(line)) == count
