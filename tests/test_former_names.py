"""Settings that were renamed still work under their former names, with a note."""

from dataclasses import dataclass, replace

import pytest

from rhumbline.errors import InputError, note_once
from rhumbline.search.strategies import build_strategy
from rhumbline.search.strategies.cmaes_refine import CMAESRefine
from rhumbline.toml_config import build_dataclass, former_names


@former_names(colour="hue")
@dataclass(frozen=True)
class Paint:
    hue: int = 0
    gloss: float = 0.0


@pytest.fixture(autouse=True)
def noted() -> None:
    """Forget what was noted in this process."""
    note_once.cache_clear()


def test_python_takes_both_names(capsys: pytest.CaptureFixture[str]) -> None:
    """By position, by the present name and by the former one; only that has a note, once."""
    assert Paint(3) == Paint(hue=3)
    assert capsys.readouterr().err == ""
    assert Paint(colour=3) == Paint(colour=3, gloss=0.0) == replace(Paint(), hue=3)  # pyright: ignore
    assert capsys.readouterr().err == "note: the setting 'colour' is now called 'hue'\n"


def test_tables_take_both_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Values are checked against the type of the present field; messages name that field."""
    assert build_dataclass(Paint, {"colour": 3}, "here") == Paint(3)
    assert "'colour' is now called 'hue'" in capsys.readouterr().err
    with pytest.raises(InputError, match="here: hue is 'red'"):
        build_dataclass(Paint, {"colour": "red"}, "here")
    with pytest.raises(InputError, match=r"unknown key 'color'.*known here: hue, gloss"):
        build_dataclass(Paint, {"color": 3}, "here")


def test_both_names_at_once_are_refused() -> None:
    """Neither would win."""
    with pytest.raises(InputError, match="'hue' is given twice: 1 and 2"):
        build_dataclass(Paint, {"hue": 1, "colour": 2}, "here")
    with pytest.raises(InputError, match="'hue' is given twice"):
        Paint(hue=1, colour=2)  # pyright: ignore


FORMER = {"rebuilt": 3.0, "abreast": 7, "stock": 64}


def test_refinement_takes_its_former_names(capsys: pytest.CaptureFixture[str]) -> None:
    """In Python, by `--set` and in suites."""
    present = CMAESRefine(parts_per_rollout=3.0, neighbourhoods_at_once=7, route_pool=64)
    assert CMAESRefine(**FORMER) == present  # pyright: ignore
    settings = [f"{name}={value}" for name, value in FORMER.items()]
    assert build_strategy("cmaes-refine", settings) == present
    assert build_dataclass(CMAESRefine, FORMER, "method 'refined'") == present
    notes = capsys.readouterr().err.splitlines()
    assert notes == [
        "note: the setting 'rebuilt' is now called 'parts_per_rollout'",
        "note: the setting 'abreast' is now called 'neighbourhoods_at_once'",
        "note: the setting 'stock' is now called 'route_pool'",
    ]
