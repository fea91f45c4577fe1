"""Weights in 16 bits: what is shipped, what tools/halve_weights.py writes, and what is read."""

from pathlib import Path

import pytest
import torch

from rhumbline.bench.methods import weights_digest
from rhumbline.checkpoint import (
    TrainingFacts,
    load_with_facts,
    read_tensor_file,
    save,
    shipped_checkpoints,
)
from rhumbline.errors import CheckpointError
from tools.halve_weights import halve_file

ABOUT = TrainingFacts("tsp", 100, 7, recipe="{}", validation={"greedy": 7.8})


@pytest.fixture
def path(tmp_path: Path, policy) -> Path:
    file = tmp_path / "mine.safetensors"
    save(file, policy, ABOUT)
    return file


@pytest.mark.parametrize("name", shipped_checkpoints())
def test_shipped_weights_have_16_bits(name: str) -> None:
    """All but single numbers of every checkpoint are stored in 16 bits, and read as float32."""
    path = shipped_checkpoints()[name]
    tensors, _ = read_tensor_file(path)
    wide = [key for key, tensor in tensors.items() if tensor.itemsize > 2 and tensor.numel() > 1]
    assert not wide
    policy, _ = load_with_facts(path)
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}


def test_a_halved_file_is_half_as_large_and_reads_as_before(path: Path, policy) -> None:
    """Each weight is within half a unit of the 11th bit; network and facts are the same."""
    before = path.stat().st_size
    error = halve_file(path)
    assert 0 < error < 2**-11
    assert path.stat().st_size < 0.6 * before  # the header does not shrink
    read, about = load_with_facts(path)
    assert about == ABOUT
    assert read.architecture == policy.architecture
    for name, exact in policy.state_dict().items():
        weight = read.state_dict()[name]
        assert weight.dtype == exact.dtype
        torch.testing.assert_close(weight, exact, rtol=2**-11, atol=2**-25)


def test_halving_again_changes_nothing(path: Path) -> None:
    """What has 16 bits is exact."""
    halve_file(path)
    content = path.read_bytes()
    assert halve_file(path) == 0.0
    assert path.read_bytes() == content


def test_weights_beyond_16_bits_are_refused(path: Path, make_policy) -> None:
    """70,000 is no float16; the tensor is named, and the file stays as it was."""
    policy = make_policy()
    with torch.no_grad():
        policy.decoder.key[0, 0] = 70_000.0
    save(path, policy, ABOUT)
    content = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"mine\.safetensors: .*'decoder\.key' .* 65,504"):
        halve_file(path)
    assert path.read_bytes() == content


def test_the_digest_is_that_of_the_values(path: Path, tmp_path: Path) -> None:
    """Weights in 16 bits and the float32 that is read from them count as the same."""
    exact = weights_digest(str(path), "tsp")
    halve_file(path)
    halved = weights_digest(str(path), "tsp")
    assert halved != exact
    wide = tmp_path / "wide.safetensors"
    save(wide, load_with_facts(path)[0], ABOUT)
    assert weights_digest(str(wide), "tsp") == halved
