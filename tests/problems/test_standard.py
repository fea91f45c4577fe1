"""The standard test sets come from seeds alone."""

import pytest

from rhumbline.errors import InputError
from rhumbline.problems import standard


@pytest.mark.parametrize(
    ("name", "first"), [("tsp100", 0.1915194503788923), ("tsp125", 0.9537625822517408), ("tsp200", 0.9537625822517408)]
)
def test_sets_have_their_published_hash(name: str, first: float) -> None:
    """A set is drawn anew bit for bit: its hash is checked inside, its first number here."""
    assert standard.tsp_set(name)[0, 0, 0] == first


def test_another_stream_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the generator drew other numbers, nobody would measure on them unawares."""
    changed = standard.StandardSet(125, 1_000, 1236, standard.TSP_SETS["tsp125"].digest)
    monkeypatch.setitem(standard.TSP_SETS, "tsp125", changed)
    with pytest.raises(InputError, match="tsp125: the regenerated set does not have the published hash"):
        standard.tsp_set("tsp125")


def test_unknown_set() -> None:
    """The message lists the sets there are."""
    with pytest.raises(InputError, match="no standard set 'tsp101'; known: tsp100, tsp125, tsp150, tsp200"):
        standard.tsp_set("tsp101")
