"""Convolution on tensors: inputs, the float64 reference, and the libraries' kernels.

Tensors are as problem.py says, in the shapes that torch gives them: images [n, c, h, w], weights
[k, c / groups, window_h, window_w]; `layout` is a matter of strides.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from types import EllipsisType
from typing import Any, get_args

import torch

from bench.autotune.inductor import compiled
from bench.spec import Dtype, Implementations, Launch, Operator, Tensors, Unsupported
from kernels.convolution.problem import Axis, Convolution, Direction, Layout
from kernels.excerpts import crossing, fraction
from kernels.gemm.problem import Gemm
from kernels.gemm.rounding import tolerance as of_product
from kernels.precision import cudnn_precision
from kernels.rounding import FLOAT32
from kernels.tensors import empty, inputs

_CHECKED_FLOP = 3e8
"""Work of the reference for an excerpt, about."""

_LIBRARIES = {"Cudnn": "cuDNN", "Mkldnn": "oneDNN"}
"""torch's name of a library -> the library's own."""
_MAX_AUTOTUNE = (("max_autotune", True), ("coordinate_descent_tuning", True))


_SUM_OVER = {"forward": "ngkhw", "activation_gradient": "ngchw", "weight_gradient": "gkc"}
"""The result's axes at one tap, by `torch.einsum`: of y, x or w."""


