"""Recipes: TOML tables that map one to one onto dataclasses; unknown keys are errors."""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rhumbline.errors import InputError, shorten, shorten_repr
from rhumbline.toml_config import build_dataclass, parse_value, read_toml

if TYPE_CHECKING:  # these import torch, which the command line loads late
    from rhumbline.domain import Domain, PolicyFamily, TrainingTraits
    from rhumbline.training.objectives.objective import TrainingObjective


def require_at_least(lowest: float, **values: float) -> None:
    """Refuse values below a bound, and values that are not finite."""
    for name, value in values.items():
        is_valid = lowest <= value < math.inf
        if not is_valid:
            raise InputError(f"{name} is {shorten(value)}; expected at least {lowest}")


@dataclass(frozen=True)
class Objective:
    """What a step learns from its rollouts: the table of a recipe, with the settings of each loss.

    `training.objectives` has a class for each loss, with its own settings only.

    `trial` says how the winning latent of a start is selected. With "all", every latent is rolled
    out `samples` times, and the latent with the best rollout wins. With "sample" or "greedy", every
    latent has one rollout of that kind, and only the winner samples the rest of its group. If
    starts are few, many more latents then compete for the same work. Winners are sampled from all
    starts, and samples from starts that they have not won are discarded.

    Each instance may be presented in several rotated or mirrored copies. The best plan found on any
    copy becomes an imitation target for all of them. Policies build tours in one direction, so a
    mirrored copy finds tours that are easier to find in the other direction. CVRP instances are
    only rotated: a plan of a mirrored copy, with its routes reversed for the other copies, no
    longer begins with the start that found it. `batch` counts copies. If every copy has latents of
    its own, all latents learn the same plan and soon behave alike. With `shared` latents, only the
    latent that found the plan learns it, so latents stay different.

    LNS (`cmaes-refine`) re-samples neighbourhoods of good plans. Rollouts of whole CVRP plans do
    not visit the states of such a search. `parts` neighbourhoods of each instance's best plan are
    therefore re-sampled, `samples` times each, and these samples are compared.
    """

    loss: Literal["reinforce", "prefer", "imitate"] = "reinforce"
    # Latents per instance. 1: a single policy, at the centre of its space. Population: its members.
    latents: int = 1
    # Starts per instance, the same for all latents. Job shop: rollouts per latent.
    starts: int = 100
    # Temperature of sampled rollouts. With `reinforce` it is also that of the policy which learns,
    # and at least 0.25: a nearly deterministic policy, whose latents decide. With `prefer` it is 1.
    temperature: float = 1.0
    # imitate: candidates per instance that are improved before the best is chosen.
    top: int = 1
    # imitate: rounds of local search on the candidates.
    improve: int = 0
    # prefer: rollouts of each (latent, start), compared with one another. 1: the rollouts of all
    # starts are compared.
    samples: int = 1
    # prefer: how the winning latent of each start is selected, see above.
    trial: Literal["all", "sample", "greedy"] = "all"
    # prefer: symmetric copies of each instance, see above.
    copies: int = 1
    # prefer: copies have the same latents, and only the finder learns, see above.
    shared: bool = False
    # prefer: neighbourhoods of the best plan re-sampled per instance, see above. 0: none.
    parts: int = 0
    # prefer: loss weight of the imitated sequence, which is the best plan of the copies. For
    # comparison: the best and the worst of a group of samples have weights of about a half.
    lesson: float = 0.5
    # prefer: how fast the gradient of a pair falls with the log-probability lead of the better one.
    sharpness: float = 0.05
    # Decisions at least this probable are not scored and get no gradient. 1: all are scored.
    certain: float = 1.0
    # Actions of a sequence that are scored; longer sequences get no weight. 0: no limit.
    longest: int = 0
    # imitate: equivalent sequences of the chosen plan that are imitated.
    views: int = 8
    # reinforce: compare with the winner's own mean over starts, or the second best latent (Poppy),
    # or what a critic expects in each state. Job shops have critics: jssp-machines and jssp-l2d.
    baseline: Literal["starts", "second", "critic"] = "starts"
    # reinforce: weight of a contrast between latents. It makes a winner's plan likelier under its
    # own latent than under rivals, which are other latents of the same instance. 0: none.
    contrast: float = 0.0
    # reinforce: rivals of each winner; every one is scored like the winner.
    rivals: int = 4

    def __post_init__(self) -> None:
        """Refuse settings out of range, and settings that `loss` cannot combine."""
        require_at_least(1, latents=self.latents, starts=self.starts, top=self.top)
        require_at_least(1, views=self.views, samples=self.samples)
        require_at_least(0, temperature=self.temperature, improve=self.improve)
        require_at_least(0, longest=self.longest, sharpness=self.sharpness, parts=self.parts)
        require_at_least(1e-6, lesson=self.lesson)
        require_at_least(0, contrast=self.contrast)
        require_at_least(1, rivals=self.rivals)
        if not 0.0 < self.certain <= 1.0:
            raise InputError(
                f"objective.certain is {self.certain}; expected a probability above 0, at most 1"
            )
        if self.copies not in (1, 2, 4, 8):
            raise InputError(
                f"objective.copies is {shorten(self.copies)}; expected 1, 2, 4 or 8 sides"
            )
        self.build()

    def build(self) -> "TrainingObjective":
        """Return the objective that learns by these settings."""
        from rhumbline.training.objectives import make_objective

        return make_objective(self)


