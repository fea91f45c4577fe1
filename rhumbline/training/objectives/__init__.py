"""What a training step learns from: one class for each `loss` of a recipe."""

from dataclasses import fields
from typing import Any

from rhumbline.errors import InputError
from rhumbline.training.config import Objective
from rhumbline.training.objectives.imitate import Imitate
from rhumbline.training.objectives.objective import TrainingObjective
from rhumbline.training.objectives.prefer import Prefer
from rhumbline.training.objectives.reinforce import Reinforce

OBJECTIVES: dict[str, type[TrainingObjective]] = {
    "reinforce": Reinforce,
    "prefer": Prefer,
    "imitate": Imitate,
}


def make_objective(table: Objective) -> TrainingObjective:
    """Return the objective that a recipe's table describes; refuse settings of other objectives."""
    kind = OBJECTIVES[table.loss]
    own = [field.name for field in fields(kind)]
    for other in OBJECTIVES.values():
        for name, why in other.refusals.items():
            is_set = getattr(table, name) != getattr(Objective, name)
            if is_set and name not in own:
                raise InputError(f"objective.{name} {why.format(loss=table.loss)}")
    settings: dict[str, Any] = {name: getattr(table, name) for name in own}
    return kind(**settings)
