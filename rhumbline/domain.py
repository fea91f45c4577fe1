"""What rhumbline knows about one kind of problem. `rhumbline/domains` has a page for each.

A domain gathers, in one record, everything that is special about a problem. Code elsewhere asks the
record and never compares names of problems. Parts that a problem does without are None; code that
needs such a part calls `Domain.require`, which refuses in a sentence.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rhumbline.errors import InputError
from rhumbline.problems import Plan, Problem

Reader = Callable[[Path], Any]


@dataclass(frozen=True)
class PolicyFamily:
    """A network for a problem: the record of its sizes, the network, and the rules it plays by."""

    architecture: type[Any]
    network: type[Any]
    rules: Problem[Any, Any]
    # How training makes a policy of this family from one of another, by the other's name.
    converters: Mapping[str, Callable[[Any], Any]] = field(
        default_factory=dict[str, Callable[[Any], Any]]
    )
    # From a record of sizes: a `policies.Critic`, for `objective.baseline = "critic"`.
    critic: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class DatasetFormat:
    """How a dataset holds instances: one safetensors file with a row for each of them."""

    tensors: frozenset[str]  # that every such file has
    load: Callable[[Path], list[Any]]
    save: Callable[[Path, Any, dict[str, str]], None]  # path, sampled batch, note on its origin
    # The same instances as `load`, without holding all of them; None where `load` has to do.
    stream: Callable[[Path], Iterator[Any]] | None = None


ContentCheck = Callable[[Path], bool]


@dataclass(frozen=True)
class FileFormats:
    """How instances and plans of a problem are read from files and written."""

    readers: Mapping[str, Reader] = field(default_factory=dict[str, Reader])  # by suffix
    # Tried in this order for unknown suffixes: content, TYPE header, then the reader under "".
    readers_by_content: tuple[tuple[ContentCheck, Reader], ...] = ()
    readers_by_type: Mapping[str, Reader] = field(default_factory=dict[str, Reader])
    # For common suffixes such as .txt: whether a file found in a folder is an instance.
    content_checks: Mapping[str, ContentCheck] = field(default_factory=dict[str, ContentCheck])
    dataset: DatasetFormat | None = None
    plan_suffix: str = ".json"
    write_plan: Callable[[Path, Any, Any, str], None] | None = None  # path, plan, instance, comment
    read_plan: Callable[[Path, Any], Any] | None = None  # path, instance
    # The plan in the numbers of a JSON result, and how to describe them in an error message.
    parse_plan: Callable[[Any, Any], Any] | None = None
    plan_form: str = "a list of whole numbers"
    # What a JSON result says of a plan of an instance, besides its numbers.
    plan_facts: Callable[[Any, Any], dict[str, Any]] | None = None


@dataclass(frozen=True)
class PlanTools:
    """What search needs to know about plans beyond rollouts.

    Action sequences are those of the domain's standard rules.
    """

    # The two neighbours of each node in each plan of a batch: [B, R, T] to [B, R, N, 2]. What a
    # node and a neighbour are depends on the problem.
    edges: Callable[[Any, Any], Any]
    # The action sequence of a plan of an instance, without padding.
    encode_plan: Callable[[Any, Any], list[int]]
    # For an instance, a function that takes a plan to a local optimum.
    polisher: Callable[[Any], Callable[[Any], Any]] | None = None
    polish_kernel: str = ""  # the compiled kernel that the polisher needs


@dataclass(frozen=True)
class ActiveSearchRates:
    """Learning rate and imitation weight of EAS (Hottung et al. 2022)."""

    rate: float
    imitation: float


@dataclass(frozen=True)
class PublishedSearch:
    """Settings of the published search for instances up to a size (Chalumeau et al. 2023)."""

    components: int
    temperature: float
    parents: int = 8  # of 16
    max_size: float = math.inf  # cities or customers


@dataclass(frozen=True)
class SearchDefaults:
    """Settings of the search that depend on the problem."""

    strategy: str = "cmaes"  # where the policy has a latent space
    prefers_refine: bool = False  # whether `cmaes-refine` is the default on a fused engine
    # Active search: `eas-emb`, `eas-lay`, and `eas-lay` in turns with a beam. The TSP's by default.
    eas_emb: ActiveSearchRates = ActiveSearchRates(0.0032, 0.0058)
    eas_lay: ActiveSearchRates = ActiveSearchRates(0.00032, 0.012)
    sgbs_eas: ActiveSearchRates = ActiveSearchRates(0.000815, 0.006)
    # `cmaes-published`, by size: table of appendix D; the parents are those of the released code.
    published: tuple[PublishedSearch, ...] = (PublishedSearch(3, 0.1),)
    beam: tuple[int, int] = (4, 4)  # width and branching factor of SGBS
    max_learning_rate: float = 0.005  # of strategies that learn on the instance
    # From rules, batch, costs and actions: the costs that active search learns from; None: as they
    # are. Its rates are for lengths in the unit square.
    learning_cost: Callable[[Any, Any, Any, Any], Any] | None = None
    # Of the seconds on a CPU, for the search before the domain's own local search. On eight job
    # shops half and 0.15 gave gaps of 0.76 and 0.78 % in 10 s of one core.
    cpu_share: float = 0.5
    # Whether the policy can express every plan that a user may give, and so learn from it.
    learns_from_given_plans: bool = False
    # Whether a search learns from other sequences that spell the same plan (`Problem.views`).
    learns_from_views: bool = False


@dataclass(frozen=True)
class TrainingTraits:
    """What training may do with instances of a problem."""

    is_grid: bool = False  # sizes are jobs x machines, such as "20x15"; otherwise a number of nodes
    symmetric_copies: int = 1  # at most; 1: instances have no symmetries that training could use
    # Whether a plan may begin with any node and be read backwards, at equal cost.
    is_reversible: bool = False
    supports_attention_limit: bool = False  # whether a recipe may set `optimiser.spread`
    pads_plans: bool = False  # whether sequences have room that only some plans need
    has_neighbourhoods: bool = False  # whether regions of plans can be re-sampled in training
    has_fused_step: bool = False  # whether a step can be recorded as a CUDA graph
    vary: Callable[[Any, float, Any], Any] | None = (
        None  # replaces a share of a batch by other layouts
    )
    min_items: int = 2  # instances with fewer cities, customers or jobs have no decision
    # "module:class" that keeps user data on the device.
    store: str = "rhumbline.training.data.batches:BatchStore"


@dataclass(frozen=True)
class Domain:
    """Everything that is special about one problem."""

    name: str  # what instances call their problem
    instance: type[Any]
    plan: type[Any]
    problem: Problem[Any, Any]  # the standard rules
    policies: Mapping[str, PolicyFamily]  # by name in checkpoint headers; first: default
    files: FileFormats = FileFormats()
    # The instances of a Python object, or None if it is no instance of this problem.
    from_python: Callable[[Any], list[Any] | None] | None = None
    weights: str | None = None  # the shipped checkpoint that is taken by default
    plans: PlanTools | None = None
    # Prefixes that leave a region of each plan free, for LNS: a function such as `tour_prefixes`
    # (decoding.neighbourhoods), which says what it takes.
    neighbourhoods: Callable[..., Any] | None = None
    # A cheap feasible plan of an instance, made on the host in a fraction of a second. It is the
    # result of a search that is interrupted, or out of time, before the network has found one.
    construct: Callable[[Any], Plan] | None = None
    # How badly the positions that the policy sees reproduce the distances of an instance, from 0 to
    # 1; None: positions are not made from distances.
    plane_stress: Callable[[Any], float] | None = None
    # From an instance and a plan: an object that chooses regions of the plan, as instances of their
    # own, and puts plans of them back, such as `problems.cvrp.regions.RouteRegions`. A policy
    # solves them where the whole instance is too large for it.
    regions: Callable[[Any, Any], Any] | None = None
    recombines_routes: bool = False  # whether set partitioning can combine routes of several plans
    # Costs of a batch without the surcharges that guide the search; None: there are none.
    plain_cost: Callable[[Any, Any], Any] | None = None
    improver: str | None = None  # our own local search: what `--then auto` means
    search: SearchDefaults = SearchDefaults()
    training: TrainingTraits = TrainingTraits()
    draw: str | None = None  # "module:function" that draws a plan
    # Whether the plans of an instance differ in cost; if not, one attempt is enough. None: always.
    plans_differ: Callable[[Any], bool] | None = None

    def require(self, part: str, what: str) -> Any:
        """Return an optional part, such as "plans"; refuse `what` for a problem without it."""
        value = getattr(self, part)
        if value is None:
            self.refuse(what)
        return value

    def is_trivial(self, instance: Any) -> bool:
        """Return whether all plans of an instance cost the same, so that nothing is searched."""
        return self.plans_differ is not None and not self.plans_differ(instance)

    def refuse(self, what: str) -> NoReturn:
        """Raise: this problem does not support `what`."""
        raise InputError(f"{what} is not supported for {self.name}")