def reference(problem: Convolution, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    """y, dx, or dw and with bias db; in float64, tap by tap, no convolution of torch's."""
    read, written = problem.tensors
    of = {name: tensor.double() for name, tensor in zip(read, tensors, strict=True)}
    computed, axes = next(iter(written)), _SUM_OVER[problem.direction]
    of[computed] = tensors[0].new_zeros(written[computed].shape, dtype=torch.float64)
    for tap, outputs, points in _taps(problem):
        at_tap = {
            "ngchw": _grouped(problem, of["x"])[points],
            "gkc": of["w"][:, :, tap[0], tap[1]].view(problem.groups, -1, of["w"].shape[1]),
            "ngkhw": _grouped(problem, of["y"])[outputs],
        }
        result = at_tap.pop(axes)
        result += torch.einsum(f"{','.join(at_tap)}->{axes}", *at_tap.values())
    if problem.sums_bias_gradient:
        return of["w"], of["y"].sum((0, 2, 3))
    return of[computed] + of["b"][:, None, None] if problem.adds_bias else of[computed]


_Index = tuple[EllipsisType, slice, slice]


def _taps(problem: Convolution) -> Iterator[tuple[tuple[int, int], _Index, _Index]]:
    """Each tap of the window, the outputs that it adds to, and the points that it takes, as indices."""
    for tap in itertools.product(range(problem.window_h), range(problem.window_w)):
        rows, columns = problem.rows.meetings(tap[0]), problem.columns.meetings(tap[1])
        if rows[0] and columns[0]:
            outputs, points = ((..., _slice(r), _slice(c)) for r, c in zip(rows, columns, strict=True))
            yield tap, outputs, points


def _slice(along: range) -> slice:
    return slice(along.start, along.stop, along.step)


def _grouped(problem: Convolution, image: torch.Tensor) -> torch.Tensor:
    """[n, groups, channels of a group, height, width]: a view."""
    return image.view(problem.n, problem.groups, -1, *image.shape[2:])


def _geometry(problem: Convolution) -> tuple[list[int], list[int], list[int]]:
    """stride, padding, dilation as torch takes them."""
    return [problem.stride] * 2, [problem.padding] * 2, [problem.dilation] * 2


def _gradient(problem: Convolution, tensors: Tensors, library: str) -> Launch:
    """torch's convolution_backward for dx, or dw and with bias db, allocated by each call.

    Unsupported if torch does not give it to this library.
    """
    dy, x, w = _of_backward(problem, *tensors)
    chosen = _chosen_by_torch(problem, x, w)
    if chosen != library:
        raise Unsupported(f"torch gives this gradient to its own {chosen}, not to {_LIBRARIES[library]}")
    return Launch(functools.partial(_backward, problem, dy, x, w))


def _of_backward(problem: Convolution, dy: torch.Tensor, other: torch.Tensor) -> Tensors:
    """dy, x and w; of the last two the one that is asked for is not filled and lends its shape and layout."""
    if problem.direction == "activation_gradient":
        return dy, *empty(problem, dy), other
    return dy, other, empty(problem, dy)[0]


def _backward(
    problem: Convolution, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor
) -> torch.Tensor | Tensors:
    of_weights = problem.direction == "weight_gradient"
    mask = [not of_weights, of_weights, problem.sums_bias_gradient]
    dx, dw, db = torch.ops.aten.convolution_backward(
        dy, x, w, [problem.k], *_geometry(problem), False, [0, 0], problem.groups, mask
    )
    written: torch.Tensor | Tensors = dx if not of_weights else (dw, db) if problem.bias else dw
    return written


def _chosen_by_torch(problem: Convolution, x: torch.Tensor, w: torch.Tensor) -> str:
    """The library to which torch gives such a convolution and its gradients."""
    rest = (*_geometry(problem), False, [0, 0], problem.groups, None)
    return str(torch._C._select_conv_backend(x, w, None, *rest)).rpartition(".")[2]


def onednn(problem: Convolution, *tensors: torch.Tensor) -> Launch:
    """oneDNN on a CPU, outputs allocated by each call. Unsupported where torch uses a kernel of its own."""
    if problem.dtype == "int8":
        return _onednn_int8(problem, *tensors)
    if problem.direction != "forward":
        return _gradient(problem, tensors, "Mkldnn")
    x, w, *bias = tensors
    # float32 forward it can be asked for itself, even where torch finds its own kernel quicker.
    chosen = "Mkldnn" if problem.dtype == "float32" else _chosen_by_torch(problem, x, w)
    if chosen != "Mkldnn":
        raise Unsupported(f"torch has no oneDNN for {problem.dtype} on this CPU: it uses its own {chosen}")
    stride, padding, dilation = _geometry(problem)
    convolution = torch.ops.aten.mkldnn_convolution
    addend = bias[0] if bias else None
    return Launch(lambda: convolution(x, w, addend, padding, stride, dilation, problem.groups))


def _onednn_int8(problem: Convolution, x: torch.Tensor, w: torch.Tensor) -> Launch:
    """The kernel of torch's quantized layers. Unsupported on a CPU on which its sums overflow."""
    if not _sums_int8_exactly():
        raise Unsupported(
            "oneDNN adds pairs of 8-bit products in 16 bits on this CPU, which lacks VNNI: they overflow"
        )
    return Launch(_quantized(x, w, *_geometry(problem), problem.groups))


def _quantized(x: torch.Tensor, w: torch.Tensor, *geometry: Any) -> Callable[[], torch.Tensor]:
    """The call of such a kernel, scales 1: weights are packed beforehand, and x is uint8 around 128.

    `geometry` is stride, padding, dilation and groups.
    """
    shifted = (x.to(torch.int16) + 128).to(torch.uint8)
    ones, zeros = torch.ones(len(w)), torch.zeros(len(w), dtype=torch.int64)
    packed = torch.ops.onednn.qconv_prepack(w, ones, 1.0, 128, *geometry, list(x.shape))
    operands = (shifted, 1.0, 128, packed, ones, zeros, None, *geometry)
    return functools.partial(
        torch.ops.onednn.qconv_pointwise, *operands, 1.0, 0, torch.float32, "none", [], ""
    )


@functools.cache
def _sums_int8_exactly() -> bool:
    """Whether oneDNN's sums of the largest products of 8 bits are right on this CPU."""
    x, w = (torch.full((1, 64, 1, 1), 127, dtype=torch.int8) for _ in range(2))
    return float(_quantized(x, w, [1, 1], [0, 0], [1, 1], 1)()) == 64 * 127**2


def cudnn(problem: Convolution, *tensors: torch.Tensor, search: bool = True) -> Launch:
    """cuDNN with its algorithms tried when first called, or with the one that its heuristic puts first.

    y is preallocated, gradients are allocated by each call.
    """
    forget_algorithms(problem, search, tensors[0].device)
    if problem.direction != "forward":
        return Launch(cudnn_precision(problem.dtype, search)(_gradient(problem, tensors, "Cudnn").call))
    x, w, *bias = tensors
    (y,) = empty(problem, x)
    stride, padding, dilation = _geometry(problem)
    allow_tf32 = problem.dtype != "float32"
    rest = (padding, stride, dilation, problem.groups, search, False, allow_tf32)
    convolution = torch.ops.aten.cudnn_convolution.out
    addend = bias[0][:, None, None] if bias else None

    def forward() -> torch.Tensor:
        convolution(x, w, *rest, out=y)
        return y if addend is None else y.add_(addend)  # as torch does: cuDNN's is the convolution alone

    return Launch(forward, outputs=(y,))


@functools.lru_cache(maxsize=1)
def forget_algorithms(problem: Convolution, search: bool, device: torch.device) -> None:
    """Make torch choose an algorithm anew, unless the last launch was of the same problem and choice.

    torch keeps cuDNN's algorithms by shape and type, not by how they were chosen: a heuristic's answer would
    be taken for the result of a search that follows, and the other way around. So it is told to keep one
    only, and a convolution of another shape displaces that.
    """
    os.environ["TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT"] = "1"  # read at the first convolution of a process
    if device.type == "cuda":
        point = torch.zeros(1, 1, 1, 1, device=device)
        torch.ops.aten.cudnn_convolution(point, point, [0, 0], [1, 1], [1, 1], 1, False, False, False)


def inductor(problem: Convolution, *tensors: torch.Tensor) -> Launch:
    """The quickest of cuDNN's and Inductor's own kernels by its own measurement, allocated by each call.

    On a CPU it is oneDNN's kernel, called by Inductor's C++. Unsupported where torch has no oneDNN for a type
    of 16 bits: torch's own kernels add up in that type.
    """
    if tensors[0].device.type == "cpu":
        if problem.dtype != "float32":
            onednn(problem, *tensors)
        of_cpu = compiled(_as_a_model_calls_it, problem, threads=torch.get_num_threads())
        return Launch(lambda: of_cpu(*tensors))
    forget_algorithms(problem, True, tensors[0].device)
    run = compiled(_as_a_model_calls_it, problem, _MAX_AUTOTUNE)
    return Launch(functools.partial(cudnn_precision(problem.dtype, search=True)(run), *tensors))


def _as_a_model_calls_it(problem: Convolution, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    if problem.direction != "forward":
        return _backward(problem, *_of_backward(problem, *tensors))
    x, w, *bias = tensors
    addend = bias[0] if bias else None
    stride, padding, dilation = _geometry(problem)
    return torch.nn.functional.conv2d(x, w, addend, stride, padding, dilation, problem.groups)


def tolerance(problem: Convolution, implementation: str) -> float | tuple[float, float]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|; for dw and db each.

    That of the product by which the outputs with the most terms are computed. db is the product of dy with
    ones, summed in float32.

    For windows of 3 and 5 at stride 1 cuDNN may choose Winograd's algorithm, whose float32 sums err more; by
    how much NVIDIA does not say. The factor of 8 rests on a simulation of ours in float32 with 16 to 256
    channels: the largest error was 5 to 6 times that of direct sums for F(4x4, 3x3), 4 to 8 times for
    F(4x4, 5x5), half for F(2x2, 3x3), 9 to 16 times for F(6x6, 3x3). That cuDNN computes at most 4 x 4
    outputs at a time is assumed.
    """
    if problem.dtype == "int8":  # sums of integers are exact, until they are stored as float32
        return FLOAT32
    terms, elements = _most_terms(problem)
    sizes = {"m": elements, "n": 1, "k": terms, "beta": int(problem.adds_bias)}
    product = Gemm.model_validate({**sizes, "layout": "NN", "dtype": problem.dtype})
    allowed = of_product(product, implementation)
    steps = {problem.window_h, problem.window_w} <= {3, 5} and problem.stride == problem.dilation == 1
    if steps and problem.dtype == "float32" and implementation != "onednn":
        allowed *= 8
    if not problem.sums_bias_gradient:
        return allowed
    kept: Dtype = "float32" if problem.dtype == "tf32" else problem.dtype
    ones = Gemm(m=problem.k, n=1, k=problem.n * problem.p * problem.q, layout="NN", dtype=kept)
    return allowed, of_product(ones, "onednn")


def _most_terms(problem: Convolution) -> tuple[int, int]:
    """Terms of the outputs that have the most, and how many outputs those are."""
    of_group, elements = {
        "forward": (problem.c // problem.groups, problem.n * problem.k),
        "activation_gradient": (problem.k // problem.groups, problem.n * problem.c),
        "weight_gradient": (problem.n, problem.k * problem.c // problem.groups),
    }[problem.direction]
    for axis in (problem.rows, problem.columns):
        counts = _counts(axis, problem.direction)
        most = max(counts)
        of_group *= most
        elements *= counts.count(most)
    return of_group, elements


def _counts(axis: Axis, direction: Direction) -> list[int]:
    """Terms along one axis of each output, of each point of the image, or of each tap."""
    if direction == "weight_gradient":
        return [len(axis.meetings(tap)[0]) for tap in range(axis.window)]
    return axis.counts(0 if direction == "forward" else 1)


def excerpt(problem: Convolution, inputs: Tensors, outputs: Tensors) -> tuple[Convolution, Tensors, Tensors]:
    """Some images and channels of y or of dx, or some weights of dw, whole planes; a small problem whole.

    Sums are over all of their terms.
    """
    share = problem.flop / _CHECKED_FLOP
    if share <= 1:
        return problem, inputs, outputs
    of_c, of_k = problem.c // problem.groups, problem.k // problem.groups
    # Groups go first, then the two sizes over which the direction does not sum, in turn.
    groups = fraction(problem.groups, share)
    share /= problem.groups / len(groups)
    sizes = {"forward": ("n", "k"), "activation_gradient": ("n", "c"), "weight_gradient": ("k", "c")}
    kept = {"n": torch.arange(problem.n), "c": torch.arange(of_c), "k": torch.arange(of_k)}
    for left, name in enumerate(sizes[problem.direction]):
        total = len(kept[name])
        kept[name] = fraction(total, math.sqrt(share) if left == 0 else share)
        share /= total / len(kept[name])
    c, k = ((groups[:, None] * of + kept[name]).flatten() for name, of in (("c", of_c), ("k", of_k)))
    smaller = problem.model_copy(
        update={"n": len(kept["n"]), "c": len(c), "k": len(k), "groups": len(groups)}
    )
    parts: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "x": lambda image: crossing(image, kept["n"], c),
        "y": lambda image: crossing(image, kept["n"], k),
        "w": lambda weights: crossing(weights, k, kept["c"]),
        "b": lambda bias: bias.index_select(0, k.to(bias.device)),
    }
    read, written = problem.tensors
    return (
        smaller,
        tuple(parts[name](tensor) for name, tensor in zip(read, inputs, strict=True)),
        tuple(parts[name](tensor) for name, tensor in zip(written, outputs, strict=True)),
    )


def _examples() -> list[Convolution]:
    # Sizes and geometry: one point, primes and rows of odd length, the stem's 7 x 7 at stride 2 with 3
    # channels, rectangular windows, dilation, gaps between windows, padding beyond half the window, groups
    # of several channels, depthwise, and as many outputs of a depthwise convolution as 2 a channel.
    shapes: list[dict[str, int]] = [
        {"n": 1, "c": 5, "h": 1, "w": 1, "k": 7, "window_h": 1, "window_w": 1},
        {"n": 2, "c": 13, "h": 7, "w": 7, "k": 17, "window_h": 3, "window_w": 3, "padding": 1},
        {"n": 2, "c": 3, "h": 17, "w": 19, "k": 8, "window_h": 7, "window_w": 7, "stride": 2, "padding": 3},
        {"n": 3, "c": 8, "h": 9, "w": 11, "k": 16, "window_h": 1, "window_w": 7, "padding": 3},
        {"n": 2, "c": 16, "h": 13, "w": 9, "k": 8, "window_h": 3, "window_w": 5, "dilation": 2, "padding": 2},
        {"n": 2, "c": 32, "h": 8, "w": 8, "k": 24, "window_h": 1, "window_w": 1, "stride": 2},
        {"n": 1, "c": 6, "h": 5, "w": 7, "k": 4, "window_h": 3, "window_w": 3, "stride": 3, "padding": 4},
        {"n": 2, "c": 12, "h": 7, "w": 9, "k": 18, "window_h": 3, "window_w": 3, "padding": 1, "groups": 3},
        {"n": 2, "c": 20, "h": 7, "w": 7, "k": 20, "window_h": 5, "window_w": 5, "padding": 2, "groups": 20},
        {"n": 3, "c": 5, "h": 12, "w": 6, "k": 10, "window_h": 3, "window_w": 3, "stride": 2, "groups": 5},
        {"n": 2, "c": 64, "h": 14, "w": 14, "k": 64, "window_h": 3, "window_w": 3, "padding": 1},
    ]
    dtypes: Iterable[Dtype] = ("float32", "bfloat16", "float16", "tf32", "int8")
    return [
        Convolution(
            direction=direction,
            dtype=dtype,
            layout=layout,
            bias=(place + turn) % 2 == 1 and direction != "activation_gradient" and dtype != "int8",
            **shape,
        )
        for place, shape in enumerate(shapes)
        for turn, (direction, layout) in enumerate(itertools.product(get_args(Direction), get_args(Layout)))
        for dtype in dtypes
        if dtype != "int8" or (direction, layout) == ("forward", "NHWC")
    ]


IMPLEMENTATIONS: Implementations = {
    "cudnn": cudnn,
    "cudnn-heuristic": functools.partial(cudnn, search=False),
    "inductor": inductor,
    "onednn": onednn,
}
OPERATOR = Operator(Convolution, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
