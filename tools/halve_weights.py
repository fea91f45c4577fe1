"""Store the weights of checkpoints in 16 bits: half the size, read back as float32.

    python tools/halve_weights.py rhumbline/weights/tsp.safetensors ...

Training writes float32. Before a checkpoint is shipped, this command rewrites it in float16, which
keeps 11 significant bits (bfloat16 keeps 8). The header stays as it is. A file with a weight beyond
the range of float16 is refused and left alone. Whether costs change, this says:

    rhumb bench compare tsp100 --validation --first 256 --policy OLD.safetensors,NEW.safetensors
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from rhumbline.checkpoint import read_tensor_file, write_tensor_file
from rhumbline.errors import CheckpointError


def halve_file(path: Path) -> float:
    """Rewrite a checkpoint in float16; return the relative error of its weights."""
    tensors, header = read_tensor_file(path)
    halved = halve_tensors(path, tensors)
    write_tensor_file(path, halved, header)
    return relative_error(tensors, halved)


def halve_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with float32 converted to float16; others stay as they are."""
    halved: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        halved[name] = tensor.half() if tensor.dtype == torch.float32 else tensor
        if tensor.is_floating_point() and not bool(torch.isfinite(halved[name]).all()):
            limit = f"{torch.finfo(torch.float16).max:,.0f}"
            found = f"the tensor '{name}' holds weights beyond {limit}, the largest float16"
            raise CheckpointError(f"{path}: {found}; keep this file in float32")
    return halved


def relative_error(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    """Return the root mean square of the changes, relative to that of the weights."""
    change = 0.0
    total = 0.0
    for name, tensor in before.items():
        exact = tensor.double()
        change += float((after[name].double() - exact).square().sum())
        total += float(exact.square().sum())
    return (change / total) ** 0.5 if total else 0.0


def main() -> None:
    """Rewrite the files of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+", type=Path)
    for path in parser.parse_args().checkpoints:
        size = path.stat().st_size
        error = halve_file(path)
        print(f"{path}: {size:,} to {path.stat().st_size:,} bytes, relative error {error:.1e}")


if __name__ == "__main__":
    main()
