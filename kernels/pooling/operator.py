"""Pooling on tensors: inputs, the float64 reference, torch's kernels, Inductor's and ours.

Tensors are as problem.py says. Max forward returns y and the indices (int64, h x w flattened, PyTorch's),
which max backward takes. Indices lie in memory as y does.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, get_args

import torch
from scipy.special import bdtrc

from bench.autotune import inductor as torch_compile
from bench.spec import Dtype, Implementations, Launch, Operator, Tensors, Uniform
from kernels.convolution.problem import Axis
from kernels.excerpts import crossing, drawn
from kernels.optional import launched_by
from kernels.pooling.problem import Direction, Kind, Layout, Pooling
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY, low
from kernels.tensors import empty, made
from kernels.tensors import inputs as declared

_DRAWN = 1 << 22
"""Indices drawn at random; more images repeat them."""
_CHECKED = 1 << 23
"""Taps, inputs and outputs that an excerpt holds, about."""


def inputs(problem: Pooling, uniform: Uniform) -> Tensors:
    """Forward: x. Backward: dy, and for max the indices: a random tap of every window, within the image.

    Uniform over the taps, as the maximum of random data lies, but without computing it from an x.
    """
    (x,) = declared(problem, uniform)
    if problem.direction == "forward" or problem.kind == "average":
        return (x,)
    # int64, in memory of its own, from a pattern that is drawn once for a problem.
    pattern, indices = _pattern(problem, x.device), torch.empty_like(x, dtype=torch.int64)
    for part in indices.split(len(pattern)):  # type: ignore[no-untyped-call]
        part.copy_(pattern[: len(part)])
    return x, indices


@functools.lru_cache(maxsize=1)
def _pattern(problem: Pooling, device: torch.device) -> torch.Tensor:
    image = problem.c * problem.high * problem.wide
    few = problem.model_copy(update={"n": max(1, min(problem.n, _DRAWN // image))})
    make = functools.partial(torch.empty, dtype=torch.float64, device=device)
    generator = torch.Generator(device).manual_seed(int(torch.randint(2**62, ())))
    along: list[torch.Tensor] = []
    for axis in (problem.down, problem.across):
        counts = torch.tensor(axis.taps, device=device)
        starts = (torch.arange(len(counts), device=device) * axis.stride - axis.padding).clamp(min=0)
        random = made(few.tensors[0]["dy"], make).uniform_(generator=generator)
        if not along:
            counts, starts = counts[:, None], starts[:, None]
        along.append((random * counts).long() + starts)
    row, column = along
    return row.mul_(problem.w).add_(column)


def reference(problem: Pooling, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    """Forward: y, and for max the indices. Backward: dx. Float64, tap by tap, no pooling of torch's."""
    if problem.direction == "forward":
        (x,) = tensors
        return _maximum(problem, x.double()) if problem.kind == "max" else _average(problem, x.double())
    dy = tensors[0].double()
    if problem.kind == "average":
        return _average_backward(problem, dy)
    dx = dy.new_zeros(problem.n, problem.c, problem.h * problem.w)
    dx.scatter_add_(2, tensors[1].flatten(2), dy.flatten(2))
    return dx.view(problem.n, problem.c, problem.h, problem.w)


def _maximum(problem: Pooling, x: torch.Tensor) -> Tensors:
    # The first tap of a window is the answer until one is larger, or NaN; float64 holds all integers here.
    place = torch.arange(problem.h * problem.w, dtype=torch.float64, device=x.device)
    place = place.view(1, 1, problem.h, problem.w)
    (best, index), *others = zip(_taps(problem, x, -torch.inf), _taps(problem, place, -1.0), strict=True)
    index = index.expand_as(best)
    for value, at in others:
        better = (at >= 0) & ((index < 0) | (value > best) | value.isnan())
        best = torch.where(better, value, best)
        index = torch.where(better, at, index)
    return best, index


