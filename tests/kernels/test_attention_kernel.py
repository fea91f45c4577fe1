"""The encoder's attention kernels, in Triton's interpreter, against plain torch in float64."""

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from rhumbline.kernels.triton import encoder_attention
from rhumbline.policies.attention.encoder import torch_attention

assert isinstance(encoder_attention.attend_kernel, InterpretedFunction), (
    "the kernels were imported before conftest.py"
)

pytestmark = [
    # Triton 3.6 turns arrays of one element into scalars, which numpy 2.3 only announces to refuse.
    pytest.mark.filterwarnings(
        "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning:triton.*"
    ),
]


def with_gradient(
    function, qkv: torch.Tensor, weight: torch.Tensor, heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the value, and the gradient of its weighted sum."""
    qkv = qkv.clone().requires_grad_()
    out = function(qkv, heads)
    out.backward(weight)
    assert qkv.grad is not None
    return out.detach(), qkv.grad


# One node; less than a tile; several tiles of rows with a part of one; and more columns than half a
# tile of 256.
@pytest.mark.parametrize(
    ("nodes", "heads", "width"), [(1, 2, 16), (13, 2, 16), (70, 1, 16), (131, 1, 16), (9, 1, 32)]
)
def test_kernels_attend_as_torch_does(nodes: int, heads: int, width: int) -> None:
    """Values and gradients agree to float32's precision, for scores of ordinary size."""
    rng = torch.Generator().manual_seed(nodes)
    qkv = torch.randn(2, nodes, 3 * heads * width, generator=rng)
    weight = torch.randn(2, nodes, heads * width, generator=rng)
    out, gradient = with_gradient(encoder_attention.triton_attend, qkv, weight, heads)
    expected, true = with_gradient(torch_attention, qkv.double(), weight.double(), heads)
    assert torch.allclose(out.double(), expected, atol=2e-6)
    assert torch.allclose(gradient.double(), true, atol=5e-6)


def test_shared_offset_of_keys_changes_nothing() -> None:
    """A constant added to every key leaves values and gradients unchanged, however large it is."""
    rng = torch.Generator().manual_seed(0)
    qkv, weight = torch.randn(1, 11, 96, generator=rng), torch.randn(1, 11, 32, generator=rng)
    moved = qkv.clone()
    moved[..., 32:64] += 100.0
    plain, shifted = (
        with_gradient(encoder_attention.triton_attend, x, weight, 2) for x in (qkv, moved)
    )
    assert torch.allclose(plain[0], shifted[0], atol=1e-4)
    assert torch.allclose(plain[1], shifted[1], atol=1e-4)


def test_strides_do_not_matter() -> None:
    """Queries, keys and values and the gradient may be views."""
    rng = torch.Generator().manual_seed(0)
    whole, weight = (
        torch.randn(2, 5, 96, 2, generator=rng),
        torch.randn(2, 32, 5, generator=rng).transpose(1, 2),
    )
    out, gradient = with_gradient(encoder_attention.triton_attend, whole[..., 0], weight, 2)
    again, same = with_gradient(
        encoder_attention.triton_attend, whole[..., 0].contiguous(), weight.contiguous(), 2
    )
    assert torch.equal(out, again)
    assert torch.equal(gradient, same)


def test_operators_pass_opcheck() -> None:
    """Schemas, fake tensors and gradients are as `torch.compile` needs them."""
    qkv = torch.randn(1, 5, 96, requires_grad=True)
    torch.library.opcheck(encoder_attention.triton_attend, (qkv, 2))
    torch.library.opcheck(
        encoder_attention.triton_attend_backward, (qkv.detach(), torch.randn(1, 5, 32), 2)
    )
