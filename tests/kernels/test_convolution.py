import random
from collections.abc import Iterator
from functools import partial
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError

from bench.spec import Dtype, Launch, Unsupported
from bench.worker.check import outputs_of
from kernels.convolution.operator import OPERATOR
from kernels.convolution.problem import Convolution, Direction, Layout
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import used

DIRECTIONS = get_args(Direction)
LAYOUTS = get_args(Layout)


convolution = partial(usual, "convolution")


def geometries(seed: int, count: int) -> Iterator[dict[str, int]]:
    """Windows, strides, paddings and dilations on small images, groups of any number; possible or not."""
    chance = random.Random(seed)
    for _ in range(count):
        groups = chance.choice((1, 1, 2, 3))
        yield {
            "n": chance.randint(1, 2),
            "c": groups * chance.randint(1, 3),
            "k": groups * chance.randint(1, 3),
            "groups": groups,
            "h": chance.randint(1, 8),
            "w": chance.randint(1, 8),
            "window_h": chance.choice((1, 2, 3, 5)),
            "window_w": chance.choice((1, 2, 3, 5)),
            "stride": chance.randint(1, 4),
            "padding": chance.randint(0, 4),
            "dilation": chance.choice((1, 1, 2, 4)),
        }


def possible(seed: int, count: int) -> Iterator[dict[str, int]]:
    """As many of them as there are problems."""
    found = 0
    for given in geometries(seed, 100 * count):
        try:
            convolution(**given)
        except ValidationError:
            continue
        yield given
        found += 1
        if found == count:
            return


def test_sizes_are_pytorchs_and_what_is_refused_pytorch_refuses(seed: int) -> None:
    refused = 0
    for given in geometries(seed, 400):
        x = torch.empty(given["n"], given["c"], given["h"], given["w"], device="meta")
        w = torch.empty(
            given["k"], given["c"] // given["groups"], given["window_h"], given["window_w"], device="meta"
        )
        geometry = [given[name] for name in ("stride", "padding", "dilation", "groups")]
        try:
            shape = torch.nn.functional.conv2d(x, w, None, *geometry).shape  # type: ignore[arg-type]
        except RuntimeError:
            refused += 1
            with pytest.raises(ValidationError, match="the output is empty"):
                convolution(**given)
            continue
        try:
            problem = convolution(**given)
        except ValidationError as error:
            assert "no window meets the image" in str(error)
            continue
        assert (problem.n, problem.k, problem.p, problem.q) == tuple(shape)
    assert 10 < refused < 300


def test_reference_is_pytorchs_in_float64_with_bias(seed: int) -> None:
    for place, geometry in enumerate(possible(seed, 60)):
        given: dict[str, Any] = geometry | {"layout": LAYOUTS[place % 2]}
        forward = convolution(**given, bias=True)
        x, w, b = (t.double().requires_grad_() for t in inputs_of(forward, seed))
        y = torch.nn.functional.conv2d(
            x, w, b, *(given[name] for name in ("stride", "padding", "dilation", "groups"))
        )
        dy = torch.rand_like(y) - 0.5
        dx, dw, db = torch.autograd.grad(y, (x, w, b), dy)
        torch.testing.assert_close(OPERATOR.reference(forward, x.detach(), w.detach(), b.detach()), y)
        of_x = convolution(**given, direction="activation_gradient")
        torch.testing.assert_close(OPERATOR.reference(of_x, dy, w.detach()), dx)
        of_w = convolution(**given, direction="weight_gradient", bias=True)
        got = OPERATOR.reference(of_w, dy, x.detach())
        torch.testing.assert_close(got[0], dw)
        torch.testing.assert_close(got[1], db)


