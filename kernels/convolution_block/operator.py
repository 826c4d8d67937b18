"""Blocks of a convolutional network on tensors: unfused, with batch normalization folded, and fused.

Tensors are as in `kernels.convolution`: images [n, channels, height, width], weights [k, c, window, window];
`layout` is a matter of strides.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import get_args

import torch
from scipy.special import lambertw
from torch.nn import functional

from bench.autotune import inductor as torch_compile
from bench.spec import Dtype, Implementations, Launch, Operator, Tensors, Uniform
from kernels.convolution import operator as convolution
from kernels.convolution.problem import Layout
from kernels.convolution_block.problem import EPSILON, ConvolutionBlock, Function, Norm
from kernels.excerpts import drawn
from kernels.precision import cudnn_precision
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY
from kernels.tensors import empty, vectors
from kernels.tensors import inputs as declared

Step = Callable[[torch.Tensor], torch.Tensor]

aten = torch.ops.aten

_FUNCTIONS: Mapping[Function, tuple[Step, Callable[..., torch.Tensor], str, str | None]] = {
    "relu": (torch.relu, functools.partial(torch.clamp_min, min=0), "relu", None),  # what torch.relu calls
    "gelu": (functional.gelu, aten.gelu.out, "gelu", "none"),
    "silu": (functional.silu, aten.silu.out, "swish", None),
    "sigmoid": (torch.sigmoid, torch.sigmoid, "sigmoid", None),
}
"""The activation function, the form with `out`, and name and form by which torch asks oneDNN for it."""


def inputs(problem: ConvolutionBlock, uniform: Uniform) -> Tensors:
    """x, w; for batchnorm weight, shift, mean, variance, for layernorm weight, shift, all [k].

    w is scaled so that the convolution's results have about variance 1, which functions are curved for.
    """
    x, w = declared(problem.convolution(), uniform)
    w = w * (3 / math.sqrt(problem.c * problem.window**2))
    if problem.norm == "none":
        return x, w
    if problem.norm == "layernorm":
        weight, shift = vectors(uniform, 2, problem.k)
        return x, w, 1 + 0.1 * weight, shift
    weight, shift, mean, variance = vectors(uniform, 4, problem.k, torch.float32)
    return x, w, 1 + 0.1 * weight, shift, 0.1 * mean, 1 + 0.1 * variance


def as_a_model(problem: ConvolutionBlock, *inputs: torch.Tensor) -> torch.Tensor:
    """y [n, k, p, q] in the type and layout of x, as a model would write it."""
    x, w, *of = inputs
    z = functional.conv2d(x, w, None, problem.stride, problem.padding)
    y = _FUNCTIONS[problem.activation][0](_normalized(problem, z, *of))
    # It is so already, but not on torch's device `meta`, which says how Inductor's output is allocated.
    order = torch.channels_last if problem.layout == "NHWC" else torch.contiguous_format
    return y.contiguous(memory_format=order)


def reference(problem: ConvolutionBlock, x: torch.Tensor, w: torch.Tensor, *of: torch.Tensor) -> torch.Tensor:
    """y [n, k, p, q] in float64, its convolution by the reference of `kernels.convolution`."""
    z = convolution.reference(problem.convolution(), x, w)
    assert isinstance(z, torch.Tensor)
    return _FUNCTIONS[problem.activation][0](_normalized(problem, z, *(tensor.double() for tensor in of)))


def _normalized(problem: ConvolutionBlock, z: torch.Tensor, *of: torch.Tensor) -> torch.Tensor:
    if problem.norm == "batchnorm":
        weight, shift, mean, variance = of
        return functional.batch_norm(z, mean, variance, weight, shift, training=False, eps=EPSILON)
    if problem.norm == "layernorm":
        weight, shift = of
        pixels = z.permute(0, 2, 3, 1)
        return functional.layer_norm(pixels, (problem.k,), weight, shift, EPSILON).permute(0, 3, 1, 2)
    return z


def _unfused(library: str, problem: ConvolutionBlock, *inputs: torch.Tensor) -> Launch:
    """A kernel for each step; y preallocated, what oneDNN and layernorm return allocated by each call."""
    x, w, *of = inputs
    convolved = convolution.OPERATOR.implementations[library](problem.convolution(), x, w)
    return _followed(convolved, problem, x, *_norm(problem, x, *of))


def _folded(library: str, problem: ConvolutionBlock, *inputs: torch.Tensor) -> Launch:
    """The convolution with folded weights and a bias, then the activation function; allocated so, too."""
    x, w, *of = inputs
    with_bias = problem.convolution(bias=True)
    convolved = convolution.OPERATOR.implementations[library](with_bias, x, *_fold(problem, w, *of))
    return _followed(convolved, problem, x)


def _followed(convolved: Launch, problem: ConvolutionBlock, x: torch.Tensor, *steps: Step) -> Launch:
    """These steps after the convolution, and the activation function into a y that is allocated here."""
    (y,) = empty(problem, x)
    activate = _FUNCTIONS[problem.activation][1]

    def call() -> torch.Tensor:
        z = convolved.call()
        assert isinstance(z, torch.Tensor)
        for step in steps:
            z = step(z)
        activate(z, out=y)
        return y

    return Launch(call, (y,))


def _norm(problem: ConvolutionBlock, x: torch.Tensor, *of: torch.Tensor) -> list[Step]:
    if problem.norm == "none":
        return []
    if problem.norm == "layernorm":  # with `out` it would copy what it allocates all the same
        return [lambda z: _normalized(problem, z, *of)]
    weight, shift, mean, variance = of
    (y,), run = empty(problem, x), aten.native_batch_norm.out
    # On a GPU it stores mean and 1/deviation here as well; on a CPU it insists on nothing.
    saved = torch.empty(2, problem.k if x.is_cuda else 0, device=x.device).unbind()

    def normalize(z: torch.Tensor) -> torch.Tensor:
        statistics = (weight, shift, mean, variance, False, 0.0, EPSILON)
        run(z, *statistics, out=y, save_mean=saved[0], save_invstd=saved[1])
        return y

    return [normalize]


def _fold(problem: ConvolutionBlock, w: torch.Tensor, *of: torch.Tensor) -> Tensors:
    """w and a bias [k] that contain the batch normalization, in the type of w; w alone without one."""
    if problem.norm == "none":
        return (w,)
    weight, shift, mean, variance = of
    scale = weight * torch.rsqrt(variance + EPSILON)
    return (w * scale[:, None, None, None]).to(w.dtype), (shift - mean * scale).to(w.dtype)


def cudnn_relu(problem: ConvolutionBlock, x: torch.Tensor, w: torch.Tensor, *of: torch.Tensor) -> Launch:
    """cuDNN's convolution with bias and ReLU, algorithms tried when first called; y allocated by each."""
    convolution.forget_algorithms(problem.convolution(), True, x.device)
    weights, bias = (*_fold(problem, w, *of), None)[:2]
    geometry = ([problem.stride] * 2, [problem.padding] * 2, [1, 1], 1)

    run = cudnn_precision(problem.dtype, search=True)(aten.cudnn_convolution_relu)
    return Launch(functools.partial(run, x, weights, bias, *geometry))


