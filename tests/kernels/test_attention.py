import math
from functools import partial

import pytest
import torch

from bench.spec import Dtype
from kernels.attention.operator import OPERATOR
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import Dispatched, Dispatches

attention = partial(usual, "attention")


@pytest.mark.parametrize("causal", [False, True])
def test_flop_count_the_pairs_that_the_mask_leaves(causal: bool) -> None:
    problem = attention(causal=causal)
    pairs = sum(key <= row or not causal for row in range(9) for key in range(9))
    assert problem.pairs == problem.special_functions == 8 * pairs
    assert problem.flop == 2 * 2 * 16 * 8 * pairs
    assert attention(causal=causal, direction="backward").flop == 5 * 2 * 16 * 8 * pairs


def moved_byte(call: Dispatched) -> int:
    """What one of torch's operators reads and writes; with beta = 0 what is added is not read."""
    if call.operator.__name__ in ("transpose", "view"):
        return 0
    read = call.read[1:] if call.named.get("beta") == 0 else call.read
    return sum(tensor.nbytes for tensor in (*read, *call.results))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_bytes_of_scores_are_those_that_the_operators_move(
    direction: str, dtype: Dtype, kv_heads: int, causal: bool, seed: int
) -> None:
    """Of sequences so long that q, k, v, which a product may read twice, and the mask are a few percent."""
    problem = attention(
        direction=direction, dtype=dtype, kv_heads=kv_heads, q_length=300, head_width=8, causal=causal
    )
    launch = OPERATOR.implementations["unfused"](problem, *inputs_of(problem, seed))
    with Dispatches() as dispatches:
        launch.call()
    moved = sum(map(moved_byte, dispatches.calls))
    assert moved == pytest.approx(problem.byte_moved("unfused"), rel=0.08)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kv_heads", "kv_length"), [(4, 9), (2, 9), (1, 9), (2, 5)])
def test_reference_is_torchs_in_float64(kv_heads: int, kv_length: int, causal: bool, seed: int) -> None:
    """And the gradients autograd's, with o and lse of a forward pass in float64."""
    if causal and kv_length != 9:
        return
    problem = attention(kv_heads=kv_heads, kv_length=kv_length, causal=causal)
    q, k, v = (tensor.double().requires_grad_() for tensor in inputs_of(problem, seed))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    want = OPERATOR.reference(problem, q.detach(), k.detach(), v.detach())
    assert isinstance(want, torch.Tensor)
    torch.testing.assert_close(want, o.detach())

    do = torch.rand_like(o)
    s = q @ k.repeat_interleave(problem.group, 1).mT / math.sqrt(problem.head_width)
    if causal:
        s = s.masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), -math.inf)
    backward = problem.model_copy(update={"direction": "backward"})
    saved = (o.detach(), s.logsumexp(-1).detach(), do)
    gradients = OPERATOR.reference(backward, q.detach(), k.detach(), v.detach(), *saved)
    for gradient, expected in zip(gradients, torch.autograd.grad(o, (q, k, v), do), strict=True):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_o_and_lse_of_the_inputs_are_a_forward_pass(
    causal: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.attention.operator._PREPARED", 200)  # several rows at a time, not all
    problem = attention(direction="backward", causal=causal, batch=1)
    q, k, v, o, lse, _ = inputs_of(problem, seed)
    torch_o, torch_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    torch.testing.assert_close(o, torch_o)
    torch.testing.assert_close(lse, torch_lse)
