"""Reading recipes: what is accepted, and how everything else is refused."""

from pathlib import Path

import pytest

from rhumbline.domains import find_policy_family
from rhumbline.errors import InputError
from rhumbline.training.config import Objective, TrainConfig, as_tables, read_recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


@pytest.fixture
def recipe(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_shipped_recipes_read(path: Path) -> None:
    """Every recipe of the repository reads, and its policy table fits the architecture."""
    config = read_recipe(path)
    _, family = find_policy_family(config.problem)
    width = 64 if config.problem == "jssp-l2d" else 128
    assert family.architecture(**config.policy).width == width
    assert config.size


def test_published_recipe() -> None:
    """The recipe of the latent space has the published settings (Chalumeau et al. 2023).

    They are 8 x 8 instances, 128 latents, 20 starts and a rate of 1e-4.
    """
    config = read_recipe(next(p for p in RECIPES if p.stem == "tsp100"))
    assert (config.batch, config.accumulate) == (8, 8)
    assert (config.objective.latents, config.objective.starts) == (128, 20)
    assert config.optimiser.lr == 1e-4
    assert config.policy == {"latent": 16, "amplify": 100.0}


def test_tables_become_dataclasses(recipe) -> None:
    """Values enter their fields, integers serve as floats and lists as pairs.

    All other fields keep their defaults.
    """
    config = read_recipe(
        recipe("size = 50\n[optimiser]\nlr = 1\nbetas = [0.5, 0.75]\n[objective]\nstarts = 7\n")
    )
    assert (config.size, config.objective) == (50, Objective(starts=7))
    assert isinstance(config.optimiser.lr, float)
    assert config.optimiser.betas == (0.5, 0.75)
    assert config.batch == TrainConfig().batch
    assert as_tables(config)["objective"]["starts"] == 7


def test_changes_from_the_command_line(recipe) -> None:
    """`--set` reads TOML values and bare words, makes missing tables, and wins over the file."""
    path = recipe("batch = 3\n")
    config = read_recipe(
        path,
        [
            "batch=5",
            "objective.loss=imitate",
            "optimiser.lr=2e-3",
            "policy.width=64",
            "compile=true",
        ],
    )
    assert (config.batch, config.objective.loss, config.optimiser.lr) == (5, "imitate", 2e-3)
    assert config.policy == {"width": 64}
    assert config.compile is True
    assert read_recipe(path, ["init=runs/base.safetensors"]).init == "runs/base.safetensors"


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        (
            "sise = 3",
            [],
            r"mine.toml: unknown key 'sise' \(did you mean 'size'\?\); "
            "known here: problem, size, sizes,",
        ),
        (
            "[objective]\nlatent = 3",
            [],
            r"mine.toml: objective: unknown key 'latent' \(did you mean 'latents'\?\); known",
        ),
        ("size = 'big'", [], "size is 'big'; expected a number of type int for tsp"),
        ("size = 3.5", [], "size is 3.5; expected a value of type int"),
        ("size = true", [], "size is True; expected a value of type int"),
        ("compile = 1", [], "compile is 1; expected a value of type bool"),
        ("[optimiser]\nlr = true", [], "lr is True; expected a value of type float"),
        ("objective = 3", [], "objective is 3; expected a value of type Objective"),
        (
            "[objective]\nloss = 'poppy'",
            [],
            "objective: loss is 'poppy'; expected one of 'reinforce', 'prefer', 'imitate'",
        ),
        ("size = '6x6'", [], "size is '6x6'; expected a number of type int for tsp"),
        ("sizes = [200, '6x6']", [], "size is '6x6'; expected a number of type int for tsp"),
        ("sizes = 3", [], "mine.toml: sizes is 3; expected a list"),
        ("sizes = [3.5]", [], "mine.toml: sizes is 3.5; expected a value of type int"),
        ("sizes = [200, 1001]", [], "size is 1001; up to 1000 is supported"),
        ("sizes = [200, 99]", [], "objective.starts is 100, more than the size 99 among `sizes`"),
        (
            "sizes = [200]\nsize = 99",
            [],
            "objective.starts is 100, more than the size 99 among `sizes`",
        ),
        ("variety = 1.5", [], "variety is 1.5; expected a share of the instances from 0 to 1"),
        ("variety = nan", [], "variety is nan; expected a share of the instances from 0 to 1"),
        (
            "problem = 'jssp'\nsize = '6x6'\nvariety = 0.5",
            [],
            "variety moves the nodes of tsp and cvrp",
        ),
        ("problem = 'jssp'\nsize = '6x6'\nsizes = [6]", [], "size is 6; expected jobs x machines"),
        ("problem = 'jssp'\nsize = 10", [], 'size is 10; expected jobs x machines such as "20x15"'),
        (
            "problem = 'jssp'\nsize = '6x6'\nsizes = ['6x6', '0x5']",
            [],
            "size is '0x5'; expected jobs x machines",
        ),
        ("size = = 3", [], "mine.toml: not a readable TOML recipe"),
        ("", ["size"], "--set size: expected key=value, for example"),
        ("", ["objective.latent=3"], "unknown key 'latent'"),
        ("[objective]\ntemperature = 0.2", [], "temperature is 0.2; expected at least 0.25 with"),
        ("[objective]\ntemperature = 0.5\ncertain = 0.9", [], "certain is for temperature 1"),
        ("reset_latents = true", [], "reset_latents is for the latents of `init`: name a check"),
        ("[objective]\nsamples = 2", [], "samples is for loss 'prefer'"),
        ("[objective]\ncopies = 2", [], "copies is for loss 'prefer' with samples of 2 or more"),
        ("[objective]\nparts = 2", [], "parts is for loss 'prefer' with samples of 2 or more"),
        (
            "[objective]\nloss = 'prefer'\nsamples = 2\nparts = 2",
            [],
            "parts needs objective.certain below 1",
        ),
        ("[objective]\nparts = -1", [], "parts is -1; expected at least 0"),
        (
            "problem = 'jssp'\nsize = '6x6'\n"
            "[objective]\nloss = 'prefer'\nsamples = 2\ncertain = 0.9\nparts = 2",
            [],
            "parts is for tsp and cvrp",
        ),
        (
            "[objective]\nloss = 'prefer'\nsamples = 2\ncopies = 3",
            [],
            "expected 1, 2, 4 or 8 sides",
        ),
        (
            "batch = 6\n[objective]\nloss = 'prefer'\nsamples = 2\ncopies = 4",
            [],
            "to divide the batch of 6",
        ),
        (
            "[objective]\nloss = 'prefer'\nlatents = 2\nsamples = 2\nshared = true",
            [],
            "several latents and",
        ),
        (
            "[objective]\nloss = 'prefer'\nsamples = 2\ncopies = 2\nshared = true",
            [],
            "several latents and",
        ),
        (
            "problem = 'jssp'\nsize = '6x6'\n[objective]\nloss = 'prefer'\nsamples = 2\ncopies = 4",
            [],
            "for tsp and, up to 4,",
        ),
        (
            "problem = 'cvrp'\n[objective]\nloss = 'prefer'\nsamples = 2\ncopies = 8",
            [],
            "up to 4, for cvrp",
        ),
        ("[objective]\nlesson = 0", [], "lesson is 0"),
        ("[objective]\ntrial = 'greedy'", [], "trial is for loss 'prefer', not 'reinforce'"),
        (
            "[objective]\nloss = 'prefer'\nsamples = 2\ntrial = 'sample'",
            [],
            "'sample' is a competition among latents",
        ),
        (
            "[objective]\nloss = 'prefer'\nbaseline = 'second'",
            [],
            "'second' and 'critic' are for loss 'reinforce', not 'prefer'",
        ),
        (
            "[objective]\nloss = 'prefer'\nlatents = 4",
            [],
            "samples is 1, but loss 'prefer' compares",
        ),
        (
            "[objective]\nloss = 'imitate'\ntop = 9\nstarts = 4\nlatents = 2",
            [],
            "top is 9, but a step samples 8",
        ),
        ("[optimiser]\nbetas = 0.9", [], "betas is 0.9; expected"),
        ("[optimiser]\nbetas = [0.9]", [], "betas is .*; expected"),
        ("[optimiser]\nbetas = ['a', 'b']", [], "betas is .*; expected"),
        ("policy = 3", [], "policy is 3; expected"),
        ("size = 3", ["size.x=4"], "size"),
    ],
)
def test_wrong_recipes_are_refused(recipe, text: str, changes: list[str], words: str) -> None:
    """The message names the file, the key, what was read and what was expected."""
    with pytest.raises(InputError, match=words):
        read_recipe(recipe(text), changes)


def test_missing_recipe(tmp_path: Path) -> None:
    """The error names the recipe that does not exist."""
    with pytest.raises(InputError, match=r"nowhere\.toml: no such recipe"):
        read_recipe(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"graph": True, "objective": Objective(loss="imitate")}, "graph = true needs"),
        ({"graph": True, "engine": "torch"}, "graph = true needs"),
        ({"graph": True, "problem": "jssp", "size": "6x6"}, "graph = true needs"),
        ({"objective": Objective(longest=50)}, "for cvrp, and not loss 'imitate'"),
        (
            {"problem": "cvrp", "objective": Objective(longest=50, loss="imitate")},
            "for cvrp, and not loss 'imitate'",
        ),
    ],
)
def test_what_cannot_be_recorded_or_cut_is_refused(changes: dict[str, object], words: str) -> None:
    """Refuse it before any work on a GPU."""
    with pytest.raises(InputError, match=words):
        TrainConfig(**changes)
