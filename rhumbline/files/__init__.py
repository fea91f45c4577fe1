"""Instances and plans from files and into files, by the formats of the problems' domains."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rhumbline.domain import DatasetFormat, FileFormats, Reader
from rhumbline.domains import DOMAINS
from rhumbline.errors import InputError, shorten
from rhumbline.formats.dataset import load_tensors, row_count, tensor_names
from rhumbline.formats.safe_io import write_text
from rhumbline.formats.sections import read_type

__all__ = ["count_instances", "plan_suffix_for", "read", "read_many", "stream_many", "write_plan"]

DATASET_SUFFIX = ".safetensors"


def read(path: str | Path) -> Any:
    """Read the instance of a file. The content decides where the suffix is unknown."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == DATASET_SUFFIX:
        message = "is a dataset of many instances, expected one; use read_many"
        raise InputError.at(path, None, message)
    reader = reader_of_suffix(path) or reader_of_content(path)
    return reader(path)


def read_many(path: str | Path) -> list[Any]:
    """Read all instances of a dataset, or the one instance of a text file."""
    path = Path(path)
    if path.suffix.lower() == DATASET_SUFFIX:
        return read_dataset(path)
    return [read(path)]


def stream_many(path: str | Path) -> Iterator[Any]:
    """Yield the same instances as `read_many`; of a dataset only a slice is in memory."""
    path = Path(path)
    if path.suffix.lower() != DATASET_SUFFIX:
        yield read(path)
        return
    dataset = find_dataset_format(path)
    stream = dataset.stream or dataset.load
    yield from stream(path)


def count_instances(path: Path) -> int | None:
    """Return how many instances a file holds, without reading them; None if that is unknown."""
    if path.suffix.lower() == DATASET_SUFFIX:
        return row_count(path)
    return 1


def write_plan(path: str | Path, plan: Any, instance: Any, comment: str) -> None:
    """Write a plan in the format of its problem, or as a result in JSON if that has none."""
    path = Path(path)
    writer = DOMAINS[instance.problem].files.write_plan
    if writer:
        writer(path, plan, instance, comment)
        return
    result = {
        "name": instance.name,
        "problem": instance.problem,
        "plan": plan.to_file_numbers(instance),
        "comment": comment,
    }
    write_text(path, json.dumps(result) + "\n")


def plan_suffix_for(instance: Any) -> str:
    """Return the file suffix of plans for an instance."""
    return DOMAINS[instance.problem].files.plan_suffix


# --- which format


def all_formats() -> Iterator[FileFormats]:
    """Yield the formats of every problem, our own first."""
    for _, domain in DOMAINS.working():
        yield domain.files


def reader_of_suffix(path: Path) -> Reader | None:
    """Return the reader for a file by its suffix.

    If several problems read files of a suffix, the content decides, and else the first one reads.
    """
    suffix = path.suffix.lower()
    known = [formats for formats in all_formats() if suffix in formats.readers]
    for formats in known:
        check = formats.content_checks.get(suffix)
        if len(known) > 1 and check and check(path):
            return formats.readers[suffix]
    return known[0].readers[suffix] if known else None


def reader_of_content(path: Path) -> Reader:
    """Return the reader for a file of an unknown suffix."""
    if path.is_fifo():  # it can be read only once
        known = ", ".join(reader_suffixes())
        advice = f"save it under a name that ends in {known}, or pipe it to -"
        raise InputError.at(path, None, f"is a pipe, expected a file; {advice}")
    for formats in all_formats():
        for fits, reader in formats.readers_by_content:
            if fits(path):
                return reader
    stated = read_type(path)
    by_type: dict[str, Reader] = {}
    for formats in all_formats():
        by_type = {**formats.readers_by_type, **by_type}
    return by_type.get(stated) or by_type[""]


def reader_suffixes() -> list[str]:
    """Return the suffixes of files with one instance that need no look into the file."""
    suffixes = dict[str, None]()
    for formats in all_formats():
        suffixes |= dict.fromkeys(formats.readers)
    return list(suffixes)


# --- datasets


def read_dataset(path: Path) -> list[Any]:
    """Read the instances of a dataset."""
    return find_dataset_format(path).load(path)


def find_dataset_format(path: Path) -> DatasetFormat:
    """Return the format of a dataset: of the problem with most of the file's tensors."""
    names = tensor_names(path)
    datasets = [formats.dataset for formats in all_formats() if formats.dataset]
    fitting = [dataset for dataset in datasets if dataset.tensors <= names]
    if not fitting:
        load_tensors(path)  # says what is wrong with the file
        found = shorten(", ".join(sorted(names)))
        raise InputError.at(path, None, f"is no dataset of a known problem; it has {found}")
    return max(fitting, key=lambda dataset: len(dataset.tensors))