def onednn_fused(problem: ConvolutionBlock, x: torch.Tensor, w: torch.Tensor, *of: torch.Tensor) -> Launch:
    """oneDNN's convolution with bias and activation function, y allocated by each call.

    Unsupported where torch has no oneDNN for the type.
    """
    convolution.onednn(problem.convolution(), x, w)
    weights, bias = (*_fold(problem, w, *of), None)[:2]
    geometry = ([problem.padding] * 2, [problem.stride] * 2, [1, 1], 1)
    *_, name, form = _FUNCTIONS[problem.activation]
    fused = torch.ops.mkldnn._convolution_pointwise
    return Launch(lambda: fused(x, weights, bias, *geometry, name, [], form))


def inductor(problem: ConvolutionBlock, x: torch.Tensor, *others: torch.Tensor) -> Launch:
    """The block compiled when first called; y allocated by each call on a GPU.

    Unsupported as `onednn_fused`.
    """
    if not x.is_cuda and problem.dtype != "float32":
        convolution.onednn(problem.convolution(), x, others[0])
    launch = torch_compile.launch(as_a_model, problem, x, *others)
    if not x.is_cuda:
        return launch
    convolution.forget_algorithms(problem.convolution(), True, x.device)
    return Launch(cudnn_precision(problem.dtype, search=True)(launch.call))


_SLOPE = {"relu": 1.0, "gelu": 1.13, "silu": 1.1, "sigmoid": 0.25}
"""Steepest slope of an activation function."""
_SCALE, _SHIFT = 1.1 / math.sqrt(0.9), 1.2
"""The largest factor and addend of batchnorm, by the ranges of its inputs; layernorm's are smaller."""
_SPREAD = 1.2
"""Standard deviation of the convolution's results in the channel where it is largest; 1 on average."""


