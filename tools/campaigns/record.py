"""What a campaign needs, and what it reports."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Effort:
    """How much time a campaign needs to be of use, and how much of the rest it gets."""

    min_seconds: float = 15.0  # on two free cores with compiled kernels
    weight: float = 1.0


@dataclass(frozen=True)
class CampaignResult:
    """How much a campaign tried, what broke, and what it measured."""

    name: str
    tried: int
    faults: tuple[str, ...]  # one sentence each, with what is needed to see it again
    figures: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])
