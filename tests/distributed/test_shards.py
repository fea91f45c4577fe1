"""Shards share every chunk out once; job arrays are numbered as Slurm and Kubernetes do it."""

import pytest

from rhumbline.distributed.shards import Shard, parse_shard
from rhumbline.errors import InputError


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_chunk_belongs_to_one_shard(count) -> None:
    shards = [Shard(index, count) for index in range(1, count + 1)]
    for chunk in range(50):
        assert sum(shard.takes(chunk) for shard in shards) == 1


def slurm(index: int, first: int, last: int, step: int = 1, count: int | None = None) -> dict:
    return {
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(last),
        "SLURM_ARRAY_TASK_STEP": str(step),
        "SLURM_ARRAY_TASK_COUNT": str(count or (last - first) // step + 1),
    }


@pytest.mark.parametrize(
    ("text", "count", "environment", "expected"),
    [
        (None, None, slurm(3, 0, 9), Shard(1, 1)),  # never without being asked
        ("2/8", None, {}, Shard(2, 8)),
        ("2/8", 8, {}, Shard(2, 8)),
        ("auto", None, slurm(0, 0, 9), Shard(1, 10)),
        ("auto", None, slurm(5, 1, 5), Shard(5, 5)),
        ("auto", 4, slurm(13, 10, 19, 3), Shard(2, 4)),
        ("auto", 6, {"JOB_COMPLETION_INDEX": "5"}, Shard(6, 6)),
    ],
)
def test_parse_shard(text, count, environment, expected) -> None:
    assert parse_shard(text, count, environment) == expected


@pytest.mark.parametrize(
    ("text", "count", "environment", "message"),
    [
        ("0/8", None, {}, "expected 1/8 to 8/8"),
        ("9/8", None, {}, "expected 1/8 to 8/8"),
        ("half", None, {}, "expected I/N such as 2/8, or auto"),
        ("2/8", 9, {}, "disagree"),
        (None, 4, {}, "--shards is for --shard auto"),
        ("auto", None, {}, "finds neither"),
        ("auto", None, {"JOB_COMPLETION_INDEX": "1"}, "needs --shards N"),
        ("auto", 4, {"JOB_COMPLETION_INDEX": "4"}, "there are 4 shards"),
        ("auto", 3, slurm(1, 0, 9), "the Slurm array has 10 tasks"),
        ("auto", None, slurm(1, 0, 9, count=4), "has gaps"),
        ("auto", None, {"SLURM_ARRAY_TASK_ID": "x"}, "expected a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(text, count, environment, message) -> None:
    with pytest.raises(InputError, match=message):
        parse_shard(text, count, environment)
