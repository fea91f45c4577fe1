"""Recipes: TOML tables that map one to one onto dataclasses. Unknown keys are errors that list
the known ones.
"""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rhumbline.errors import InputError
from rhumbline.toml_config import build_dataclass, parse_value, read_toml

POLICY_FILE, BEST_POLICY_FILE = (
    "policy.safetensors",
    "best.safetensors",
)  # of a run: the last weights, and those that validated best
LARGEST_SIZE = 1000
DATA_PLACEHOLDER = "YOUR-FOLDER"  # of recipes that want data
MOST_MORE = 4  # times `batch` of small instances, at most


def require_at_least(lowest: float, **values: float) -> None:
    """Refuse values below a bound, and what is not finite."""
    for name, value in values.items():
        if not lowest <= value < float("inf"):
            raise InputError(f"{name} is {value}; expected at least {lowest}")


@dataclass(frozen=True)
class Objective:
    """What is learnt from the rollouts of a step.

    Latents compete for a start by the best of all their samples ("all"), or by one rollout, sampled
    or greedy, and then only the winner makes the rest of the `samples` that are compared: many more
    latents compete for the same work, as long as starts are few (winners are sampled from all of
    them, and what is not from their own is thrown away).

    A policy sees the copies of an instance as different ones, and finds different plans: what one
    of them has found at first the others learn. Policies go round one way only, so a mirrored copy
    finds tours that are easier to find the other way round; vehicles' instances are only turned,
    since their plans cannot be reversed. `batch` counts copies. Copies with latents of their own
    teach all latents the same, and soon these differ no more. If latents are `shared`, the one that
    found the best plan of all copies learns it in each of them, and what it is good at remains its
    own.

    Searches plan neighbourhoods of good plans again (`cmaes-refine`); among routes, no rollout of a
    whole plan comes by such a place. Of each instance so many `parts` of the best plan of its
    rollouts are built `samples` times each, and these are compared.
    """

    loss: Literal["reinforce", "prefer", "imitate"] = "reinforce"
    # K per instance; 1 trains a single policy at the centre of its space; a population: its members
    latents: int = 1
    # S per latent, drawn with replacement, the same for all latents; job shop: rollouts per latent
    starts: int = 100
    temperature: float = 1.0  # of the sampling; only `imitate` may have another than 1
    top: int = 1  # imitate: candidates per instance that are improved before the best is chosen
    improve: int = 0  # imitate: rounds of local improvement of the candidates
    # prefer: rollouts of each (latent, start), which are compared; 1: those of all starts are
    samples: int = 1
    trial: Literal["all", "sample", "greedy"] = (
        "all"  # prefer: what latents compete for a start by: see above
    )
    copies: int = (
        1  # prefer: of each instance, other sides; the best plan of all is a lesson for each
    )
    shared: bool = False  # copies: they have the same latents, of which one learns, see above
    # prefer: of each instance, neighbourhoods of its best plan that are planned again: see above
    parts: int = 0
    lesson: float = 0.5  # its weight; of compared samples the best and the worst have about a half
    sharpness: float = 0.05  # prefer: how much a lead in log-probability settles a pair
    # decisions at least so probable give no gradient: next to nothing is lost, and much work saved
    certain: float = 1.0
    longest: int = (
        0  # actions of a sequence that are scored; longer sequences teach nothing. 0: no limit
    )
    views: int = 8  # imitate: equivalent sequences of the chosen plan
    baseline: Literal["starts", "second"] = (
        "starts"  # of a winner: its own mean over starts, or the second best (Poppy)
    )

    def __post_init__(self) -> None:
        require_at_least(
            1,
            latents=self.latents,
            starts=self.starts,
            top=self.top,
            views=self.views,
            samples=self.samples,
        )
        require_at_least(
            0,
            temperature=self.temperature,
            improve=self.improve,
            longest=self.longest,
            sharpness=self.sharpness,
        )
        require_at_least(1e-6, lesson=self.lesson)
        if self.loss != "imitate" and self.temperature != 1.0:
            raise InputError(
                f"objective.temperature must be 1 with loss '{self.loss}': the gradient is on-policy"
            )
        if not 0.0 < self.certain <= 1.0:
            raise InputError(
                f"objective.certain is {self.certain}; expected a probability above 0, at most 1"
            )
        self.check_copies()
        self.check_parts()
        self.check_samples()
        if self.baseline == "second" and self.loss != "reinforce":
            raise InputError(
                f"objective.baseline 'second' is for loss 'reinforce', not '{self.loss}'"
            )
        if self.baseline == "second" and self.latents < 2:
            raise InputError(
                "objective.baseline 'second' needs latents of at least 2: nobody would come second"
            )
        if self.top > self.latents * self.starts:
            raise InputError(
                f"objective.top is {self.top}, but a step samples {self.latents * self.starts} per instance"
            )

    def check_copies(self) -> None:
        """Refuse lessons for nobody."""
        if self.copies not in (1, 2, 4, 8):
            raise InputError(
                f"objective.copies is {self.copies}; expected 1, 2, 4 or 8 sides to look from"
            )
        if self.copies > 1 and (self.loss != "prefer" or self.samples == 1):
            raise InputError(
                "objective.copies is for loss 'prefer' with samples of 2 or more, which are compared"
            )
        if self.shared and (self.copies == 1 or self.latents == 1):
            raise InputError(
                "objective.shared is for several latents and several copies: set latents and copies"
            )

    def check_parts(self) -> None:
        """Refuse parts that nobody would be compared with, or whose given actions would be
        scored.
        """
        require_at_least(0, parts=self.parts)
        if self.parts and (self.loss != "prefer" or self.samples == 1):
            raise InputError(
                "objective.parts is for loss 'prefer' with samples of 2 or more, which are compared"
            )
        if self.parts and self.certain == 1.0:
            raise InputError(
                "objective.parts needs objective.certain below 1: what is given counts as certain"
            )

    def check_samples(self) -> None:
        """Refuse comparisons with nobody."""
        if self.loss != "prefer":
            if self.samples > 1:
                raise InputError(
                    f"objective.samples is for loss 'prefer', which compares them, not '{self.loss}'"
                )
            if self.trial != "all":
                raise InputError(f"objective.trial is for loss 'prefer', not '{self.loss}'")
            return
        if self.trial != "all" and self.latents < 2:
            raise InputError(
                f"objective.trial '{self.trial}' is a competition among latents; set latents to 2 or more"
            )
        if self.samples == 1 and (self.latents > 1 or self.starts == 1):
            raise InputError(
                "objective.samples is 1, but loss 'prefer' compares several rollouts of a latent and start"
            )


