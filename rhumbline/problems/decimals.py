"""Decimals as whole numbers: the solvers count loads and time in integers.

Loads are scaled exactly, because the cost of routes does not depend on their unit. The makespan of
a job shop does, so that durations with decimals are refused with the factor to use.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any, NoReturn, TypeGuard

import numpy as np

from rhumbline.errors import InputError, shorten


@dataclass(frozen=True)
class DecimalLimits:
    """The largest numbers that scaling may give."""

    max_factor: int = 10**6  # more digits than that are noise of floating-point sums
    max_capacity: int = 10**9  # the kernels count loads in 32 bits


LIMITS = DecimalLimits()


@dataclass(frozen=True)
class Loads:
    """Demands and capacity as whole numbers: those of the user times `factor`."""

    demands: tuple[int, ...]
    capacity: int
    factor: int = 1


def common_factor(numbers: Iterable[object]) -> int | None:
    """Return the least factor that makes finite decimals whole; None if it exceeds the limit."""
    factor = 1
    for number in numbers:
        factor = lcm(factor, to_fraction(number).denominator)
        if factor > LIMITS.max_factor:
            return None
    return factor


def to_fraction(number: object) -> Fraction:
    """Return the decimal that a number is written as: 0.1 is a tenth, not the nearest double."""
    if isinstance(number, Fraction):
        return number
    if isinstance(number, int | np.integer):
        return Fraction(int(number))
    return Fraction(Decimal(str(number)))


def scale_loads(name: str, demands: Sequence[Any] | np.ndarray, capacity: Any) -> Loads:
    """Return finite demands of the customers and a capacity as whole numbers, scaled if need be."""
    if are_whole(demands) and isinstance(capacity, int | np.integer):
        whole = demands.tolist()  # the way over fractions takes 20 times as long
        return Loads(tuple(whole), int(capacity))
    numbers = [*demands, capacity]
    factor = common_factor(numbers)
    if factor is None:
        refuse_loads(name, numbers)
    scaled = [int(to_fraction(number) * factor) for number in numbers]
    loads = Loads(tuple(scaled[:-1]), scaled[-1], factor)
    if factor > 1 and loads.capacity > LIMITS.max_capacity:
        found = f"{name}: loads with these decimals are counted in units of 1/{factor}"
        shown = number_text(capacity)
        most = f"{shown} is then more than {LIMITS.max_capacity:,} of them"
        remedy = "round the demands or use a larger unit"
        raise InputError(f"{found}, and the capacity {most}; {remedy}")
    return loads


def number_text(number: Any) -> str:
    """Return a number for a message, shortened if it has hundreds of digits."""
    if isinstance(number, int):
        return shorten(number)
    text = str(number)
    return shorten(text)


def are_whole(demands: Sequence[Any] | np.ndarray) -> TypeGuard[np.ndarray]:
    """Return whether demands are an array of integers."""
    return isinstance(demands, np.ndarray) and demands.dtype.kind in "iu"


def refuse_loads(name: str, numbers: Sequence[Any]) -> NoReturn:
    """Raise at loads whose decimals have no common factor within the limit."""
    unscalable = [number for number in numbers if common_factor([number]) is None]
    example = number_text(unscalable[0] if unscalable else numbers[0])
    found = f"{name}: demands and capacity such as {example} have too many decimals"
    remedy = "round them, for example to 3 decimals"
    raise InputError(f"{found} to be counted exactly; {remedy}")


def format_load(load: int, factor: int) -> str:
    """Return a load in the user's own unit."""
    if factor == 1:
        return shorten(load)
    return f"{load / factor:.10g}"


def power_of_ten(numbers: Iterable[object]) -> int | None:
    """Return the least power of ten that makes finite decimals whole; None beyond the limit."""
    power = 1
    wanted = common_factor(numbers)
    while wanted is not None and power % wanted:
        power *= 10
    if wanted is None or power > LIMITS.max_factor:
        return None
    return power


def advise_scaling(what: str, numbers: Iterable[object]) -> str:
    """Return what to do with decimals of a quantity that must be whole, such as durations."""
    power = power_of_ten(numbers)
    if power is None:
        return f"round the {what}, then scale them all by a power of ten"
    return f"scale all {what} by {power} (costs are then in units of 1/{power})"
