"""What clients are told about a plan."""

from typing import Any


def verified_plan(instance: Any, plan: Any, cost: float) -> dict[str, Any]:
    """Return a verified plan for clients."""
    known = instance.best_known
    gap = (cost - known) / abs(known) if known else None
    return {
        "cost": cost,
        "gap": gap,
        "plan": plan.to_file_numbers(instance),
        "verified": True,
    }