@dataclass(frozen=True)
class Optimiser:
    """AdamW, or Muon for matrices and AdamW for the rest; the decoder has no weight decay (spec
    3.1).
    """

    kind: Literal["adamw", "muon"] = "adamw"
    momentum: float = 0.95  # of Muon
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    encoder_decay: float = 1e-6
    warmup: int = 200  # updates from 0 to full rate
    decay: float = 0.0  # last fraction of the run in which the rate falls linearly ...
    floor: float = 0.1  # ... to this fraction
    clip: float = 0.0  # norm of the gradient at most; 0 is off
    # routing: attention scores of a head of the encoder spread at most so far; 0 is no limit
    spread: float = 0.0
    average: float = 0.999  # moving average of the weights: what is validated and shipped

    def __post_init__(self) -> None:
        require_at_least(
            0,
            lr=self.lr,
            encoder_decay=self.encoder_decay,
            warmup=self.warmup,
            decay=self.decay,
            clip=self.clip,
        )
        require_at_least(0, spread=self.spread)
        if (
            not all(0.0 <= x < 1.0 for x in (*self.betas, self.momentum, self.average))
            or self.decay > 1.0
        ):
            raise InputError(
                "optimiser: betas, momentum and average must be from 0 to below 1, and decay at most 1"
            )


@dataclass(frozen=True)
class Validation:
    """Instances of their own seed, never the test sets."""

    count: int = 1000
    seed: int = 4321
    latents: int = 16  # tried on each instance, beside the greedy solution
    temperature: float = 0.0  # of those tries; above 0 a single policy is sampled as often

    def __post_init__(self) -> None:
        require_at_least(1, count=self.count)
        require_at_least(0, seed=self.seed, latents=self.latents, temperature=self.temperature)


