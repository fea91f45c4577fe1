"""What a campaign reports."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CampaignResult:
    """How much a campaign tried, what broke, and what it measured."""

    name: str
    tried: int
    faults: tuple[str, ...]  # one sentence each, with what is needed to see it again
    figures: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])
