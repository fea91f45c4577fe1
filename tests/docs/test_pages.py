"""The pages of the site: commands parse, options exist, Python runs, generated parts are whole."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from doc_pages import PAGES, ROOT, Block, name_of, read_blocks, rhumb_commands
from typer.main import get_command
from typer.testing import CliRunner

import rhumbline
from rhumbline.cli.app import app
from rhumbline.cli.commands.compare import make_parser
from rhumbline.cli.commands.train import train_parser
from rhumbline.search.strategies import STRATEGIES
from rhumbline.training.config import TrainConfig
from tools.docs import GENERATED, PARTS, expand
from tools.docs.commands import all_commands
from tools.docs.fields import read_settings
from tools.docs.interface import unlisted_names
from tools.docs.links import rewrite_links
from tools.docs.strategies import shared_comments

EXECUTED = "<!-- executed -->"  # such pages run while the site is built
# Pages whose Python runs in other tests, or cannot run here.
RUN_ELSEWHERE = {
    "README.md": "tests/test_readme.py",
    "docs/extend/strategy.md": "tests/test_readme.py",
    "docs/guide/solve.md": "tests/test_guide.py",
    "docs/guide/service.md": "tests/serve, with a server",
    "docs/guide/scale.md": "tests/distributed, with other processes",
}
# Options of other programs that pages name.
OTHER_PROGRAMS = {
    "--no-deps --wheel-dir",  # pip
    "--array",  # Slurm
    "--rm --gpus",  # docker
    "--nproc-per-node --nnodes --max-restarts --rdzv-id --rdzv-backend --rdzv-endpoint",  # torchrun
}


def python_pages() -> Iterator[Path]:
    """Yield the pages whose Python blocks run here."""
    for page in PAGES:
        if name_of(page) in RUN_ELSEWHERE or EXECUTED in page.read_text(encoding="utf-8"):
            continue
        if any(runs(block) for block in read_blocks(page)):
            yield page


def runs(block: Block) -> bool:
    """Return whether a block is Python that has to run."""
    return block.language == "python" and block.not_run is None


@pytest.mark.parametrize("page", list(python_pages()), ids=name_of)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The blocks of a page run in their order, in one namespace; searches are shortened."""
    for folder in ("examples", "rhumbline"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    with mpl.rc_context():
        namespace: dict[str, object] = {"__name__": "example"}
        for block in read_blocks(page):
            if runs(block):
                code = re.sub(r"\bseconds=\d+", "seconds=0.4", block.code)
                exec(compile(code, block.place, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_parse(page: Path) -> None:
    """Every `rhumb` command of every block is one that the command line takes."""
    group = get_command(app)
    for words in (words for block in read_blocks(page) for words in rhumb_commands(block)):
        if words[:1] == ["train"]:
            train_parser().parse_args(words[1:])
        elif words[:2] == ["bench", "compare"]:
            make_parser().parse_args(words[2:])
        elif not words[0].startswith("-"):
            command = group.commands[words[0]]
            command.make_context(words[0], words[1:])


def known_options() -> set[str]:
    """Return all options of our commands and programs, and those of other programs."""
    known = {"--help", "--version", "--install-completion", "--show-completion"}
    for command in all_commands():
        for option in command.options:
            known |= set(re.findall(r"--[a-z][\w-]*", option.names))
    known |= {option for names in OTHER_PROGRAMS for option in names.split()}
    for folder in ("tools", "benchmarks"):
        for program in (ROOT / folder).rglob("*.py"):
            known |= set(re.findall(r'"(--[a-z][\w-]*)"', program.read_text(encoding="utf-8")))
    return known


def test_options_exist() -> None:
    """Every option that a page names is one of a program."""
    known = known_options()
    missing: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"(?<![\w/<!-])(--[a-z][a-z-]*[a-z])", text))
        if not named <= known:
            missing[name_of(page)] = named - known
    assert missing == {}


def test_links_lead_somewhere() -> None:
    """Relative links of every page are files of the repository."""
    missing: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
            if "://" not in target and not (page.parent / target).exists():
                missing.append(f"{name_of(page)}: {target}")
    assert missing == []


def test_generated_parts_are_known() -> None:
    """Pages ask for parts that there are, and every part is on a page."""
    asked = {name for page in PAGES for name in GENERATED.findall(page.read_text(encoding="utf-8"))}
    assert asked == set(PARTS)


def test_keys_of_results_are_documented(tmp_path: Path) -> None:
    """Every key of a JSON result stands in the first column of the page's tables."""
    page = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    columns = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    documented = {key for column in columns for key in re.findall(r"`(\w+)`", column)}
    path = tmp_path / "four.csv"
    path.write_text("# capacity: 2\nx,y,demand\n0,0,0\n0,1,1\n1,1,1\n1,0,1\n")
    options = [
        "--attempts",
        "2",
        "--top",
        "2",
        "--polish",
        "--json",
        "--quiet",
        "--engine",
        "torch",
    ]
    result = CliRunner().invoke(app, ["solve", str(path), *options])
    assert result.exit_code == 0
    assert json.loads(result.stdout).keys() <= documented


def test_public_names_have_a_section() -> None:
    """The reference of the Python interface is complete."""
    assert unlisted_names() == set()


def test_commands_are_whole() -> None:
    """Names, values, ranges and defaults come from the parsers."""
    commands = {command.name: command for command in all_commands()}
    assert {"solve", "train", "check", "bench", "bench compare", "serve"} <= commands.keys()
    page = commands["solve"].page()
    assert "| `--augment N` |" in page
    assert "From 1 to 8. | `1` |" in page
    assert "| `--device <auto\\|cpu\\|cuda>` |" in page
    assert "| `--minutes M` |" in commands["train"].page()


def test_settings_have_their_comments() -> None:
    """By hand: a comment behind a field, one of two lines above a field, and a default."""
    settings = {setting.name: setting for setting in read_settings(TrainConfig)}
    assert settings["accumulate"].comment == "mini-steps per update"
    assert settings["accumulate"].default == "1"
    assert settings["graph"].comment.startswith("On one GPU: record a step and replay it.")
    assert settings["engine"].type == "Literal['auto', 'torch', 'fused']"


def test_settings_of_strategies_have_a_meaning() -> None:
    """A comment of their own, or that of the same setting elsewhere."""
    classes = [STRATEGIES[name] for name in STRATEGIES.table]
    comments = shared_comments(classes)
    names = {setting.name for strategy in classes for setting in read_settings(strategy)}
    assert names == comments.keys()


def test_parts_are_put_in_place() -> None:
    """A part replaces its comment; other comments stay."""
    text = expand("before\n<!-- generated: file-suffixes -->\n<!-- other -->\n")
    assert text.startswith("before\n| problem |")
    assert text.endswith("\n<!-- other -->\n")


def test_links_to_other_files_become_paths() -> None:
    """The site has no page for a file outside docs/, but for some of the root."""
    folder = ROOT / "docs" / "guide"
    text = "[notes](../../research/README.md), [log](../../CHANGELOG.md#x), [m](../kernels.md)"
    expected = "notes (`research/README.md`), [log](../changelog.md#x), [m](../kernels.md)"
    assert rewrite_links(text, folder, folder) == expected


def test_the_citation_has_the_version() -> None:
    """CITATION.cff names the version of the package, and the page on citing its paper."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {rhumbline.__version__}\n" in citation
    title = re.search(r"  title: (.+)\n", citation)
    assert title is not None
    assert title[1] in (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
