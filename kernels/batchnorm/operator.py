"""Batch normalization on tensors: inputs, the float64 reference, the libraries' kernels and ours.

Tensors are [n, c, h, w] for torch whatever the layout; NHWC ones are torch's channels_last.
"""

from __future__ import annotations

import math
from functools import partial
from typing import get_args

import torch

from bench.autotune import inductor as torch_compile
from bench.spec import Dtype, Implementations, Launch, Operator, Tensors, Uniform
from kernels.batchnorm import cudnn as library
from kernels.batchnorm.problem import EPSILON, MOMENTUM, BatchNorm, Direction, Layout
from kernels.batchnorm.running import running_statistics
from kernels.excerpts import drawn
from kernels.optional import launched_by
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY, high, low
from kernels.tensors import empty, made, vectors

_CHECKED_ELEMENTS = 1 << 19
_CHECKED_CHANNELS = 8
"""An excerpt has as many channels as make half a million elements, but eight at least: of the sums of a few
channels even the largest may happen to be near 0, and would be held to nothing."""


def inputs(problem: BatchNorm, uniform: Uniform) -> Tensors:
    """forward: x, weight, bias; inference: and mean, variance; backward: x, dy, weight, mean, 1/deviation.

    x and dy [n, c, h, w] in the problem's type, the others [c] in float32. Statistics that are given are near
    those of uniform values (0 and 1/3) and differ from channel to channel; no formula needs them to be x's
    own.
    """
    count = {"forward": 2, "inference": 4, "backward": 3}[problem.direction]
    of_channel = vectors(uniform, count, problem.c, torch.float32)
    images = [made(spec, uniform) for spec in problem.tensors[0].values() if len(spec.shape) == 4]
    if problem.direction == "forward":
        return (*images, *of_channel)
    if problem.direction == "inference":
        weight, bias, mean, variance = of_channel
        return *images, weight, bias, 0.1 * mean, (1 + 0.1 * variance) / 3
    weight, mean, rstd = of_channel
    return *images, weight, 0.1 * mean, math.sqrt(3) * (1 + 0.1 * rstd)


def reference(problem: BatchNorm, *tensors: torch.Tensor) -> Tensors:
    """forward: y, mean, rstd; inference: y; backward: dx, dweight, dbias. All in float64."""
    doubled = [tensor.double() for tensor in tensors]
    if problem.direction == "backward":
        return _gradients(problem, *doubled)
    y, mean, variance = _normalized(*doubled)
    return (y,) if problem.direction == "inference" else (y, mean, (variance + EPSILON).rsqrt())


