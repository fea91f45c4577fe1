"""A problem as an outside package has it: rings of points, solved by the rules of the TSP.

It has its own instances, files, datasets and policy, and no plan tools, kernels or pictures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rhumbline.domain import DatasetFormat, Domain, FileFormats, PolicyFamily
from rhumbline.formats.dataset import load_tensors, write_arrays
from rhumbline.policies.attention.encoder import Architecture
from rhumbline.policies.tsp import TSPPolicy
from rhumbline.problems.tsp import TSP, Tour, TSPInstance

TINY = Architecture(16, 2, 1, 16, 4)


@dataclass(frozen=True)
class RingInstance:
    """Points to be joined to a ring."""

    name: str
    xy: np.ndarray
    best_known: float | None = None
    problem: str = "ring"
    details: str = "ring"
    has_integer_costs: bool = False

    @property
    def size(self) -> int:
        return len(self.xy)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def tsp(self) -> TSPInstance:
        return TSPInstance(self.name, "EXACT_2D", xy=self.xy)


@dataclass(frozen=True)
class Ring:
    """The points in their order, from 0."""

    order: tuple[int, ...]

    def check(self, instance: RingInstance) -> None:
        Tour(self.order).check(instance.tsp)

    def cost(self, instance: RingInstance) -> float:
        return Tour(self.order).cost(instance.tsp)

    def to_file_numbers(self, instance: RingInstance) -> list[int]:
        return list(self.order)


class RingRules(TSP):
    """The rules of the TSP under another name."""

    name = solves = "ring"

    def collate(self, instances: Any) -> Any:
        return super().collate([instance.tsp for instance in instances])

    def item_count(self, instance: Any) -> int:
        return instance.size

    def decode(self, instance: RingInstance, actions: Any) -> Ring:
        return Ring(super().decode(instance.tsp, actions).order)


class RingPolicy(TSPPolicy):
    """A network for rings, which checkpoints call by the name of its architecture."""

    problem = "ring-net"


def read_ring(path: Path) -> RingInstance:
    return RingInstance(path.stem, np.loadtxt(path, ndmin=2))


def load_rings(path: Path) -> list[RingInstance]:
    rows = load_tensors(path)["xy"].astype(np.float64)
    return [RingInstance(f"{path.stem}-{i}", xy) for i, xy in enumerate(rows, 1)]


def save_rings(path: Path, batch: Any, about: dict[str, str]) -> None:
    xy = batch.xy.numpy()
    write_arrays(path, {"xy": xy, "ring": np.ones(len(xy))}, about)


def parse_ring(numbers: Any, instance: RingInstance) -> Ring:
    return Ring(tuple(int(number) for number in numbers))


def ring_from_python(source: Any) -> list[RingInstance] | None:
    if isinstance(source, Mapping) and set(source) == {"ring"}:
        return [RingInstance("mapping", np.asarray(source["ring"], dtype=np.float64))]
    return None


RULES = RingRules()
RING = Domain(
    name="ring",
    instance=RingInstance,
    plan=Ring,
    problem=RULES,
    policies={"ring-net": PolicyFamily(Architecture, RingPolicy, RULES)},
    files=FileFormats(
        readers={".ring": read_ring},
        dataset=DatasetFormat(frozenset({"xy", "ring"}), load_rings, save_rings),
        parse_plan=parse_ring,
    ),
    from_python=ring_from_python,
)