@dataclass(frozen=True)
class TrainConfig:
    """One training stage."""

    problem: str = "tsp"
    size: int | str = 100  # cities or customers; job shop: jobs x machines, such as "20x15"
    sizes: tuple[int | str, ...] = ()  # mini-steps take turns with these; validation has `size`
    batch: int = 64  # instances per mini-step, over all processes; of `size`: see `batch_for`
    data: tuple[
        str, ...
    ] = ()  # files, folders and datasets of one's own to train on, instead of random instances
    # share of instances that are not uniform (`problems.varied`), in validation too; not job shop
    variety: float = 0.0
    accumulate: int = 1  # mini-steps per update
    updates: int = 0  # stop after this many; 0 means until --minutes
    seed: int = 0
    report: float = 30.0  # seconds between reports and checkpoints; 0 reports after every update
    # on a GPU, torch.compile encoder and tables: some seconds of waiting, then faster steps
    compile: bool = False
    autocast: bool = True  # bfloat16 products in the encoder (job shop: everywhere), on a GPU
    engine: Literal["auto", "torch", "fused"] = "auto"  # of the rollouts
    attention: Literal["auto", "torch"] = (
        "auto"  # of the encoder: a kernel of ours where it serves, or torch's own
    )
    # on one GPU, record a step and replay it; not for `imitate`, and only with fused kernels
    graph: bool = False
    init: str = ""  # checkpoint to start from, a path or a shipped name, with a fresh optimiser
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])  # architecture
    objective: Objective = field(default_factory=Objective)
    optimiser: Optimiser = field(default_factory=Optimiser)
    validation: Validation = field(default_factory=Validation)

    def __post_init__(self) -> None:
        self.check_sizes()
        self.check_variety()
        self.check_data()
        require_at_least(1, batch=self.batch, accumulate=self.accumulate)
        require_at_least(0, updates=self.updates, seed=self.seed, report=self.report)
        o = self.objective
        if self.graph and (
            o.loss == "imitate" or self.engine == "torch" or self.problem.startswith("jssp")
        ):
            words = "graph = true needs fused kernels and a step that looks at no result on the way"
            raise InputError(f"{words}: tsp or cvrp, not loss 'imitate', not engine 'torch'")
        if o.longest and (self.problem != "cvrp" or o.loss == "imitate"):
            raise InputError(
                "objective.longest cuts vehicle routes after their end: for cvrp, and not loss 'imitate'"
            )
        if o.copies > {"tsp": 8, "cvrp": 4}.get(self.problem, 1):
            raise InputError(
                "objective.copies is for tsp and, up to 4, for cvrp, whose plans cannot be reversed"
            )
        if o.parts and self.problem not in ("tsp", "cvrp"):
            raise InputError("objective.parts is for tsp and cvrp, whose plans have neighbourhoods")
        if self.batch % o.copies:
            raise InputError(
                f"objective.copies is {o.copies}, which has to divide the batch of {self.batch}"
            )
        if self.optimiser.spread and self.problem.startswith("jssp"):
            raise InputError(
                "optimiser.spread limits attention among the nodes of tsp and cvrp; job shop has none"
            )

    def check_sizes(self) -> None:
        """Numbers where nodes are counted, jobs x machines where those are."""
        if self.problem.startswith("jssp"):
            for size in (self.size, *self.sizes):
                if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", str(size)):
                    raise InputError(f'size is {size!r}; expected jobs x machines such as "20x15"')
            return
        for size in (self.size, *self.sizes):
            if isinstance(size, str):
                raise InputError(
                    f"size is {size!r}; expected a number of type int for {self.problem}"
                )
            require_at_least(2, size=size)
            if size > LARGEST_SIZE:
                raise InputError(f"size is {size}; up to {LARGEST_SIZE} is supported")
            if self.sizes and size < self.objective.starts:
                raise InputError(
                    f"objective.starts is {self.objective.starts}, more than the size {size} among `sizes`"
                )

    def check_variety(self) -> None:
        """A share, of nodes in the plane."""
        if not 0.0 <= self.variety <= 1.0:
            raise InputError(
                f"variety is {self.variety}; expected a share of the instances from 0 to 1"
            )
        if self.variety and self.problem.startswith("jssp"):
            raise InputError("variety moves the nodes of tsp and cvrp; job shop has none")

    def check_data(self) -> None:
        """Either one's own instances or random ones."""
        if self.data and (self.sizes or self.variety):
            words = "instances come from `data`, as they are: leave out `sizes` and `variety`"
            raise InputError(f"{words}, as recipes/{self.problem.partition('-')[0]}-own.toml does")

    def size_at(self, step: int) -> int | str:
        """The size of a mini-step, counted from the beginning of the training."""
        sizes = self.sizes or (self.size,)
        return sizes[step % len(sizes)]

    def batch_for(self, size: Hashable) -> int:
        """Instances of a mini-step of some size: `batch` of `size`; of others so many that a step
        costs about the same.

        Work grows with the square of the nodes. Multiples of 8 from 8 on, and at most four times
        `batch`; job shop always has `batch`.
        """
        if size == self.size or not isinstance(size, int) or isinstance(self.size, str):
            return self.batch
        wanted = min(self.batch * (self.size / size) ** 2, MOST_MORE * self.batch)
        return math.floor(wanted / 8 + 0.5) * 8 if wanted >= 8 else max(1, round(wanted))

    def longest_for(self, customers: int) -> int:
        """`objective.longest`, which is for `size`, for another number of customers."""
        assert isinstance(self.size, int)
        return math.ceil(self.objective.longest * customers / self.size)


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> TrainConfig:
    """A recipe file with `table.key=value` changes applied."""
    tables = read_toml(path, "recipe")
    if not tables and not changes:
        raise InputError(f"{path}: is empty; a recipe says at least which problem to train for")
    for change in changes:
        _apply(tables, change)
    return build_dataclass(TrainConfig, tables, str(path))


def _apply(tables: dict[str, Any], change: str) -> None:
    """Put one `a.b=value` into nested tables; the value is TOML, or a bare word."""
    name, equals, text = change.partition("=")
    if not equals:
        raise InputError(f"--set {change}: expected key=value, for example objective.latents=16")
    *outer, last = name.strip().split(".")
    table: Any = tables
    for key in outer:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {change}: '{key}' is a value, not a table")
    table[last] = parse_value(text)


def as_tables(config: TrainConfig) -> dict[str, Any]:
    """The configuration as nested tables, for headers."""
    return asdict(config)