def test_the_products_are_the_guides() -> None:
    """A layer of ResNet-50, and one with a stride, whose dx has a quarter of the terms on average."""
    layer = {"n": 32, "c": 64, "h": 56, "w": 56, "k": 128, "window_h": 3, "window_w": 3, "padding": 1}
    pixels = 32 * 56 * 56
    products = [convolution(**layer, direction=direction).product for direction in DIRECTIONS]
    assert products == [(pixels, 128, 64 * 9), (pixels, 64, 128 * 9), (64 * 9, 128, pixels)]
    strided = convolution(**layer, stride=2, direction="activation_gradient")
    assert strided.product == (pixels, 64, 128 * 9 // 4)


def test_what_no_window_covers_is_not_moved() -> None:
    """1 x 1 at stride 2 reads a quarter of x, forward and for the weights; dx is written whole."""
    given = {"h": 8, "w": 8, "window_h": 1, "window_w": 1, "stride": 2, "padding": 0}
    x = 2 * 4 * 64 * 4
    for direction, less in zip(DIRECTIONS, (0.75 * x, 0, 0.75 * x), strict=True):
        problem = convolution(**given, direction=direction)
        assert problem.byte - problem.byte_moved("cudnn") == less
    dilated = convolution(h=8, w=8, dilation=2, padding=0, stride=4)
    covered = {0, 2, 4}  # one window a side: 4 points on, the next would end at 8
    assert dilated.byte - dilated.byte_moved("cudnn") == 2 * 4 * (64 - len(covered) ** 2) * 4


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_layout_that_is_not_the_librarys_is_copied(direction: Direction) -> None:
    for dtype, copied in (("float16", True), ("tf32", True), ("float32", False)):
        problem = convolution(direction=direction, dtype=dtype, layout="NCHW")
        assert problem.byte_moved("cudnn") == problem.byte * (3 if copied else 1)
        assert problem.byte_again("cudnn-heuristic") == problem.byte * copied
        assert problem.moved_written("cudnn") == problem.byte_written + problem.byte * copied
        nhwc = problem.model_copy(update={"layout": "NHWC"})
        assert nhwc.byte_moved("cudnn") == nhwc.byte and nhwc.byte_again("cudnn") == 0
        assert problem.byte_moved("inductor") == problem.byte


def test_a_bias_by_its_own_kernel_passes_over_y_again() -> None:
    forward = convolution(bias=True)
    assert forward.byte_moved("cudnn") - forward.byte == 2 * forward.y_byte
    assert forward.byte_again("cudnn") == forward.y_byte
    assert forward.moved_written("cudnn") == 2 * forward.y_byte
    weights = convolution(bias=True, direction="weight_gradient")
    assert weights.byte_moved("cudnn") - weights.byte == weights.y_byte == weights.byte_again("cudnn")
    assert weights.moved_written("cudnn") == weights.byte_written == weights.w_byte + 6 * 4
    assert forward.byte_moved("onednn") == forward.byte + 2 * forward.w_byte  # weights alone are copied


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_onednn_copies_what_is_counted(
    direction: Direction, layout: Layout, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    """By oneDNN's verbose log, which names each reordering and its sizes."""
    for c, groups in ((32, 1), (3, 1), (16, 16)):
        problem = convolution(direction=direction, layout=layout, c=c, k=16, groups=groups, h=16, w=16)
        launch = onednn(problem, seed)
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
            launch.call()
        lines = [line for line in capfd.readouterr().out.splitlines() if ",exec,cpu,reorder," in line]
        sizes = [line.split(",")[-2] for line in lines if "x" in line.split(",")[-2]]
        copied = 0
        for size in sizes:
            elements = 4
            for part in size.split("x"):
                elements *= int(part)
            copied += elements
        # What is padded to whole blocks of channels is no copy of more.
        assert copied == problem.moved_written("onednn") - problem.byte_written, (str(problem), sizes)


def onednn(problem: Convolution, seed: int) -> Launch:
    return OPERATOR.implementations["onednn"](problem, *inputs_of(problem, seed))


@pytest.fixture
def cudnn_calls() -> Iterator[list[tuple[bool, bool, bool]]]:
    """(benchmark, deterministic, allow_tf32) of each forward call, which a CPU's convolution answers.

    torch's own schema of cudnn_convolution.out is kept: only a kernel for the CPU is added.
    """
    calls = []

    def answer(
        x: torch.Tensor, w: torch.Tensor, padding: list[int], stride: list[int], dilation: list[int],
        groups: int, benchmark: bool, deterministic: bool, allow_tf32: bool, *, out: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        calls.append((benchmark, deterministic, allow_tf32))
        y = torch.nn.functional.conv2d(x.double(), w.double(), None, stride, padding, dilation, groups)
        return out.copy_(y)

    library = torch.library.Library("aten", "IMPL")
    library.impl("cudnn_convolution.out", answer, "CPU")
    yield calls
    library._destroy()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "tensor_cores"), [("float16", True), ("tf32", True), ("float32", False)])
def test_cudnn_is_told_search_and_precision_with_each_call(
    dtype: Dtype,
    tensor_cores: bool,
    layout: Layout,
    cudnn_calls: list[tuple[bool, bool, bool]],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setenv("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "10000")
    problem = convolution(dtype=dtype, layout=layout, bias=True, stride=2)
    inputs = inputs_of(problem, seed)
    for name, search in (("cudnn", True), ("cudnn-heuristic", False)):
        launch = OPERATOR.implementations[name](problem, *inputs)
        written = outputs_of(launch.call())
        assert written[0].data_ptr() == launch.outputs[0].data_ptr()
        assert used(OPERATOR, name, problem, inputs, written) <= 1
        assert cudnn_calls[-1] == (search, False, tensor_cores)


def test_sums_of_int8_are_exact_and_padding_counts_as_zero(seed: int) -> None:
    problem = convolution(dtype="int8", padding=4, c=64, k=32)
    x, w = inputs_of(problem, seed)
    try:
        launch = OPERATOR.implementations["onednn"](problem, x, w)
    except Unsupported as reason:  # a CPU whose 16-bit sums overflow
        pytest.skip(str(reason))
    (y,) = outputs_of(launch.call())
    assert y.dtype == torch.float32 and y.abs().max() > 1e4
    assert torch.equal(y.double(), torch.nn.functional.conv2d(x.double(), w.double(), padding=4))
    assert problem.byte_moved("onednn") == problem.byte and problem.byte_again("onednn") == 0


def test_a_gradient_that_torch_keeps_from_cudnn_is_not_called_cudnns(seed: int) -> None:
    problem = convolution(direction="weight_gradient")
    inputs = inputs_of(problem, seed)
    with pytest.raises(Unsupported, match=r"torch gives this gradient to its own .*, not to cuDNN"):
        OPERATOR.implementations["cudnn"](problem, *inputs)
