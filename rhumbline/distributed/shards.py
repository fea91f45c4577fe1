"""Which part of the input this call solves, when several independent calls share the work.

A shard is every N-th chunk. Slurm and Kubernetes give each task of a job array its number.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rhumbline.errors import InputError


@dataclass(frozen=True)
class ArrayVariables:
    """Names of the environment variables that tell a task its place in a job array."""

    slurm_index: str = "SLURM_ARRAY_TASK_ID"
    slurm_first: str = "SLURM_ARRAY_TASK_MIN"
    slurm_last: str = "SLURM_ARRAY_TASK_MAX"
    slurm_step: str = "SLURM_ARRAY_TASK_STEP"
    slurm_count: str = "SLURM_ARRAY_TASK_COUNT"
    kubernetes_index: str = "JOB_COMPLETION_INDEX"


VARIABLES = ArrayVariables()


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`, counted from 1; by default everything."""

    index: int = 1
    count: int = 1

    def takes(self, chunk_number: int) -> bool:
        """Return whether a chunk belongs to this shard."""
        return chunk_number % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(
    text: str | None, count: int | None = None, environment: Mapping[str, str] = os.environ
) -> Shard:
    """Return the shard of `--shard`: `2/8`, or `auto` for the number that a job array gives.

    `count` is `--shards`, which `auto` needs on Kubernetes. Without `--shard` it is everything.
    """
    if text is None:
        if count is not None:
            raise InputError("--shards is for --shard auto; give both, or --shard I/N")
        return Shard()
    if text == "auto":
        return shard_of_job_array(count, environment)
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not found:
        raise InputError(f"--shard is '{text[:30]}', expected I/N such as 2/8, or auto")
    index = int(found[1])
    shard = Shard(index, int(found[2]))
    if not 1 <= shard.index <= shard.count:
        raise InputError(
            f"--shard is {shard}, expected 1/{shard.count} to {shard.count}/{shard.count}"
        )
    if count not in (None, shard.count):
        raise InputError(f"--shard {shard} and --shards {count} disagree; leave --shards out")
    return shard


def shard_of_job_array(count: int | None, environment: Mapping[str, str]) -> Shard:
    """Return the shard that the variables of Slurm or Kubernetes give."""
    slurm_index = VARIABLES.slurm_index
    kubernetes_index = VARIABLES.kubernetes_index
    if slurm_index in environment:
        return shard_of_slurm(count, environment)
    if kubernetes_index in environment:
        if count is None:
            raise InputError("on Kubernetes --shard auto needs --shards N, the job's completions")
        index = read_number(environment, kubernetes_index)
        if index >= count:
            raise InputError(f"{kubernetes_index} is {index}, but there are {count} shards")
        return Shard(index + 1, count)
    slurm = f"{slurm_index} (a Slurm array)"
    kubernetes = f"{kubernetes_index} (an indexed Kubernetes job)"
    raise InputError(f"--shard auto finds neither {slurm} nor {kubernetes}; give --shard I/N")


def shard_of_slurm(count: int | None, environment: Mapping[str, str]) -> Shard:
    """Return the shard of a task of a Slurm array, whatever its first number and its step are."""
    index = read_number(environment, VARIABLES.slurm_index)
    first = read_number(environment, VARIABLES.slurm_first)
    last = read_number(environment, VARIABLES.slurm_last)
    step = 1
    if VARIABLES.slurm_step in environment:
        step = read_number(environment, VARIABLES.slurm_step)
    if step < 1 or (index - first) % step:
        name = VARIABLES.slurm_index
        raise InputError(f"{name} is {index}, which is no step of {step} from {first}")
    total = (last - first) // step + 1
    # An array such as 1,5,9-12 has gaps; only its count says how many tasks there are.
    tasks = total
    if VARIABLES.slurm_count in environment:
        tasks = read_number(environment, VARIABLES.slurm_count)
    if tasks != total:
        gaps = f"the Slurm array from {first} to {last} has gaps"
        raise InputError(f"{gaps}, so --shard auto cannot number its tasks; give --shard I/N")
    if count not in (None, total):
        raise InputError(f"--shards is {count}, but the Slurm array has {total} tasks")
    number = (index - first) // step
    return Shard(number + 1, total)


def read_number(environment: Mapping[str, str], name: str) -> int:
    """Return a variable that holds a whole number."""
    text = environment.get(name, "")
    if not re.fullmatch(r"\d{1,9}", text):
        raise InputError(f"{name} is '{text[:30]}', expected a whole number; give --shard I/N")
    return int(text)