@dataclass(frozen=True)
class Optimiser:
    """AdamW, or Muon for matrices and AdamW for the rest. The decoder has no weight decay.

    See docs/internals/method.md, "Optimisation".
    """

    kind: Literal["adamw", "muon"] = "adamw"
    momentum: float = 0.95  # of Muon
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    encoder_decay: float = 1e-6
    warmup: int = 200  # updates from 0 to the full rate
    decay: float = 0.0  # the last fraction of the run, in which the rate falls linearly ...
    floor: float = 0.1  # ... to this fraction of the full rate
    clip: float = 0.0  # the largest norm of the gradient; 0: no limit
    # Routing: the largest range of an encoder head's attention logits. 0: no limit.
    spread: float = 0.0
    average: float = 0.999  # moving average of the weights, which is validated and shipped

    def __post_init__(self) -> None:
        require_at_least(0, lr=self.lr, encoder_decay=self.encoder_decay, warmup=self.warmup)
        require_at_least(0, decay=self.decay, clip=self.clip, spread=self.spread)
        fractions = (*self.betas, self.momentum, self.average)
        are_fractions = all(0.0 <= x < 1.0 for x in fractions)
        if self.decay > 1.0 or not are_fractions:
            raise InputError(
                "optimiser: betas, momentum and average must be from 0 to below 1, "
                "and decay at most 1"
            )


@dataclass(frozen=True)
class Validation:
    """Random instances with a seed of their own, never the test sets."""

    count: int = 1000
    seed: int = 4321
    latents: int = 16  # tried on each instance, besides the greedy solution
    temperature: float = 0.0  # of these tries; above 0, a single policy is sampled as often

    def __post_init__(self) -> None:
        require_at_least(1, count=self.count)
        require_at_least(0, seed=self.seed, latents=self.latents, temperature=self.temperature)


def default_problem() -> str:
    """Return the first problem of all."""
    from rhumbline.domains import DOMAINS

    return next(iter(DOMAINS))


def names_with(trait: "Callable[[TrainingTraits], object]") -> list[str]:
    """Return the names of the problems that have a trait."""
    from rhumbline.domains import DOMAINS

    return [name for name, domain in DOMAINS.working() if trait(domain.training)]


