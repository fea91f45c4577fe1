"""Defaults that depend on the task: the strategy, step sizes, temperatures and starts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rhumbline.search.task import Task

Temperatures = Sequence[tuple[float, float]]  # pairs of most nodes and temperature, ascending


@dataclass(frozen=True)
class DefaultsTuning:
    """Defaults that were chosen by experiments (research/notebooks/experiments.md)."""

    # The longer a tour, the more decisions noise can spoil: the best of 0.1 to 1 on validation
    # instances (research/notebooks/training.md). Chalumeau et al. 2023 take 1 at 100 cities and
    # 0.1 beyond.
    temperatures: Temperatures = ((100.0, 1.0), (150.0, 0.5), (250.0, 0.3), (math.inf, 0.2))
    starts_cpu: int = 25  # by validation instances of 100 and 200 nodes
    max_small_nodes: int = 300  # larger instances get too few generations to learn from
    step_size: int = 16  # attempts, where an attempt is one rollout from each start
    rollouts_per_step_cuda: int = 64  # where an attempt is a single rollout
    # Plain torch is faster in large batches (research/notebooks/jobshop.md).
    rollouts_per_step_cpu: int = 256


TUNING = DefaultsTuning()


def default_step_size(task: Task) -> int:
    """Return the latents of a step on each copy, for strategies without a number of their own."""
    if task.starts.shape[1] > 1:
        return TUNING.step_size
    if task.device.type == "cuda":
        return TUNING.rollouts_per_step_cuda
    return TUNING.rollouts_per_step_cpu


def default_temperature(task: Task, table: Temperatures = TUNING.temperatures) -> float:
    """Return the temperature for the size of the instances."""
    nodes = task.problem.action_count(task.batch)
    for most, temperature in table:
        if nodes <= most + 1:  # a depot does not count
            return temperature
    raise AssertionError("a table of temperatures ends with infinitely many nodes")


def temperature_or_default(
    task: Task, wanted: float | None, table: Temperatures = TUNING.temperatures
) -> float:
    """Return the wanted temperature, or the default if it is None."""
    return default_temperature(task, table) if wanted is None else wanted


def default_start_share(task: Task) -> float:
    """Return the share of an instance's starts to try once all were tried.

    On a CPU the time grows with every rollout, so more latents from fewer starts find more. A GPU
    runs all rollouts of an instance at once, and a quarter of them takes as long.
    """
    if task.device.type == "cuda":
        return 1.0
    starts = task.starts.shape[1]
    return min(1.0, TUNING.starts_cpu / starts)


def is_large(task: Task) -> bool:
    """Return whether instances are too large to learn from: time allows few generations."""
    nodes = task.problem.action_count(task.batch)
    max_nodes = TUNING.max_small_nodes + 1  # a depot does not count
    return nodes > max_nodes


def is_time_critical(task: Task) -> bool:
    """Return whether a generation from all starts takes many seconds: large instances on a CPU."""
    return task.device.type == "cpu" and is_large(task)
