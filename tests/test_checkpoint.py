"""Checkpoints: a round trip loses nothing, and errors name the file that cannot be read."""

import json
import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rhumbline import checkpoint
from rhumbline.checkpoint import (
    TrainingFacts,
    find_checkpoint,
    load,
    load_with_facts,
    read_tensor_file,
    save,
    write_tensor_file,
)
from rhumbline.errors import CheckpointError, InputError
from rhumbline.problems.tsp import TSP

ABOUT = TrainingFacts(
    "tsp", 100, 7, recipe="{}", validation={"greedy": 7.8}, versions={"torch": "2"}
)


@pytest.fixture
def path(tmp_path: Path, policy) -> Path:
    file = tmp_path / "mine.safetensors"
    save(file, policy, ABOUT)
    return file


@pytest.mark.parametrize(
    ("about", "words", "largest"),
    [
        (TrainingFacts("tsp", 100), "100", 100),
        (TrainingFacts("cvrp", 100, recipe='{"sizes": [80, 50, 200, 127]}'), "50 to 200", 200),
        (
            TrainingFacts("jssp", "10x10", recipe='{"sizes": ["20x15", "6x6", "10x10"]}'),
            "6x6 to 20x15",
            300,
        ),
        (TrainingFacts("tsp", 60, recipe='{"sizes": []}'), "60", 60),
        (TrainingFacts("tsp", 60, recipe='{"sizes": [80]}'), "80", 80),
        (TrainingFacts("tsp", 60, recipe="prototype"), "60", 60),
        (TrainingFacts("tsp", 60, recipe="null"), "60", 60),
    ],
)
def test_training_sizes(about: TrainingFacts, words: str, largest: int) -> None:
    """One size, or the range of a recipe with several in any order; and the nodes of the
    largest.
    """
    assert (about.trained_at, about.largest) == (words, largest)


def test_round_trip_keeps_every_bit(path: Path, policy) -> None:
    """Weights, architecture, amplification and facts survive a round trip; logits are equal bit for
    bit.
    """
    read, about = load_with_facts(path)
    assert about == ABOUT
    assert read.architecture == policy.architecture
    for name, x in policy.state_dict().items():
        assert torch.equal(read.state_dict()[name], x), name
    batch = TSP().sample(2, 6, torch.Generator().manual_seed(0))
    z = policy.space.sample((2, 3), torch.Generator().manual_seed(0))
    for one, other in [(read.encode(batch), policy.encode(batch))]:
        assert torch.equal(one.pointer, other.pointer)
        assert torch.equal(read.condition(one, z).pointer, policy.condition(other, z).pointer)


def test_loaded_policies_do_not_train(path: Path) -> None:
    """A loaded policy requires no gradients."""
    assert not any(p.requires_grad for p in load(path).parameters())


def test_equal_policies_give_equal_bytes(path: Path, tmp_path: Path, policy) -> None:
    """Files can be compared by hash."""
    save(tmp_path / "again.safetensors", policy, ABOUT)
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_save_makes_its_folder(tmp_path: Path, policy) -> None:
    """Missing parent folders are created."""
    save(tmp_path / "a" / "b" / "c.safetensors", policy, ABOUT)
    assert load(tmp_path / "a" / "b" / "c.safetensors").architecture == policy.architecture


def test_header_is_readable_without_us(path: Path) -> None:
    """The header is JSON that describes the weights."""
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["rhumbline"])
    assert header["about"]["problem"] == "tsp"
    assert header["architecture"]["width"] == 32