def _average(problem: Pooling, x: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(problem.n, problem.c, problem.high, problem.wide)
    for value in _taps(problem, x, 0.0):
        total += value
    return total / problem.window_taps


def _average_backward(problem: Pooling, dy: torch.Tensor) -> torch.Tensor:
    share = dy / problem.window_taps
    padded = _padded(problem, dy.new_zeros(problem.n, problem.c, problem.h, problem.w), 0.0)
    for rows, columns in _tap_slices(problem):
        padded[:, :, rows, columns] += share
    top, left = problem.padding, problem.padding_w
    return padded[:, :, top : top + problem.h, left : left + problem.w]


def _taps(problem: Pooling, x: torch.Tensor, fill: float) -> list[torch.Tensor]:
    """The taps of the window, row by row, each as what all windows hold there: views `[n, c, high, wide]`."""
    padded = _padded(problem, x, fill)
    return [padded[:, :, rows, columns] for rows, columns in _tap_slices(problem)]


def _tap_slices(problem: Pooling) -> list[tuple[slice, slice]]:
    rows, columns = (
        [slice(tap, tap + (axis.windows - 1) * axis.stride + 1, axis.stride) for tap in range(axis.window)]
        for axis in (problem.down, problem.across)
    )
    return list(itertools.product(rows, columns))


def _padded(problem: Pooling, x: torch.Tensor, fill: float) -> torch.Tensor:
    """x with padding on all sides."""
    sides = [problem.padding_w] * 2 + [problem.padding] * 2
    return torch.nn.functional.pad(x, sides, value=fill)


def _called(problem: Pooling, *tensors: torch.Tensor) -> tuple[Any, tuple[Any, ...]]:
    """torch's operator of this pass and its arguments, of x; or of dy, a tensor like x, and indices for max.

    Backward it asks for x only to learn its shape and layout.
    """
    op, forward, down, across = torch.ops.aten, problem.direction == "forward", problem.down, problem.across
    window = (down.window, across.window), (down.stride, across.stride), (down.padding, across.padding)
    if problem.kind == "average":
        average = op.avg_pool2d if forward else op.avg_pool2d_backward
        return average, (*tensors, *window, False, True, None)
    maximum = op.max_pool2d_with_indices if forward else op.max_pool2d_with_indices_backward
    return maximum, (*tensors[:2], *window, (1, 1), False, *tensors[2:])


def aten(problem: Pooling, *tensors: torch.Tensor) -> Launch:
    """torch's kernel, by the overload that writes into what is allocated here."""
    outputs = empty(problem, tensors[0])
    if problem.direction == "backward":
        run, arguments = _called(problem, tensors[0], *outputs, *tensors[1:])
        return Launch.of(run.grad_input, outputs, *arguments, grad_input=outputs[0])
    if problem.kind == "max":
        outputs += (torch.empty_like(outputs[0], dtype=torch.int64),)
    run, arguments = _called(problem, *tensors)
    return Launch.of(run.out, outputs, *arguments, **dict(zip(("out", "indices"), outputs, strict=False)))


def inductor(problem: Pooling, *tensors: torch.Tensor) -> Launch:
    """The same function compiled for this problem's shapes."""
    like_x = empty(problem, tensors[0]) if problem.direction == "backward" else ()
    return torch_compile.launch(_functional, problem, tensors[0], *like_x, *tensors[1:])


def _functional(problem: Pooling, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    run, arguments = _called(problem, *tensors)
    written: torch.Tensor | Tensors = run(*arguments)
    return written


_SMALLEST = {"float16": 2.0**-25, "bfloat16": 0.0, "float32": 0.0}
"""Half the distance between the smallest numbers; float32's exponents go far below any average here."""


def tolerance(problem: Pooling, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value|. 0: exact.

    A maximum, its index, and dx where every point is in at most one window are exact: nothing is added. Else
    with u the unit roundoff of the type and u' that of the sum, which is float32 but for torch's backward on
    a CPU, which adds up in the type itself:

    * Rounding the result: u of it. Dividing, or multiplying by a reciprocal rounded before: 3 u32 at most.
      float16 has numbers 2^-24 apart near 0 and errs by half of that.
    * A sum of k values of standard deviation s: its additions err by u' of the partial sums, evenly spread,
      in all u' sqrt(k)/3 of its own value times a normal variable. Of N sums none passes ln(N / 10^-4) normal
      deviations for the product of both; the largest is at least `low` deviations, of which only sums without
      common terms count. 10^-4 is how rarely either fails. Torch on a CPU also rounds each share to the type
      before adding it: by u/sqrt(3) of the sum's deviation more, another normal variable.
    * dx of max adds up the few dy whose window chose the point, 1 / (stride stride_w) on average. For m of
      them m - 1 additions err by u' of partial sums that the largest |dx| bounds; m is the count that occurs
      once in 10,000 runs.
    """
    u, u32 = UNIT_ROUNDOFF[problem.dtype], FLOAT32
    forward = problem.direction == "forward"
    along = [_fullest(axis, forward) for axis in (problem.down, problem.across)]
    terms, places = math.prod(k for k, _ in along), math.prod(count for _, count in along)
    if problem.kind == "max":
        if forward or terms == 1:
            return 0.0
        additions = _most_hits(problem, terms) - 1
        return (additions * u) if implementation == "aten" else u + additions * u32
    if problem.window_taps == 1:
        return 0.0

    elements = problem.output_elements if forward else problem.input_elements
    largest = low(problem.n * problem.c * places)
    deviations = math.log(elements / UNLIKELY) / largest if terms > 1 else 0.0
    # A sum of k values of variance 1/3 over the divisor: the window's taps or, cut off, fewer.
    value = largest * math.sqrt(terms / 3) / problem.window_taps
    error = u + 3 * u32 + _SMALLEST[problem.dtype] / value
    if not forward and implementation == "aten":
        return error + u * math.sqrt(terms / 9 + 1 / 3) * deviations
    return error + u32 * math.sqrt(terms) / 3 * deviations


def _fullest(axis: Axis, forward: bool) -> tuple[int, int]:
    """Along one axis: the most terms of any sum, and how many sums have that many and share none."""
    counts = axis.counts(0 if forward else 1)
    most = max(counts)
    return most, math.ceil(counts.count(most) / (axis.overlap if forward else axis.window))


def _most_hits(problem: Pooling, windows: int) -> int:
    """How many of the `windows` that hold a point may choose it, but once in 10,000 runs, choosing at random.

    A window in a corner of the image has at least a quarter of its taps in it, so each chooses the point with
    a chance of at most 4 / taps.
    """
    chance = min(1.0, 4 / problem.window_taps)
    rare = UNLIKELY / problem.input_elements
    return max(2, next(hits for hits in range(windows + 1) if bdtrc(hits, windows, chance) < rare))


def excerpt(problem: Pooling, inputs: Tensors, outputs: Tensors) -> tuple[Pooling, Tensors, Tensors]:
    """Some images and some channels, whole planes; a small problem whole.

    Planes are independent of each other.
    """
    plane = problem.h * problem.w + problem.high * problem.wide * problem.window_taps
    planes = max(1, _CHECKED // plane)
    if problem.n * problem.c > planes:
        c = min(problem.c, max(1, math.isqrt(planes)))
        n = min(problem.n, max(1, planes // c))
        c = min(problem.c, max(1, planes // n))
        images, channels = drawn(problem.n, n), drawn(problem.c, c)
        inputs = tuple(crossing(tensor, images, channels) for tensor in inputs)
        outputs = tuple(crossing(tensor, images, channels) for tensor in outputs)
        problem = problem.model_copy(update={"n": n, "c": c})
    return problem, inputs, outputs


def _examples() -> list[Pooling]:
    # (h, w, window, stride, padding), the last three a pair where the width's differ: one point, primes,
    # remainders never read, overlap, gaps between windows, a window that is the whole image, one wider than
    # our kernels unroll, a row, a column, a whole image that is not square.
    Size = int | tuple[int, int]
    shapes: list[tuple[int, int, Size, Size, Size]] = [
        (1, 1, 1, 1, 0),
        (7, 7, 2, 2, 0),
        (13, 11, 3, 2, 1),
        (9, 17, 3, 1, 1),
        (8, 6, 3, 2, 1),
        (10, 7, 2, 3, 0),
        (7, 7, 7, 1, 0),
        (12, 15, 5, 3, 2),
        (5, 19, (1, 7), (1, 2), (0, 3)),
        (14, 9, (3, 1), (2, 3), (1, 0)),
        (3, 8, (3, 8), 1, 0),
    ]
    sizes = [(2, 3), (1, 64), (3, 17)]
    dtypes: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
    problems = []
    for place, (h, w, *windows) in enumerate(shapes):
        pairs = [size if isinstance(size, tuple) else (size, size) for size in windows]
        (window, window_w), (stride, stride_w), (padding, padding_w) = pairs
        for turn, (kind, direction, layout) in enumerate(
            (k, d, m) for k in get_args(Kind) for d in get_args(Direction) for m in get_args(Layout)
        ):
            if window == window_w == 1 and (kind, direction) != ("max", "forward"):
                continue
            n, c = sizes[(place + turn // 2) % 3]
            problem = Pooling(
                kind=kind, direction=direction, layout=layout, dtype=dtypes[(place + turn + turn // 3) % 3],
                n=n, c=c, h=h, w=w, window=window, window_w=window_w, stride=stride, stride_w=stride_w,
                padding=padding, padding_w=padding_w,
            )  # fmt: skip
            problems.append(problem)
    return problems


IMPLEMENTATIONS: Implementations = {
    "aten": aten,
    "inductor": inductor,
    "triton": launched_by("pooling.launching"),
}
OPERATOR = Operator(Pooling, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
