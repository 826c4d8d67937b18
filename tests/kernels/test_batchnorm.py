from functools import partial

import pytest
import torch

from bench.worker.check import outputs_of
from kernels.batchnorm import operator as batchnorm
from kernels.batchnorm.operator import OPERATOR
from kernels.batchnorm.problem import EPSILON, MOMENTUM
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import used

make = partial(usual, "batchnorm")
DIRECTIONS = ("forward", "inference", "backward")
LAYOUTS = ("NCHW", "NHWC")


@pytest.mark.parametrize("implementation", ["aten", "formulas"])
@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_running_statistics_move_to_the_unbiased_variance(
    implementation: str, layout: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make(layout=layout)
    tensors = inputs_of(problem, seed)
    running = batchnorm.running_statistics(problem.c, tensors[0].device)
    if implementation == "aten":
        monkeypatch.setattr(batchnorm, "running_statistics", lambda c, device: running)
        batchnorm.aten(problem, *tensors).call()
    else:
        batchnorm.formulas(problem, *tensors, *running)
    variance, mean = torch.var_mean(tensors[0].double(), dim=(0, 2, 3), correction=1)
    torch.testing.assert_close(running[0].double(), MOMENTUM * mean, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(running[1].double(), 1 - MOMENTUM + MOMENTUM * variance, rtol=1e-6, atol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reference_is_torchs_batch_norm_and_its_gradient(layout: str, seed: int) -> None:
    """In float64: forward, inference, and backward by autograd, which uses x's true statistics."""
    forward, inference, backward = (make(direction=way, layout=layout) for way in DIRECTIONS)
    x, weight, bias = (tensor.double().requires_grad_() for tensor in inputs_of(forward, seed))
    y = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, MOMENTUM, EPSILON)
    got_y, mean, rstd = outputs_of(OPERATOR.reference(forward, x, weight, bias))
    torch.testing.assert_close(got_y, y)
    dy = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    wanted = torch.autograd.grad(y, (x, weight, bias), dy)
    got = outputs_of(OPERATOR.reference(backward, x, dy, weight, mean, rstd))
    for one, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, want)

    tensors = tuple(tensor.double() for tensor in inputs_of(inference, seed))
    x, weight, bias, mean, variance = tensors
    want = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, False, MOMENTUM, EPSILON)
    torch.testing.assert_close(outputs_of(OPERATOR.reference(inference, *tensors))[0], want)
    assert (variance > 0.2).all()


def test_bytes_moved_in_passes() -> None:
    problem = make(direction="forward", dtype="float16")
    bulk = problem.elements * 2
    for name in ("aten", "triton", "inductor", "cudnn", "cudnn-spatial"):
        assert problem.byte_moved(name) == 3 * bulk + 32 * problem.c
        assert problem.byte_again(name) == bulk
    assert problem.byte_moved("cudnn-persistent") == problem.byte == 2 * bulk + 32 * problem.c
    assert make(layout="NHWC").byte_moved("cudnn") == make().byte  # torch asks for the persistent mode there
    backward = make(direction="backward", dtype="float16")
    assert backward.byte_moved("triton") == 5 * bulk + 20 * problem.c
    assert backward.byte_again("triton") == 2 * bulk
    assert backward.byte == 3 * bulk + 20 * problem.c
    inference = make(direction="inference", dtype="float16")
    assert inference.byte == 2 * bulk + 16 * problem.c
    for name in OPERATOR.implementations:
        for layout in LAYOUTS:
            assert inference.model_copy(update={"layout": layout}).byte_moved(name) == inference.byte
    assert (problem.flop, backward.flop, inference.flop) == tuple(k * problem.elements for k in (5, 9, 2))


def test_parts_fill_the_device_and_never_idle() -> None:
    pytest.importorskip("triton")
    from kernels.batchnorm import two_pass

    few, many, tiny = make(n=64, c=3, h=64, w=64), make(n=64, c=4096, h=8, w=8), make(n=1)
    for problem in (few, many, tiny):
        for tile in two_pass.candidates(problem):
            parts = two_pass.parts(problem, tile, 132)
            assert 1 <= parts <= -(-problem.channel_elements // tile.rows)
            full = parts * problem.c >= 132 * tile.programs
            assert full or parts == -(-problem.channel_elements // tile.rows)
    assert two_pass.parts(many, two_pass.candidates(many)[0], 132) == 1


def test_a_missing_epsilon_and_16_bit_sums_would_be_noticed(seed: int) -> None:
    problem = make(n=8, c=32, h=14, w=14)
    x, weight, bias = inputs_of(problem, seed)
    y, mean, _ = outputs_of(OPERATOR.reference(problem, x, weight, bias))
    bare = torch.var(x.double(), dim=(0, 2, 3), correction=0).rsqrt()
    assert used(OPERATOR, "triton", problem, (x, weight, bias), (y, mean, bare)) > 1

    half = problem.model_copy(update={"dtype": "float16"})
    tensors = inputs_of(half, seed)
    y, mean, _ = outputs_of(OPERATOR.reference(half, *tensors))
    summed = torch.zeros(half.c, dtype=torch.float16)
    for row in (tensors[0] ** 2).permute(0, 2, 3, 1).reshape(-1, half.c):
        summed += row
    coarse = (summed.double() / half.channel_elements - mean**2 + EPSILON).rsqrt()
    assert used(OPERATOR, "triton", half, tensors, (y, mean, coarse)) > 1
