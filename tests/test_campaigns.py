"""How campaigns share the time of a call; each campaign is a test of its own."""

import json
from pathlib import Path

import pytest

from tools.campaigns import __main__ as campaigns
from tools.campaigns.record import CampaignResult, Effort

EFFORTS = {
    "quick": Effort(min_seconds=5.0, weight=3.0),
    "slow": Effort(min_seconds=40.0),
    "medium": Effort(min_seconds=10.0),
}


@pytest.mark.parametrize(
    ("seconds", "shares"),
    [
        (4.0, {}),
        (5.0, {"quick": 5.0}),
        (14.0, {"quick": 14.0}),
        (19.0, {"quick": 8.0, "medium": 11.0}),
        (55.0, {"quick": 5.0, "slow": 40.0, "medium": 10.0}),
        (105.0, {"quick": 35.0, "slow": 50.0, "medium": 20.0}),
    ],
)
def test_campaigns_have_what_they_need_or_are_left_out(
    seconds: float, shares: dict[str, float]
) -> None:
    """What is left over is shared by weight."""
    found = campaigns.share_seconds(EFFORTS, seconds)
    assert found == pytest.approx(shares)
    assert list(found) == list(shares)


def test_a_minute_is_enough_for_most(capsys: pytest.CaptureFixture[str]) -> None:
    """CI has that much. What is left out is said."""
    shares = campaigns.plan_seconds([], 60.0)
    assert {"parsers", "plans", "checkpoints", "interruptions", "disk_full"} <= set(shares)
    assert sum(shares.values()) == pytest.approx(60.0)
    left_out = set(campaigns.campaign_names()) - set(shares)
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition(":")[0] for line in lines} == left_out
    assert set(campaigns.plan_seconds([], 600.0)) == set(campaigns.campaign_names())


def test_named_campaigns_are_run_in_any_case() -> None:
    """They share the seconds equally."""
    assert campaigns.plan_seconds(["kernel_cache", "plans"], 10.0) == {
        "kernel_cache": 5.0,
        "plans": 5.0,
    }


def test_results_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file has the figures with commit and date; a fault makes the exit code 1."""
    from tools.campaigns import parsers

    found = CampaignResult("parsers", 7, ("a fault",), {"files": 7})
    monkeypatch.setattr(parsers, "run", lambda seconds, seed: found)
    path = tmp_path / "figures.json"
    assert campaigns.main(["parsers", "--seconds", "1", "--seed", "3", "--json", str(path)]) == 1
    content = json.loads(path.read_text())
    assert set(content) == {"commit", "date", "seed", "results"}
    assert content["seed"] == 3
    assert content["results"] == [
        {"name": "parsers", "tried": 7, "faults": ["a fault"], "figures": {"files": 7}}
    ]
    assert "FAULT a fault" in capsys.readouterr().out
