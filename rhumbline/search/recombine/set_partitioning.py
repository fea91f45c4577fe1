"""Set partitioning: which of some routes serve every customer once, at the least cost.

Prices of customers say what a route is worth (Lagrange multipliers), and a beam picks routes,
always for the customer with the fewest left to choose from. Three engines: batched tensor
operations, kernels for both on a GPU, and on a CPU a compiled beam for each instance, which has
prices of its own.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rhumbline import kernels
from rhumbline.record import Record
from rhumbline.search.plan_sets.diverse import gather_per_instance, mark_repeats

ROUNDS, PACE, MOMENTUM, PATIENCE = (
    200,
    0.7,
    0.7,
    20,
)  # of prices; the pace is halved after so many rounds in vain
TINY = 1e-6
CONSIDERED = 4  # candidates for each place in the beam: many serve the same customers
TOGETHER = 1 << 26  # numbers of a beam's step that are worked on at once
KEPT = 128  # routes for each place of the beam that a GPU's kernel lists


@dataclass(frozen=True)
class PartitionProblem(Record):
    """Routes, and what is wanted of them."""

    served: Float[Tensor, "B R n"]  # 1 for the customers of each
    code: Int[Tensor, "B R"]  # of these customers
    cost: Float[Tensor, "B R"]  # relative to the best plan; infinite for a gap
    best: Bool[Tensor, "B R"]  # those of the best plan
    depth: Int[Tensor, "B"]  # routes of a plan, at most
    ceiling: Float[Tensor, "B"]  # that a plan must cost less than


PartitionEngine = Literal["tensors", "kernels", "compiled"]


def instance_slices(count: int, numbers: int, most: int | None = None) -> list[slice]:
    """Instances that are worked on at once, where each takes so many numbers."""
    some = min(max(1, TOGETHER // numbers), most or count)
    return [slice(at, at + some) for at in range(0, count, some)]


def solve_partition(
    choice: PartitionProblem, width: int, engine: PartitionEngine
) -> Int[Tensor, "B q"]:
    """The routes of the best plan that a beam of this width finds, -1 behind the last."""
    if engine == "compiled":
        return solve_compiled(choice, width)
    return solve_batched(choice, width, engine == "kernels")


def best_partition_engine(device: torch.device, customers: int, wanted: str) -> PartitionEngine:
    """What serves there, unless plain torch is wanted; kernels hold as many customers as one of
    their tiles.
    """
    if wanted == "torch" or kernels.why_not(
        "cvrp", device, customers + 1, largest=kernels.MAX_TILE_NODES + 1
    ):
        return "tensors"
    return "kernels" if device.type == "cuda" else "compiled"


def solve_compiled(choice: PartitionProblem, width: int) -> Int[Tensor, "B q"]:
    """A thread for each instance."""
    from rhumbline.kernels.numba.local_search import launch as local_moves

    descent = (ROUNDS, PACE, MOMENTUM, PATIENCE)
    customers = choice.served.shape[2]
    offers = [
        sparse_routes(*rows)
        for rows in zip(choice.served, choice.code, choice.cost, choice.best, strict=True)
    ]

    def find(offer: tuple[list[np.ndarray], np.ndarray], ceiling: float, depth: int) -> list[int]:
        return local_moves.find_cheapest_partition(
            *offer, customers, ceiling, descent, depth, width, CONSIDERED
        )

    with ThreadPoolExecutor(
        len(offers)
    ) as pool:  # no tensors there: each thread would have threads of its own
        found = list(pool.map(find, offers, choice.ceiling.tolist(), choice.depth.tolist()))
    longest = max(map(len, found)) + 1
    return torch.tensor([[*chosen, *[-1] * (longest - len(chosen))] for chosen in found])


def sparse_routes(
    served: Float[Tensor, "R n"],
    code: Int[Tensor, "R"],
    cost: Float[Tensor, "R"],
    best: Bool[Tensor, "R"],
) -> tuple[list[np.ndarray], np.ndarray]:
    """What `local.cheapest_partition` wants to know of the routes of one instance; a gap serves
    nobody.
    """
    real = cost.isfinite()
    owner, members = (served * real[:, None]).nonzero(as_tuple=True)
    begins = torch.nn.functional.pad(owner.bincount(minlength=len(cost)).cumsum(0), (1, 0))
    price = cost.double().masked_fill(~real, 1.0)
    return [x.numpy() for x in (begins, members.int(), price, code.contiguous())], (
        best & real
    ).numpy()


def solve_batched(choice: PartitionProblem, width: int, packed: bool) -> Int[Tensor, "B q"]:
    """By tensor operations or kernels; the beams of as many instances at once as there is memory
    for.
    """
    served, (count, routes) = choice.served, choice.cost.shape
    price = (customer_prices_by_kernel if packed else customer_prices)(
        choice.cost, served, choice.best
    )
    value = choice.cost - route_price_sums(served, price)
    goal = choice.ceiling - price.sum(1)
    most = goal - value.clamp(max=0.0).sum(1)  # what is to come may be worth so much
    kind = PackedRoutes if packed else DenseRoutes
    parts = instance_slices(count, width * (KEPT if packed else routes))
    offers = [kind.of(value[rows], served[rows], choice.code[rows], most[rows]) for rows in parts]
    found = [
        beam_partition(offer, choice.depth[rows], width)
        for offer, rows in zip(offers, parts, strict=True)
    ]
    longest = max(x.shape[1] for _, x in found)
    dear = torch.cat([total for total, _ in found]) >= goal
    chosen = torch.cat(
        [torch.nn.functional.pad(x, (0, longest - x.shape[1]), value=-1) for _, x in found]
    )
    return chosen.masked_fill(dear[:, None], -1)


def customer_prices(
    cost: Float[Tensor, "B R"], served: Float[Tensor, "B R n"], best: Bool[Tensor, "B R"]
) -> Float[Tensor, "B n"]:
    """Prices of customers that make a lower bound of all plans high, where the best one costs 1.
    By subgradients.
    """
    price = initial_prices(cost, served, best)
    way = torch.zeros_like(served[:, 0])
    kept = price
    bound = torch.full_like(cost[:, :1], -torch.inf)
    pace = torch.full_like(bound, PACE)
    vain = torch.zeros_like(bound)
    for _ in range(ROUNDS):
        value = cost - route_price_sums(served, price)
        low = price.sum(1, keepdim=True) + value.clamp(max=0.0).sum(1, keepdim=True)
        higher = low > bound
        kept = torch.where(higher, price, kept)
        bound = torch.maximum(low, bound)
        vain = (vain + 1.0).masked_fill(higher | (vain + 1.0 > PATIENCE), 0.0)
        pace = torch.where((vain == 0) & ~higher, 0.5 * pace, pace)
        lack = 1.0 - ((value < 0).float()[:, None] @ served)[:, 0]
        way = MOMENTUM * way + lack
        price = (
            price
            + pace * (1.0 - low).clamp(min=0.0) / (way.square().sum(1, keepdim=True) + TINY) * way
        )
    return kept


def initial_prices(
    cost: Float[Tensor, "B R"], served: Float[Tensor, "B R n"], best: Bool[Tensor, "B R"]
) -> Float[Tensor, "B n"]:
    """Customers of a route in the best plan share its cost; there may be several best plans."""
    share = cost.masked_fill(~best, 0.0) / served.sum(2).clamp(min=1.0)
    sums = (torch.stack([share, best.float()], 1).double() @ served.double()).float()
    return sums[:, 0] / sums[:, 1].clamp(min=1.0)


def customer_prices_by_kernel(
    cost: Float[Tensor, "B R"], served: Float[Tensor, "B R n"], best: Bool[Tensor, "B R"]
) -> Float[Tensor, "B n"]:
    """The same in one launch; sums of other order, so that after some rounds they are others."""
    from rhumbline.kernels.triton import set_partitioning as triton_partitioning

    descent = (ROUNDS, PACE, MOMENTUM, PATIENCE, TINY)
    return triton_partitioning.launch_prices(
        *list_members(served), cost.contiguous(), initial_prices(cost, served, best), *descent
    )


def list_members(served: Float[Tensor, "B R n"]) -> tuple[Int[Tensor, "B L R"], Int[Tensor, "B R"]]:
    """The customers of each route, one below the other, and how many they are."""
    (count, routes, _), size = served.shape, served.sum(2).int()
    b, r, who = served.nonzero(as_tuple=True)
    before = (size.flatten().cumsum(0) - size.flatten())[
        b * routes + r
    ]  # customers of the routes that come before
    place = torch.arange(len(who), device=served.device) - before
    members = size.new_zeros(count, int(size.amax()), routes, dtype=torch.int16)
    members[b, place, r] = who.short()
    return members, size


def route_price_sums(
    served: Float[Tensor, "B R n"], price: Float[Tensor, "B n"]
) -> Float[Tensor, "B R"]:
    """What the customers of each route pay. As a product of matrices its last bits would depend
    on the batch.
    """
    return (served * price[:, None]).sum(2)


class RouteTable(Protocol):
    """Routes to choose from, however who is served is kept."""

    @property
    def value(self) -> Float[Tensor, "B R"]:
        """What each is worth: those below 0 pay."""
        ...

    @property
    def code(self) -> Int[Tensor, "B R"]:
        """Of the customers of each."""
        ...

    def nobody(self) -> Tensor:
        """Who is served at the first place of a beam, [B, 1, ...]."""
        ...

    def whole(self, cover: Tensor) -> Bool[Tensor, "B W"]:
        """Whether everybody is."""
        ...

    def joined(self, cover: Tensor, route: Int[Tensor, "B W"]) -> Tensor:
        """Who is, with a route more at each place."""
        ...

    def additions(self, cover: Tensor, score: Float[Tensor, "B W"]) -> tuple[Tensor, Tensor | None]:
        """Routes for whoever has the fewest to choose from at each place [B, W, K]: sums, infinite
        where there is none.

        And which they are, None if each has its own column.
        """
        ...

    def named(self, chosen: Int[Tensor, "B q"]) -> Int[Tensor, "B q"]:
        """Routes by their numbers when they were offered."""
        ...


@dataclass(frozen=True)
class DenseRoutes(Record):
    """Ones and zeros, for tensor operations."""

    value: Float[Tensor, "B R"]
    served: Float[Tensor, "B R n"]
    across: Float[Tensor, "B n R"]
    code: Int[Tensor, "B R"]
    most: Float[Tensor, "B"]  # sums of values from here on make no better plan

    @classmethod
    def of(cls, value: Tensor, served: Tensor, code: Tensor, most: Tensor) -> Self:
        """In numbers of half the size where that is faster: exact up to 256, and it is the least
        count that matters.
        """
        served = served.bfloat16() if served.is_cuda else served
        return cls(value, served, served.mT.contiguous(), code, most)

    def nobody(self) -> Tensor:
        """Zeros."""
        return torch.zeros_like(self.served[:, :1])

    def whole(self, cover: Tensor) -> Bool[Tensor, "B W"]:
        """As many ones as customers."""
        return cover.sum(2, dtype=torch.float32) == cover.shape[2]

    def joined(self, cover: Tensor, route: Int[Tensor, "B W"]) -> Tensor:
        """No one is served twice."""
        return cover + gather_per_instance(self.served, route)

    def additions(self, cover: Tensor, score: Float[Tensor, "B W"]) -> tuple[Tensor, None]:
        """All routes at all places."""
        sums = score[..., None] + self.value[:, None]
        free = (cover @ self.across == 0).logical_and_(sums < self.most[:, None, None])
        choices = (free.to(cover.dtype) @ self.served).masked_fill_(cover > 0, torch.inf)
        free &= gather_per_instance(self.across, choices.argmin(2)) > 0
        return sums.masked_fill_(free.logical_not_(), torch.inf), None

    def named(self, chosen: Int[Tensor, "B q"]) -> Int[Tensor, "B q"]:
        """They have kept them."""
        return chosen


@dataclass(frozen=True)
class PackedRoutes(Record):
    """Bits of words of 32 besides, and routes in order of their values, for the kernel."""

    value: Float[Tensor, "B R"]
    served: Float[Tensor, "B R C"]  # columns of nobody fill it up to a power of two
    words: Int[Tensor, "B M R"]
    code: Int[Tensor, "B R"]
    most: Float[Tensor, "B"]
    order: Int[Tensor, "B R"]
    full: Int[Tensor, "M"]  # words of all customers
    customers: int

    @classmethod
    def of(cls, value: Tensor, served: Tensor, code: Tensor, most: Tensor) -> Self:
        """Cheap ones first: the kernel lists the first that it finds."""
        value, order = value.sort(dim=1, stable=True)
        customers = served.shape[2]
        columns = max(32, 1 << (customers - 1).bit_length())
        served = torch.nn.functional.pad(
            gather_per_instance(served, order), (0, columns - customers)
        )
        bits = served.long().unflatten(2, (-1, 32)) << torch.arange(32, device=served.device)
        words = to_signed_words(bits.sum(3)).mT.contiguous()
        column = torch.arange(columns, device=served.device).view(-1, 32)
        full = to_signed_words(((column < customers).long() << column % 32).sum(1))
        small = served.bfloat16() if served.is_cuda else served
        return cls(value, small, words, code.gather(1, order), most, order, full, customers)

    def nobody(self) -> Tensor:
        """Words of zeros."""
        return torch.zeros_like(self.words[..., 0])[:, None]

    def whole(self, cover: Tensor) -> Bool[Tensor, "B W"]:
        """Whether all bits of customers are set."""
        return (cover == self.full).all(2)

    def joined(self, cover: Tensor, route: Int[Tensor, "B W"]) -> Tensor:
        """Bits of both."""
        return cover | gather_per_instance(self.words.mT, route)

    def additions(self, cover: Tensor, score: Float[Tensor, "B W"]) -> tuple[Tensor, Tensor]:
        """The best of each place."""
        from rhumbline.kernels.triton import set_partitioning as triton_partitioning

        tables = (self.words, self.served, self.value, self.most)
        return triton_partitioning.launch_additions(
            cover, score.contiguous(), *tables, self.customers, KEPT
        )

    def named(self, chosen: Int[Tensor, "B q"]) -> Int[Tensor, "B q"]:
        """Before they were put in order."""
        return self.order.gather(1, chosen.clamp(min=0)).masked_fill(chosen < 0, -1)


def to_signed_words(words: Int[Tensor, "*w"]) -> Int[Tensor, "*w"]:
    """Words of 32 bits as numbers of 32 bits, of which the last one is a sign."""
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


@dataclass(frozen=True)
class PartialCover(Record):
    """Places of the beam: routes that have no customer in common."""

    cover: Tensor  # who is served, as the offer keeps it
    score: Float[Tensor, "B W"]
    code: Int[Tensor, "B W"]  # of these customers


def beam_partition(
    offer: RouteTable, depth: Int[Tensor, "B"], width: int
) -> tuple[Float[Tensor, "B"], Int[Tensor, "B q"]]:
    """The least sum of values of up to `depth` routes that serve everybody once, and these routes,
    -1 behind the last.

    A route is always added for a customer who has the fewest to choose from, so that dead ends are
    seen early. Where nothing is found the sum is infinite.
    """
    none = torch.zeros_like(offer.value[:, :1])
    device = offer.value.device
    state = PartialCover(offer.nobody(), none, torch.zeros_like(offer.code[:, :1]))
    total = none[:, 0] + torch.inf
    last = torch.zeros(2, len(none), dtype=torch.int64, device=device)
    steps = list[tuple[Tensor, Tensor]]()
    for deep in range(int(depth.amax())):
        if device.type == "cpu" and not state.score.isfinite().any():
            break  # a GPU would wait for the answer
        state, parent, route = extend_beam(state, offer, width)
        steps.append((parent, route))
        whole = offer.whole(state.cover)
        least, at = state.score.masked_fill(~whole | (deep >= depth)[:, None], torch.inf).min(1)
        last = torch.where(least < total, torch.stack([torch.full_like(at, deep), at]), last)
        total = torch.minimum(total, least)
        state = replace(state, score=state.score.masked_fill(whole, torch.inf))
    return total, offer.named(trace_back(steps, last, total))


def extend_beam(
    state: PartialCover, offer: RouteTable, width: int
) -> tuple[PartialCover, Int[Tensor, "B W"], Int[Tensor, "B W"]]:
    """The best places with one route more, no two for the same customers; where they come from,
    and by which route.
    """
    sums, added = offer.additions(state.cover, state.score)
    score, where = sums.flatten(1).topk(
        min(CONSIDERED * width, sums[0].numel()), dim=1, largest=False
    )
    parent = where // sums.shape[2]
    column = where % sums.shape[2]
    route = column if added is None else added.flatten(1).gather(1, where).long()
    codes = state.code.gather(1, parent) + offer.code.gather(1, route)
    score, kept = (
        x[:, :width]
        for x in score.masked_fill(mark_repeats(codes), torch.inf).sort(dim=1, stable=True)
    )
    parent, route, codes = (x.gather(1, kept) for x in (parent, route, codes))
    return (
        PartialCover(offer.joined(gather_per_instance(state.cover, parent), route), score, codes),
        parent,
        route,
    )


def trace_back(
    steps: list[tuple[Tensor, Tensor]], last: Int[Tensor, "2 B"], total: Float[Tensor, "B"]
) -> Int[Tensor, "B q"]:
    """The routes on the way to those that were last, given at which step and place."""
    (depth, at), chosen = last, list[Tensor]()
    for deep in reversed(range(len(steps))):
        there = (deep <= depth) & total.isfinite()
        place = at[:, None].clamp(
            max=steps[deep][0].shape[1] - 1
        )  # of no account where it is too large
        parent, route = (x.gather(1, place)[:, 0] for x in steps[deep])
        chosen.append(torch.where(there, route, -1))
        at = torch.where(there, parent, at)
    return torch.stack(chosen[::-1], 1)