def _normalized(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *given: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y, and the mean and variance that make it, those of x unless they are given; in the arguments' type."""
    mean, variance = given or torch.var_mean(x, dim=(0, 2, 3), correction=0)[::-1]
    rstd = (variance + EPSILON).rsqrt()
    return (x - _wide(mean)) * _wide(rstd * weight) + _wide(bias), mean, variance


def _gradients(problem: BatchNorm, *tensors: torch.Tensor) -> Tensors:
    """dx, dweight, dbias in the type of the arguments."""
    x, dy, weight, mean, rstd = tensors
    centred = x - _wide(mean)
    dbias = dy.sum(dim=(0, 2, 3))
    dweight = (dy * centred).sum(dim=(0, 2, 3)) * rstd
    m = problem.channel_elements
    dx = _wide(weight * rstd) * (dy - _wide(dbias / m) - centred * _wide(dweight * rstd / m))
    return dx, dweight, dbias


def _wide(of_channel: torch.Tensor) -> torch.Tensor:
    """[c] as [1, c, 1, 1]."""
    return of_channel.view(1, -1, 1, 1)


def aten(problem: BatchNorm, *tensors: torch.Tensor) -> Launch:
    """torch's own kernels. native_batch_norm writes into tensors given; its backward pass allocates anew.

    The backward pass has an overload with `out` too, but one that calls the other and copies.
    """
    if problem.direction == "backward":
        x, dy, weight, mean, rstd = tensors
        gradients = torch.ops.aten.native_batch_norm_backward
        return Launch(
            lambda: gradients(dy, x, weight, None, None, mean, rstd, True, EPSILON, [True, True, True])
        )
    x, weight, bias = tensors[:3]
    outputs, run = empty(problem, x)[:3], torch.ops.aten.native_batch_norm.out
    if problem.direction == "inference":
        # On a GPU it stores mean and 1/deviation here as well; on a CPU it insists on nothing.
        saved = torch.empty(2, problem.c if x.is_cuda else 0, device=x.device).unbind()
        written, statistics, train = (*outputs, *saved), tensors[3:], False
    else:
        written, statistics, train = outputs, running_statistics(problem.c, x.device), True
    results = dict(zip(("out", "save_mean", "save_invstd"), written, strict=True))
    options = (*statistics, train, MOMENTUM, EPSILON)
    return Launch(lambda: run(x, weight, bias, *options, **results)[: len(outputs)], outputs)


def cudnn(problem: BatchNorm, *tensors: torch.Tensor) -> Launch:
    """torch's call of cuDNN, bfloat16 included, for which torch by itself takes its own kernels.

    Each call allocates its results: the overload with `out` replaces one of the tensors that it is given
    (`reserve`), so that it cannot be called twice.
    """
    normalize = torch.ops.aten.cudnn_batch_norm
    if problem.direction == "inference":
        x, weight, bias, mean, variance = tensors
        return Launch(lambda: normalize(x, weight, bias, mean, variance, False, MOMENTUM, EPSILON)[:1])
    running = running_statistics(problem.c, tensors[0].device)
    if problem.direction == "forward":
        x, weight, bias = tensors
        return Launch(lambda: normalize(x, weight, bias, *running, True, MOMENTUM, EPSILON)[:3])
    x, dy, weight, mean, rstd = tensors
    reserve = normalize(x, weight, weight, *running, True, MOMENTUM, EPSILON)[3]
    gradients = torch.ops.aten.cudnn_batch_norm_backward
    return Launch(lambda: gradients(x, dy, weight, *running, mean, rstd, EPSILON, reserve))


def inductor(problem: BatchNorm, *tensors: torch.Tensor) -> Launch:
    """torch.compile of the formulas in float32, running statistics included."""
    if problem.direction == "forward":
        tensors = (*tensors, *running_statistics(problem.c, tensors[0].device))
    return torch_compile.launch(formulas, problem, *tensors)


def formulas(problem: BatchNorm, *tensors: torch.Tensor) -> Tensors:
    """The outputs in float32 arithmetic, y and dx rounded; forward also moves its last two tensors."""
    kind, single = tensors[0].dtype, [tensor.float() for tensor in tensors]
    if problem.direction == "backward":
        dx, dweight, dbias = _gradients(problem, *single)
        return dx.to(kind), dweight, dbias
    if problem.direction == "inference":
        return (_normalized(*single)[0].to(kind),)
    y, mean, variance = _normalized(*single[:3])
    running_mean, running_variance = tensors[3:]
    m = problem.channel_elements
    running_mean.lerp_(mean, MOMENTUM)
    running_variance.lerp_(variance * (m / (m - 1)), MOMENTUM)
    return y.to(kind), mean, (variance + EPSILON).rsqrt()


def tolerance(problem: BatchNorm, implementation: str) -> tuple[float, ...]:
    """The largest |error| of each output that rounding explains, as a fraction of its largest |value|.

    x and dy are uniform in [-1, 1], of variance 1/3; a channel has m of each, k channels are checked.
    Arithmetic is float32, v = 2^-24; u is the unit roundoff of what is stored. Bounds hold but once in 10,000
    runs.

    * y and dx are rounded once, by u of their size. Before that come some 16 operations, each off by v of
      their operands. These may be larger than the result: where the few values of a small problem are all
      within a share q of their range, which happens with probability q^(freedom), errors grow by 1/q.
    * A float32 running sum of t positive terms errs in each addition by up to v of the partial sum, evenly
      spread: sqrt(t)/6 v of the variance's half, normally distributed. So much 1/deviation may be off, and y
      with it. aten adds all m on one thread of a CPU, the others at least 128 at a time.
    * Squares crowd near 0, where half the last place p of a long sum swallows them: such a sum falls short by
      0.061 p^1.5 a term on average (the integral of rounding's error over their density, 1/(2 sqrt(term))).
      As p is up to 2 v of the sum, t/3, 1/deviation is off by up to 0.1 (2/3 v t)^1.5.
    * A mean errs by some 4 v, of the size of the elements, but is itself only of the size of 1/sqrt(3 m).
    * dweight and dbias, sums of m terms of either sign, wander like their partial sums: sqrt(m/6) v of their
      size in addition, normally distributed, and are themselves of the size of sqrt(m/3).
    Both of these are times normal variables, and the largest of k channels is what is divided by: at least
    `low`.
    """
    m, k = problem.channel_elements, checked_channels(problem)
    u, v = UNIT_ROUNDOFF[problem.dtype], FLOAT32
    match problem.direction:
        case "inference":
            return (u + 16 * v / UNLIKELY ** (1 / (m * k)),)
        case "forward":
            # Each channel is divided by its own deviation, so each may be the unlucky one.
            terms = m if implementation == "aten" else m / 128
            of_sum = v * math.sqrt(terms) / 6 * high(k) + 0.1 * (2 / 3 * v * terms) ** 1.5
            # Squares about a shift (passes.py) are up to 4 times the variance that they leave.
            deviation = 64 * v / (UNLIKELY / k) ** (1 / (m - 1)) + of_sum
            return u + deviation, v * (4 + high(k) / 4) * math.sqrt(3 * m) / low(k), deviation
        case "backward":
            of_sum = v * (4 + math.sqrt(m / 6) * high(k)) / low(k)
            return u + 16 * v / UNLIKELY ** (1 / ((m - 1) * k)), of_sum, of_sum


def checked_channels(problem: BatchNorm) -> int:
    """How many channels an excerpt has."""
    return min(problem.c, max(_CHECKED_CHANNELS, _CHECKED_ELEMENTS // problem.channel_elements))


def excerpt(problem: BatchNorm, tensors: Tensors, outputs: Tensors) -> tuple[BatchNorm, Tensors, Tensors]:
    """The same problem for some channels only, whole ones; a small problem whole.

    The first channel, the last, and random ones between: channels are independent of each other.
    """
    count = checked_channels(problem)
    if count == problem.c:
        return problem, tensors, outputs
    picked = drawn(problem.c, count).to(tensors[0].device)

    def of_channels(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 4 and problem.layout == "NHWC":  # picked as it lies: ten times as quick
            return tensor.permute(0, 2, 3, 1).index_select(3, picked).permute(0, 3, 1, 2)
        return tensor.index_select(1 if tensor.dim() == 4 else 0, picked)

    smaller = problem.model_copy(update={"c": count})
    return smaller, tuple(map(of_channels, tensors)), tuple(map(of_channels, outputs))


def _examples() -> list[BatchNorm]:
    # (n, c, h, w): two values, one channel, odd and prime, 7 x 7, unaligned and aligned rows, one past a
    # tile, more than one column block, several blocks of a channel.
    sizes = [(2, 1, 1, 1), (3, 5, 1, 1), (2, 13, 7, 7), (3, 65, 5, 3), (5, 8, 16, 16), (2, 136, 9, 8)]
    sizes += [(1, 3, 37, 59), (4, 32, 14, 14), (1, 1, 1, 4097)]
    dtypes: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
    problems = [
        # A type for each, so turned that every direction and layout meets all three.
        BatchNorm(direction=direction, n=n, c=c, h=h, w=w, layout=layout, dtype=dtypes[(i + j + k) % 3])
        for i, (n, c, h, w) in enumerate(sizes)
        for j, layout in enumerate(get_args(Layout))
        for k, direction in enumerate(get_args(Direction))
    ]
    # A single value, which only inference can have.
    return [*problems, BatchNorm(direction="inference", n=1, c=1, h=1, w=1, dtype="float32")]


IMPLEMENTATIONS: Implementations = {
    "cudnn": cudnn,
    "cudnn-spatial": partial(library.launch, mode=library.SPATIAL),
    "cudnn-persistent": partial(library.launch, mode=library.SPATIAL_PERSISTENT),
    "aten": aten,
    "inductor": inductor,
    "triton": launched_by("batchnorm.two_pass"),
}
OPERATOR = Operator(BatchNorm, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