@pytest.mark.parametrize("left", [0, 5, 100, -1])
def test_truncated_files_are_named(path: Path, left: int) -> None:
    """A file cut at any position is refused as unreadable."""
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(
        CheckpointError, match=r"mine\.safetensors: not a readable checkpoint .* truncated"
    ):
        load(path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A missing checkpoint, or a folder in its place, is named."""
    for name in (tmp_path / "nowhere.safetensors", tmp_path):
        with pytest.raises(CheckpointError, match=f"{name}: no such checkpoint"):
            load(name)


def test_foreign_files_are_named(tmp_path: Path) -> None:
    """A safetensors file of another program is refused."""
    path = tmp_path / "foreign.safetensors"
    save_file({"x": torch.zeros(3)}, path)
    with pytest.raises(
        CheckpointError,
        match=r"foreign\.safetensors: a safetensors file, but no checkpoint of rhumbline",
    ):
        load(path)
    save_file({"x": torch.zeros(3)}, path, metadata={"rhumbline": "not json"})
    with pytest.raises(CheckpointError, match=r"foreign\.safetensors: not a readable checkpoint"):
        load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h, t: h["about"].update(problem="knapsack"), "knapsack"),
        (lambda h, t: h["about"].update(colour="red"), "colour"),
        (lambda h, t: h.pop("about"), "about"),
        (lambda h, t: h.pop("architecture"), "architecture"),
        (lambda h, t: h["architecture"].update(width=64), "size mismatch"),
        (lambda h, t: h["architecture"].update(depth=3), "depth"),
        (lambda h, t: t.pop("decoder.key"), "decoder.key"),
        (lambda h, t: t.update(extra=torch.zeros(1)), "extra"),
    ],
    ids=["problem", "fact", "no facts", "no sizes", "width", "size", "missing", "extra"],
)
def test_headers_that_promise_something_else(path: Path, change, words: str) -> None:
    """Weights that do not fit their header are refused by name."""
    tensors, header = read_tensor_file(path)
    change(header, tensors)
    write_tensor_file(path, tensors, header)
    with pytest.raises(
        CheckpointError,
        match=rf"(?s)mine\.safetensors: does not hold what its header promises.*{words}",
    ):
        load(path)


def test_failed_writes_leave_the_old_file(path: Path, make_policy, monkeypatch) -> None:
    """If renaming fails, the old file stays, no other file is left, and the error names
    the file.
    """
    old = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match=r"mine\.safetensors: cannot be written \(no space left\)"):
        save(path, make_policy(seed=1), ABOUT)
    assert path.read_bytes() == old
    assert [p.name for p in path.parent.iterdir()] == ["mine.safetensors"]


def test_a_folder_that_is_a_file(path: Path, policy) -> None:
    """A path below a file cannot be written; the message says so."""
    with pytest.raises(InputError, match="cannot be written"):
        save(path / "below.safetensors", policy, ABOUT)


def test_find_knows_names_paths_and_defaults(path: Path, monkeypatch) -> None:
    """A shipped name takes precedence over a path; the error lists all names."""
    shipped = {name: Path(f"/shipped/{name}.safetensors") for name in ("tsp", "tsp100")}
    monkeypatch.setattr(checkpoint, "shipped_checkpoints", lambda: shipped)
    assert find_checkpoint("tsp100", "tsp") == shipped["tsp100"]
    assert find_checkpoint(None, "tsp") == shipped["tsp"]
    assert find_checkpoint(str(path), "tsp") == path
    with pytest.raises(
        CheckpointError,
        match=r"no checkpoint 'tsp99' \(did you mean 'tsp'\?\); give a path or one of: tsp, tsp100",
    ):
        find_checkpoint("tsp99", "tsp")
    monkeypatch.setattr(checkpoint, "shipped_checkpoints", dict)
    with pytest.raises(CheckpointError, match="no weights for tsp come with this version"):
        find_checkpoint(None, "tsp")


# --- hostile files


def change_header(path: Path, change) -> None:
    """Write the file again with a changed header; `change` gets header and tensors."""
    tensors, header = read_tensor_file(path)
    changed = change(header, tensors) or header
    text = changed if isinstance(changed, str) else json.dumps(changed)
    save_file(tensors, path, metadata={"rhumbline": text})


def set_in(table: str, name: str, value):
    return lambda header, tensors: header[table].update({name: value})


HOSTILE = {
    "amplify-text": set_in("architecture", "amplify", "x"),
    "growth-list": set_in("architecture", "growth", [1]),
    "growth-huge": set_in("architecture", "growth", 1e300),
    "amplify-nan": set_in("architecture", "amplify", float("nan")),
    "layers": set_in("architecture", "layers", 10**9),
    "members": lambda h, t: h["architecture"].update(latent=0, members=10**9),
    "width": set_in("architecture", "width", 10**9),
    "hidden-beyond-64-bits": set_in("architecture", "hidden", 10**30),
    "heads-true": set_in("architecture", "heads", True),
    "no-architecture-table": lambda h, t: h.update(architecture=[]),
    "no-about-table": lambda h, t: h.update(about="x" * 10**5),
    "long-problem": set_in("about", "problem", "x" * 10**5),
    "problem-list": set_in("about", "problem", ["tsp"]),
    "size-text": set_in("about", "size", "many"),
    "size-negative": set_in("about", "size", -3),
    "size-float": set_in("about", "size", 1.5),
    "size-zero": set_in("about", "size", "0x3"),
    "updates-text": set_in("about", "updates", "7"),
    "updates-negative": set_in("about", "updates", -7),
    "recipe-list": set_in("about", "recipe", []),
    "validation-list": set_in("about", "validation", [1]),
    "validation-text": set_in("about", "validation", {"greedy": "7.8"}),
    "validation-nan": set_in("about", "validation", {"greedy": float("nan")}),
    "validation-huge": set_in("about", "validation", {"greedy": 10**400}),
    "versions-number": set_in("about", "versions", {"torch": 2}),
    "deep": lambda h, t: "[" * 100_000,
    "deep-facts": lambda h, t: json.dumps(h)[:-1] + ',"x":' + '{"a":' * 50_000,
    "digits": lambda h, t: "9" * 5000,
    "list": lambda h, t: "[]",
    "shape": lambda h, t: t.update({"decoder.key": torch.zeros(32, 31)}),
    "whole-numbers": lambda h, t: t.update({"decoder.key": torch.zeros(32, 32).int()}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_checkpoint_errors(path: Path, name: str) -> None:
    """The error names the file, is short, and comes before memory is taken."""
    change_header(path, HOSTILE[name])
    with pytest.raises(CheckpointError, match=r"mine\.safetensors: ") as caught:
        load(path)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)
    assert "recursion" not in str(caught.value)  # Python's word


def test_a_billion_layers_take_no_memory(path: Path) -> None:
    """The header is compared with the tensors before a network is built."""
    change_header(path, HOSTILE["layers"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="its network has more than"):
        load(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000  # kilobytes


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300])
def test_weights_that_are_not_finite_are_refused(path: Path, number: float) -> None:
    """The tensor is named; 1e300 is infinite once it is a float32."""
    tensors, header = read_tensor_file(path)
    tensors["decoder.key"] = tensors["decoder.key"].double()
    tensors["decoder.key"][3, 4] = number
    write_tensor_file(path, tensors, header)
    with pytest.raises(CheckpointError, match=r"mine\.safetensors: .*'decoder.key' holds NaN or"):
        load(path)


def test_weights_of_other_precision_are_accepted(path: Path, policy) -> None:
    """Half precision and float64 are converted, as before."""
    tensors, header = read_tensor_file(path)
    tensors["decoder.key"] = tensors["decoder.key"].double()
    tensors["decoder.value"] = tensors["decoder.value"].bfloat16()
    write_tensor_file(path, tensors, header)
    weights = load(path).state_dict()
    assert weights["decoder.key"].dtype == weights["decoder.value"].dtype == torch.float32
    assert torch.equal(weights["decoder.key"], policy.state_dict()["decoder.key"])


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "a/" * 3000])
def test_names_that_the_system_refuses(name: str) -> None:
    """A name that is too long or holds a NUL character is no checkpoint."""
    with pytest.raises(CheckpointError, match="no checkpoint '") as caught:
        find_checkpoint(name, "tsp")
    assert len(str(caught.value)) < 700
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load(name)


def test_a_large_table_is_refused_before_it_is_read(path: Path) -> None:
    """The first eight bytes say how long the table of tensors is."""
    content = path.read_bytes()
    path.write_bytes((50 << 20).to_bytes(8, "little") + content[8:])
    with pytest.raises(CheckpointError, match=r"table of tensors has 52,428,800 bytes"):
        load(path)