@dataclass(frozen=True)
class TrainConfig:
    """One training stage."""

    problem: str = field(default_factory=default_problem)  # a family of policies of some domain
    size: int | str = 100  # cities or customers; job shop: jobs x machines, such as "20x15"
    sizes: tuple[int | str, ...] = ()  # mini-steps take turns with these; validation has `size`
    batch: int = 64  # instances of `size` per mini-step, over all processes; see `batch_for`
    # Files, folders and datasets with user instances to train on, instead of random instances.
    data: tuple[str, ...] = ()
    # Share of instances, in validation too, that are not uniform (`problems.distributions.varied`).
    variety: float = 0.0
    accumulate: int = 1  # mini-steps per update
    updates: int = 0  # stop after this many; 0: only --minutes ends the run
    seed: int = 0
    report: float = 30.0  # seconds between reports and checkpoints; 0: after every update
    # On a GPU: torch.compile encoder and tables. It takes some seconds, then steps are faster.
    compile: bool = False
    autocast: bool = True  # on a GPU: bfloat16 products in the encoder (job shop: everywhere)
    engine: Literal["auto", "torch", "fused"] = "auto"  # of the rollouts
    # Of the encoder: our kernel where it serves, or torch's own.
    attention: Literal["auto", "torch"] = "auto"
    # On one GPU: record a step and replay it. Needs fused kernels, and not `imitate`.
    graph: bool = False
    init: str = ""  # checkpoint to start from, a path or a shipped name, with a fresh optimiser
    reset_latents: bool = False  # give every latent of `init` the behaviour of the centre
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
        self.check_graph()
        if self.reset_latents and not self.init:
            raise InputError("reset_latents is for the latents of `init`: name a checkpoint there")
        self.objective.build().check_recipe(self)
        if self.optimiser.spread and not self.traits.supports_attention_limit:
            able = " and ".join(names_with(lambda traits: traits.supports_attention_limit))
            raise InputError(
                f"optimiser.spread limits attention among the nodes of {able}; "
                f"{self.domain.name} has none"
            )

    @property
    def domain(self) -> "Domain":
        """What is special about the problem."""
        domain, _ = self.find_family()
        return domain

    @property
    def family(self) -> "PolicyFamily":
        """The network to train, and its rules."""
        _, family = self.find_family()
        return family

    @property
    def traits(self) -> "TrainingTraits":
        """What training may do with instances of the problem."""
        return self.domain.training

    def find_family(self) -> "tuple[Domain, PolicyFamily]":
        """Look up `problem`, which is the name of a policy family; refuse an unknown one."""
        from rhumbline.domains import find_policy_family

        return find_policy_family(self.problem)

    def check_sizes(self) -> None:
        """Refuse sizes in another form than the problem's, or out of range."""
        for size in (self.size, *self.sizes):
            if self.traits.is_grid:
                check_shop_size(size)
            else:
                self.check_node_count(size)

    def check_node_count(self, size: int | str) -> None:
        """Refuse a size that is no number of cities or customers, or out of range."""
        if isinstance(size, str):
            raise InputError(
                f"size is {shorten_repr(size)}; expected a number of type int for {self.problem}"
            )
        require_at_least(2, size=size)
        max_size = 1000
        if size > max_size:
            raise InputError(f"size is {shorten(size)}; up to {max_size} is supported")
        starts = self.objective.starts
        if self.sizes and size < starts:
            raise InputError(
                f"objective.starts is {shorten(starts)}, more than the size {size} among `sizes`"
            )

    def check_variety(self) -> None:
        """Refuse a variety that is no share, or of a problem without varied instances."""
        if not 0.0 <= self.variety <= 1.0:
            raise InputError(
                f"variety is {shorten(self.variety)}; expected a share of the instances from 0 to 1"
            )
        if self.variety and self.traits.vary is None:
            able = " and ".join(names_with(lambda traits: traits.vary))
            raise InputError(f"variety moves the nodes of {able}; {self.domain.name} has none")

    def check_data(self) -> None:
        """Refuse user data together with settings of random instances."""
        if self.data and (self.sizes or self.variety):
            words = "instances come from `data`, as they are: leave out `sizes` and `variety`"
            raise InputError(f"{words}, as recipes/{self.domain.name}-own.toml does")

    def check_graph(self) -> None:
        """Refuse to record steps that read back from the device."""
        reads_back = self.objective.build().reads_back or self.engine == "torch"
        if self.graph and (reads_back or not self.traits.has_fused_step):
            words = "graph = true needs fused kernels and a step that looks at no result on the way"
            able = " or ".join(names_with(lambda traits: traits.has_fused_step))
            raise InputError(f"{words}: {able}, not loss 'imitate', not engine 'torch'")

    def size_at(self, step: int) -> int | str:
        """Return the size of a mini-step, counted from the beginning of the training."""
        sizes = self.sizes or (self.size,)
        return sizes[step % len(sizes)]

    def batch_for(self, size: Hashable) -> int:
        """Return the instances of a mini-step of some size, so that all sizes cost about the same.

        `batch` is for `size`. Work grows with the square of the nodes. Numbers from 8 on are
        rounded to multiples of 8, and none exceeds four times `batch`. Job shop always has `batch`.
        """
        if not isinstance(size, int) or isinstance(self.size, str):
            return self.batch
        if size == self.size:
            return self.batch
        ratio = self.size / size
        work_ratio = ratio**2
        same_work = self.batch * work_ratio
        most = 4 * self.batch
        wanted = min(same_work, most)
        if wanted < 8:
            return max(1, round(wanted))
        eighths = math.floor(wanted / 8 + 0.5)
        return eighths * 8

    def longest_for(self, customers: int) -> int:
        """Return `objective.longest`, which is for `size`, for another number of customers."""
        assert isinstance(self.size, int)
        longest = self.objective.longest * customers / self.size
        return math.ceil(longest)


def check_shop_size(size: int | str) -> None:
    """Refuse a size that is not written as jobs x machines."""
    is_shop = re.fullmatch(r"[1-9]\d*x[1-9]\d*", str(size))
    if not is_shop:
        raise InputError(f'size is {shorten_repr(size)}; expected jobs x machines such as "20x15"')


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> TrainConfig:
    """Read a recipe file and apply `table.key=value` changes."""
    tables = read_toml(path, "recipe")
    if not tables and not changes:
        raise InputError(f"{path}: is empty; a recipe says at least which problem to train for")
    for change in changes:
        apply_change(tables, change)
    return build_dataclass(TrainConfig, tables, str(path))


def apply_change(tables: dict[str, Any], change: str) -> None:
    """Put one `a.b=value` into nested tables; the value is TOML, or a bare word."""
    name, equals, text = change.partition("=")
    if not equals:
        raise InputError(
            f"--set {shorten(change)}: expected key=value, for example objective.latents=16"
        )
    path = name.strip().split(".")
    *outer, last = path
    table: Any = tables
    for key in outer:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {shorten(change)}: '{shorten(key)}' is a value, not a table")
    table[last] = parse_value(text)


def as_tables(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration as nested tables, for headers."""
    return asdict(config)
