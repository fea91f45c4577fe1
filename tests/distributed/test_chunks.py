"""Chunks depend on the order of the instances alone, and hold every instance once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhumbline.distributed import chunks
from rhumbline.distributed.chunks import cut_into_chunks
from rhumbline.errors import InputError
from rhumbline.problems.tsp import TSPInstance


def city_list(size: int, name: str = "x") -> TSPInstance:
    return TSPInstance(name, "EXACT_2D", xy=np.zeros((size, 2)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([4, 5, 6]), max_size=60), st.integers(1, 9), st.integers(1, 30))
def test_every_instance_is_in_one_chunk_of_its_size(sizes, length, window) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "TUNING", chunks.ChunkTuning(window=window))
        found = list(cut_into_chunks(map(city_list, sizes), length))
    assert sorted(place for chunk in found for place in chunk.places) == list(range(len(sizes)))
    assert [chunk.number for chunk in found] == list(range(len(found)))
    for chunk in found:
        assert len(chunk) <= length
        assert {sizes[place] for place in chunk.places} == {i.size for i in chunk.instances}
        assert len({i.size for i in chunk.instances}) == 1


def test_instances_are_taken_from_the_stream_only_as_chunks_are_asked_for() -> None:
    taken = []

    def stream():
        for number in range(1000):
            taken.append(number)
            yield city_list(5)

    next(cut_into_chunks(stream(), 10))
    assert len(taken) == 10


def test_a_mixed_folder_has_few_chunks() -> None:
    sizes = [4, 5, 6] * 20
    assert len(list(cut_into_chunks(map(city_list, sizes), 20))) == 3


def test_a_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        list(cut_into_chunks([city_list(5)], 0))
