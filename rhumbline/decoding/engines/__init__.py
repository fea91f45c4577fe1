"""The engines that construct rollouts, and the choice among them.

Plain torch is the definition. The kernels construct the same rollouts faster. An outside package
adds an engine by an entry point:

    [project.entry-points."rhumbline.engines"]
    tpu = "my_package:TPU"
"""

from collections.abc import Iterator
from dataclasses import replace

from rhumbline.decoding.engines.base import Ask as Ask
from rhumbline.decoding.engines.base import CompiledEngine as CompiledEngine
from rhumbline.decoding.engines.base import Engine as Engine
from rhumbline.decoding.engines.base import NotedReason as NotedReason
from rhumbline.decoding.engines.base import Pace as Pace
from rhumbline.decoding.engines.base import PacedEngine as PacedEngine
from rhumbline.decoding.engines.base import has_layer as has_layer
from rhumbline.decoding.engines.base import make_ask as make_ask
from rhumbline.errors import InputError, MissingExtra, note_once, shorten
from rhumbline.registry import Registry, suggest_known

# In order of preference. Fused engines of outside packages are tried after ours, then torch; an
# outside engine that is not fused is chosen by name only.
ENGINES: Registry[Engine] = Registry(
    "engines",
    {
        "triton": "rhumbline.decoding.engines.triton_rollouts:TRITON",
        "job_shop": "rhumbline.decoding.engines.job_shops:JOB_SHOP",
        "cuda_graph": "rhumbline.decoding.engines.cuda_graphs:CUDA_GRAPH",
        "numba": "rhumbline.decoding.engines.numba_rollouts:NUMBA",
        "numba_job_shop": "rhumbline.decoding.engines.numba_job_shops:NUMBA_JOB_SHOP",
        "torch": "rhumbline.decoding.engines.plain_torch:TORCH",
    },
)


def choose_engine(wanted: str, ask: Ask) -> Engine:
    """Return the engine that a user wants: "auto", "fused", or the name of one.

    "fused" stands for the first fused engine that serves; "auto" takes torch if there is none.
    Raises `MissingExtra` with the reason if the engine cannot serve, unless "auto" is wanted.
    """
    if wanted == "torch":
        return ENGINES["torch"]
    if wanted in ("auto", "fused"):
        by_name = wanted == "fused"
        return choose_fused(replace(ask, by_name=by_name))
    if wanted not in ENGINES:
        known = suggest_known(wanted, ("auto", "fused", *ENGINES))
        raise InputError(f"engine '{shorten(wanted)}' is not known{known}")
    engine = ENGINES[wanted]
    reason = engine.why_not(replace(ask, by_name=True))
    require_engine(reason)
    return engine


def choose_fused(ask: Ask) -> Engine:
    """Return the first fused engine that serves, or torch if the user did not ask for a fused one.

    A reason that users can remove, or that costs much time, is reported once.
    """
    reasons = list[str]()
    chosen = ENGINES["torch"]
    for engine in fused_engines():
        reason = engine.why_not(ask)
        if reason is None:
            chosen = engine
            break
        reasons.append(reason)
    if not chosen.fused and ask.by_name:
        require_engine(select_reason(reasons, ask))
    for reason in reasons:
        if isinstance(reason, NotedReason):
            note_once(reason.note)
    return chosen


def why_not_fused(ask: Ask) -> str | None:
    """Return why no fused engine serves, or None if one does."""
    ask = replace(ask, by_name=True)
    reasons = list[str]()
    for engine in fused_engines():
        reason = engine.why_not(ask)
        if reason is None:
            return None
        reasons.append(reason)
    return select_reason(reasons, ask)


def fused_engines() -> Iterator[Engine]:
    """Yield the fused engines in order of preference; those of outside packages are last."""
    for _, engine in ENGINES.working():
        if engine.fused:
            yield engine


def select_reason(reasons: list[str], ask: Ask) -> str:
    """Return the reason of the engine that comes closest: for these rules on this device."""
    telling = [reason for reason in reasons if reason != ask.no_kernel]
    return telling[0] if telling else ask.no_kernel


def require_engine(reason: str | None) -> None:
    """Raise `MissingExtra` if there is a reason against an engine that was asked for by name."""
    if reason is not None:
        raise MissingExtra(f"{reason}. Use engine torch (or auto)")