def tolerance(problem: ConvolutionBlock, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value| of y.

    The convolution's results z are sums of many terms, of variance 1, so they are nearly normal.

    * z is off by what the convolution's own tolerance says of the largest |z|; folded weights add their own
      rounding and the bias's.
    * batchnorm multiplies that by its factor; layernorm by its weight over the pixel's standard deviation, at
      least d, and once more through mean and deviation. What is unfused is stored between: another rounding.
    * The activation function multiplies errors by its slope at most, and adds eight roundings of float32.
    * All of this is set against the largest |y|; some normal values reach half of sqrt(2 ln(count)).
    """
    u = UNIT_ROUNDOFF[problem.dtype]
    count = problem.byte_written // problem.item_byte
    largest = _SPREAD * math.sqrt(2 * math.log(2 * count / UNLIKELY))
    folded = problem.folds(implementation)
    library = implementation.partition("-")[0]
    share = convolution.tolerance(problem.convolution(bias=folded), library)
    assert isinstance(share, float)
    if folded:
        largest = _SCALE * largest + _SHIFT
        error = (share + u) * largest
    else:
        error = share * largest
        if problem.norm == "batchnorm":
            error, largest = _SCALE * error, _SCALE * largest + _SHIFT
        elif problem.norm == "layernorm":
            deviation = _deviation(problem.k, count // problem.k)
            error, largest = 2.2 * error / deviation, 1.1 * min(largest / deviation, math.sqrt(problem.k)) + 1
        if problem.norm != "none":
            error += (u + 8 * FLOAT32) * largest
    passed = _SLOPE[problem.activation] * error + 8 * FLOAT32 * largest
    reached = torch.tensor(math.sqrt(2 * math.log(count)) / 2, dtype=torch.float64)
    return u + passed / float(_FUNCTIONS[problem.activation][0](reached))


def _deviation(channels: int, pixels: int) -> float:
    """What the standard deviation of each of so many pixels exceeds, but once in 10,000 runs.

    Of n normal values the variance is below t with probability (t exp(1 - t))^(n / 2) at most (Chernoff).
    """
    bar = 2 * math.log(pixels / UNLIKELY) / (channels - 1)
    return math.sqrt(-lambertw(-math.exp(-1 - bar)).real)  # of t with t - 1 - ln t = bar


def excerpt(
    problem: ConvolutionBlock, tensors: Tensors, outputs: Tensors
) -> tuple[ConvolutionBlock, Tensors, Tensors]:
    """Three whole images at most: the first, the last, and one between."""
    if problem.n <= 3:
        return problem, tensors, outputs
    images = drawn(problem.n, 3)
    x, *others = tensors
    smaller = problem.model_copy(update={"n": len(images)})
    return smaller, (x[images.to(x.device)], *others), tuple(y[images.to(y.device)] for y in outputs)


def _examples() -> list[ConvolutionBlock]:
    # Odd sizes, a stride with padding beyond half the window, and no window to speak of.
    shapes: list[dict[str, int]] = [
        {"n": 2, "c": 13, "h": 9, "w": 7, "k": 19, "window": 3, "padding": 1},
        {"n": 2, "c": 3, "h": 17, "w": 19, "k": 16, "window": 7, "stride": 2, "padding": 5},
        {"n": 5, "c": 32, "h": 5, "w": 8, "k": 24, "window": 1},
    ]
    dtypes: tuple[Dtype, ...] = ("float32", "bfloat16", "float16")
    ways = itertools.product(shapes, get_args(Norm), get_args(Function), dtypes, get_args(Layout))
    return [
        ConvolutionBlock(norm=norm, activation=function, layout=layout, dtype=dtype, **shape)
        for shape, norm, function, dtype, layout in ways
        if (norm, layout) != ("layernorm", "NCHW")
    ]


IMPLEMENTATIONS: Implementations = {
    "cudnn": functools.partial(_unfused, "cudnn"),
    "cudnn-folded": functools.partial(_folded, "cudnn"),
    "cudnn-relu": cudnn_relu,
    "onednn": functools.partial(_unfused, "onednn"),
    "onednn-folded": functools.partial(_folded, "onednn"),
    "onednn-fused": onednn_fused,
    "inductor": inductor,
}
OPERATOR = Operator(ConvolutionBlock, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
