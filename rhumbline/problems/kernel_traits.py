"""What fused engines need to know about rules.

Kernels know no problems. They construct tours, routes or schedules, and rules say which of these
they describe.
"""

from functools import cache
from typing import Any, Literal, Protocol

RolloutKernel = Literal["tours", "routes", "schedules"]
GraphUse = Literal["auto", "by name"]


class CompiledRules(Protocol):
    """Two more attributes of rules that a fused engine serves; others run in plain torch.

    They belong to a name of rules. A subclass with a name of its own may have changed the rules,
    so it does not inherit them and has to state them again.
    """

    # What compiled rollouts under these rules construct; None if there are none.
    rollout_kernel: RolloutKernel | None
    # Whether a GPU may record a step of plain torch as a CUDA graph: also for engine `auto`, only
    # if the fused engine is asked for by name, or not at all.
    cuda_graph: GraphUse | None


def rollout_kernel(rules: Any) -> RolloutKernel | None:
    """Return what compiled rollouts construct under these rules, or None if there are none."""
    return rules.rollout_kernel if states_traits(type(rules)) else None


def cuda_graph(rules: Any) -> GraphUse | None:
    """Return when a GPU may record steps under these rules, or None if never."""
    return rules.cuda_graph if states_traits(type(rules)) else None


@cache
def states_traits(kind: type[Any]) -> bool:
    """Return whether the class that names the rules also says what kernels may do with them."""
    named = next((base for base in kind.__mro__ if "name" in vars(base)), object)
    stated = vars(named)
    return "rollout_kernel" in stated and "cuda_graph" in stated
