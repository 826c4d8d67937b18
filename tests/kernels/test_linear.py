from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch

from bench.worker.check import outputs_of
from kernels.gemm import operator as gemm
from kernels.gemm.problem import Gemm
from kernels.linear.operator import OPERATOR
from kernels.linear.problem import Direction, Linear
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import uniform, used

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def make(direction: str = "forward", dtype: str = "float32", **more: Any) -> Linear:
    sizes = {"batch": 5, "inputs": 7, "outputs": 3}
    return Linear.model_validate({"direction": direction, "dtype": dtype, **sizes, **more})


@pytest.mark.parametrize("bias", [False, True])
def test_reference_is_torchs_linear_and_its_gradients(bias: bool, seed: int) -> None:
    draw = uniform(make(dtype="float64"), seed)
    x, w, b, dy = draw(5, 7), draw(3, 7), draw(3), draw(5, 3)
    for one in (x, w, b):
        one.requires_grad_()
    y = torch.nn.functional.linear(x, w, b if bias else None)
    dx, dw, *db = torch.autograd.grad(y, (x, w, b) if bias else (x, w), dy)
    x, w, b = x.detach(), w.detach(), b.detach()

    def found(direction: str, *tensors: torch.Tensor, bias: bool = bias) -> tuple[torch.Tensor, ...]:
        return outputs_of(OPERATOR.reference(make(direction, "float64", bias=bias), *tensors))

    for got, want in (
        (found("forward", x, w, *[b] * bias), (y.detach(),)),
        (found("activation_gradient", dy, w, bias=False), (dx,)),
        (found("weight_gradient", dy, x), (dw, *db)),
    ):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_mapping_is_the_documents(direction: Direction, seed: int) -> None:
    """M, N, K and layout of the guide's table, and the GEMM of that name computes this pass."""
    problem = make(direction, "float64")
    table = {
        "forward": Gemm(m=3, n=5, k=7, layout="TN", dtype="float64"),
        "activation_gradient": Gemm(m=7, n=5, k=3, layout="NN", dtype="float64"),
        "weight_gradient": Gemm(m=7, n=3, k=5, layout="NT", dtype="float64"),
    }
    assert problem.gemm == table[direction]
    left, right = inputs_of(problem, seed)
    a_b = [one.shape for one in gemm.inputs(problem.gemm, uniform(problem.gemm, seed))]
    assert [right.shape, left.shape] == a_b
    product = gemm.reference(problem.gemm, right, left)
    (want,) = outputs_of(OPERATOR.reference(problem, left, right))
    torch.testing.assert_close(product, want)


def test_what_moves_beyond_the_tensors() -> None:
    """dy for the bias gradient; torch's copy of the bias on a CPU, which writes y and reads it again."""
    names = [one.name for one in Linear.implementations]
    for plain in (make(), make("activation_gradient"), make("weight_gradient")):
        assert {plain.byte_moved(name) for name in names} == {plain.byte}
        assert {plain.byte_again(name) for name in names} == {0}
        assert {plain.moved_written(name) for name in names} == {plain.byte_written}
    dy, y = 5 * 3 * 4, 5 * 3 * 4
    gradient = make("weight_gradient", bias=True)
    for name in names:
        assert gradient.byte_moved(name) == gradient.byte + dy and gradient.byte_again(name) == dy
        assert gradient.moved_written(name) == gradient.byte_written
    forward = make(bias=True)
    assert forward.byte_moved("cublas") == forward.byte_moved("triton") == forward.byte
    assert forward.byte_moved("onednn") == forward.byte + 2 * y
    assert forward.byte_again("onednn") == y and forward.byte_again("triton") == 0
    assert forward.moved_written("onednn") == 2 * y and forward.moved_written("triton") == y


@pytest.mark.parametrize(
    "direction, bias", [("forward", True), ("weight_gradient", True), ("forward", False)]
)
def test_each_cublas_launch_sets_its_own_precision(
    direction: str, bias: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mm and addmm as nn.Linear calls them; on a CPU they compute the same, and the flag is seen."""
    matmul = torch.backends.cuda.matmul
    seen: list[str] = []

    def spied(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def called(*tensors: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            seen.append(matmul.fp32_precision)
            return original(*tensors, out=out)

        return called

    monkeypatch.setattr(torch, "mm", spied(torch.mm))
    monkeypatch.setattr(torch, "addmm", spied(torch.addmm))
    problem = make(direction, "tf32", bias=bias)
    inputs = inputs_of(problem, seed)
    launch = OPERATOR.implementations["cublas"](problem, *inputs)
    outputs = outputs_of(launch.call())
    assert seen == ["tf32"] and matmul.fp32_precision == "ieee"
    assert used(OPERATOR, "cublas", problem, inputs, outputs) <= 1


def scaled_by_hand(
    left: torch.Tensor,
    right: torch.Tensor,
    left_by: torch.Tensor,
    right_by: torch.Tensor,
    *,
    out: torch.Tensor,
    **_: Any,
) -> None:
    out.copy_((left.double() * left_by.double()) @ (right.double() * right_by.double()))


def test_float8_scales_belong_to_their_operands(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch takes the left operand's scale first; here told apart by making the layer's own differ."""
    problem = make(dtype="float8_e4m3", batch=32, inputs=48, outputs=64)
    x, w, x_scale, w_scale = inputs_of(problem, seed)
    seen: list[float] = []

    def spied(*tensors: torch.Tensor, **more: Any) -> None:
        assert tensors[0].data_ptr() == x.data_ptr() and tensors[1].data_ptr() == w.data_ptr()
        seen.extend(float(one) for one in tensors[2:])
        scaled_by_hand(*tensors, **more)

    monkeypatch.setattr(torch, "_scaled_mm", spied)
    launch = OPERATOR.implementations["cublas"](problem, x, w, x_scale, w_scale)
    outputs = outputs_of(launch.call())
    assert seen == [float(x_scale), float(w_scale)]
    assert used(OPERATOR, "cublas", problem, (x, w, x_scale, w_scale), outputs) <= 1


def test_a_bias_gradient_summed_in_16_bits_would_be_noticed(seed: int) -> None:
    problem = make("weight_gradient", "float16", batch=2048, inputs=3, outputs=96, bias=True)
    dy, x = inputs_of(problem, seed)
    dw, db = (one.half() for one in outputs_of(OPERATOR.reference(problem, dy, x)))
    assert used(OPERATOR, "triton", problem, (dy, x), (dw, db)) <= 1
    db = torch.zeros(96, dtype=torch.float16)
    for row in dy:
        db += row
    assert used(OPERATOR, "triton", problem, (dy, x), (dw, db)) > 1
