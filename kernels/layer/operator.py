"""Layers on tensors: inputs, the float64 reference, and how a launch runs forward and backward pass.

Inputs are x, the weights in the order of `Layer.weights`, and for a step dy. Outputs are y; of a step also
dx and the gradient of each weight, and of a bottleneck the results of its first two ReLUs. Every call
allocates what it returns, as a training loop does, and its times contain autograd: on a CPU also the work
of its engine.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, get_args

import torch

from bench.autotune import inductor as torch_compile
from bench.spec import Implementations, Launch, Operator, Tensors, Uniform
from kernels.layer import formula
from kernels.layer import reference as by_formula
from kernels.layer.problem import LOSS_SCALE, Direction, Kind, Layer, Weight
from kernels.precision import cublas_precision, cudnn_precision
from kernels.rounding import FLOAT32, TF32_CUT, UNIT_ROUNDOFF, reach
from kernels.tensors import inputs as declared


def inputs(problem: Layer, uniform: Uniform) -> Tensors:
    """x [batch, length, width] or [batch, width, length, length] in NHWC, the weights in float32, dy like x.

    x has variance 1, and matrices keep the variance of what they multiply.
    Factors of norms are near 1, shifts and biases small.
    """
    x, *others = declared(problem, uniform)
    count = len(problem.weights)
    weights = map(_weight, problem.weights, others[:count])
    return x * math.sqrt(3), *weights, *others[count:]


def _weight(weight: Weight, random: torch.Tensor) -> torch.Tensor:
    if weight.role != "matrix":
        return 0.1 * random + (weight.role == "factor")
    made = random * math.sqrt(3 / math.prod(weight.shape[1:]))
    return made.contiguous(memory_format=torch.channels_last) if made.dim() == 4 else made


def reference(problem: Layer, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    """The outputs in float64; of a bottleneck's step with the masks that `excerpt` adds to the inputs."""
    count = 1 + len(problem.weights)
    leaves = [tensor.detach().double() for tensor in tensors[:count]]
    if problem.direction == "forward":
        return by_formula.layer(problem, (), *leaves)[0]
    dy, masks = tensors[count].double(), tensors[count + 1 :]
    with torch.enable_grad():
        leaves = [leaf.requires_grad_() for leaf in leaves]
        y, *kept = by_formula.layer(problem, tuple(mask.double() for mask in masks), *leaves)
        dx, *gradients = torch.autograd.grad(y, leaves, dy)
    if problem.dtype == "float16":
        gradients = [gradient / LOSS_SCALE for gradient in gradients]
    return tuple(tensor.detach() for tensor in (y, dx, *gradients, *kept))


_ROUNDINGS: Mapping[Kind, int] = {
    # x, 4 weights, q k v, q scaled, scores, p, o, its projection, the sum, the middle, h, gelu, the result
    "transformer": 16,
    # x and dy; of each convolution: the weights, z, what is normalized; the sum
    "bottleneck": 12,
}
"""Times that numbers are rounded on the longest way from x to y."""
_CONTRACTIONS: Mapping[Kind, int] = {"transformer": 6, "bottleneck": 3}
"""Products or convolutions on that way."""
_WINOGRAD = 8
"""What cuDNN's algorithms for 3x3 may add to the errors of sums (kernels/convolution/operator.py)."""


def tolerance(problem: Layer, implementation: str) -> float | list[float]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|; one for each output.

    Activations, weights and dy have random signs, so an error in the numbers before a product is, relative to
    their size, as large behind it, and errors of different roundings add up as squares. Norms, softmax and
    GELU have slopes of about 1 for values of variance 1.

    * Each of n roundings (`_ROUNDINGS`) is off by up to u, with a deviation of u / sqrt(3): u sqrt(n / 3). A
      gradient comes back the same way, and each of its factors was rounded on the way there: 4 n.
    * tf32 shrinks every product by up to 2^-9: that many times the products on the way, twice for gradients.
    * Roots, exponentials and GELU of float32: 4 u'.
    * Sums of K terms in float32: u' sqrt(K) / 3 for each product, u' K / 16 where tensor cores cut off.
    * The largest of all errors is within `high` deviations, the largest |value| is at least `low` of its own.
    """
    forward, backward = _error(problem, 1), _error(problem, 2)
    y = forward * reach(problem.tokens * problem.width)
    if problem.direction == "forward":
        return y
    gradients = [backward * reach(math.prod(weight.shape)) for weight in problem.weights]
    kept = [forward * reach(problem.tokens * problem.inner)] * (2 if problem.kind == "bottleneck" else 0)
    return [y, backward * reach(problem.tokens * problem.width), *gradients, *kept]


def _error(problem: Layer, ways: int) -> float:
    """Deviation of the relative error after one way through the layer, or there and back."""
    contractions = ways * _CONTRACTIONS[problem.kind]
    roundings = ways**2 * _ROUNDINGS[problem.kind]
    window = 9 if problem.kind == "bottleneck" else 1
    terms = max(problem.width, window * problem.inner, problem.length, problem.tokens * (ways - 1))
    of_sum = math.sqrt(terms) / 3 * (_WINOGRAD if problem.kind == "bottleneck" else 1)
    if problem.dtype != "float32":
        of_sum += terms / 16
    error = UNIT_ROUNDOFF[problem.dtype] * math.sqrt(roundings / 3)
    error += FLOAT32 * math.sqrt(contractions) * (4 + of_sum)
    return error + (contractions * 2 * TF32_CUT if problem.dtype == "tf32" else 0.0)


def excerpt(problem: Layer, tensors: Tensors, outputs: Tensors) -> tuple[Layer, Tensors, Tensors]:
    """All of it; the inputs of a bottleneck's step with the masks of its ReLUs, as its outputs have them.

    Rounding moves a value across zero now and then, which turns a whole gradient on or off: no error of
    arithmetic, and no small one. What ReLU returned is compared as an output of its own, so a wrong mask
    shows there.
    """
    if problem.kind != "bottleneck" or problem.direction == "forward":
        return problem, tensors, outputs
    masks = tuple(output > 0 for output in (*outputs[-2:], outputs[0]))
    return problem, (*tensors, *masks), outputs


def _launch(
    problem: Layer,
    run: Callable[..., Any],
    settings: Callable[[], AbstractContextManager[Any]],
    *given: torch.Tensor,
) -> Launch:
    """`run(x, *weights)` and what follows from it, under these settings."""
    count = 1 + len(problem.weights)
    if problem.direction == "forward":

        def forward() -> torch.Tensor:
            with torch.no_grad(), settings():
                y: torch.Tensor = run(*given)[0]
                return y

        return Launch(forward)
    leaves = [tensor.detach().requires_grad_() for tensor in given[:count]]
    dy = given[count]

    def step() -> Tensors:
        with torch.enable_grad(), settings():
            y, *kept = run(*leaves)
            dx, *gradients = torch.autograd.grad(y, leaves, dy)
        if problem.dtype == "float16":
            _unscale(gradients)
        return (y.detach(), dx, *gradients, *(tensor.detach() for tensor in kept))

    return Launch(step)


def _unscale(gradients: list[torch.Tensor]) -> None:
    """What GradScaler.unscale_ calls: divides by the scale, and sets a flag if a number is not finite."""
    device = gradients[0].device
    infinite, inverse = torch.zeros(1, device=device), torch.full((1,), 1 / LOSS_SCALE, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, infinite, inverse)


def _autocast(problem: Layer, device: torch.device) -> AbstractContextManager[Any]:
    if not problem.mixed:
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, problem.dtype))


@contextmanager
def _settings(problem: Layer, device: torch.device, deterministic: bool = False) -> Iterator[None]:
    """float32 or tf32 as the data type says, and cuDNN's search; left as they were."""
    if device.type == "cpu":
        yield
        return
    with cublas_precision(problem.dtype), cudnn_precision(problem.dtype, True, deterministic):
        yield


def _forward(fused: bool, problem: Layer, *leaves: torch.Tensor) -> Tensors:
    with _autocast(problem, leaves[0].device):
        return formula.forward(problem, fused, *leaves)


def eager(
    problem: Layer, x: torch.Tensor, *others: torch.Tensor, fused: bool = False, deterministic: bool = False
) -> Launch:
    """torch's operators one after the other; every output allocated by each call."""
    run = functools.partial(_forward, fused, problem)
    return _launch(problem, run, lambda: _settings(problem, x.device, deterministic), x, *others)


def deterministic(problem: Layer, *tensors: torch.Tensor) -> Launch:
    """Eager or amp with algorithms of cuDNN that repeat every bit; RuntimeError if two calls differ."""
    launch = eager(problem, *tensors, deterministic=True)
    first, second = (
        (each,) if isinstance(each, torch.Tensor) else each for each in (launch.call(), launch.call())
    )
    if not all(map(torch.equal, first, second)):
        raise RuntimeError("two calls with torch.backends.cudnn.deterministic differ in some bit")
    return launch


def _as_fused(problem: Layer, *leaves: torch.Tensor) -> Tensors:
    return _forward(problem.kind == "transformer", problem, *leaves)


def inductor(problem: Layer, x: torch.Tensor, *others: torch.Tensor) -> Launch:
    """Forward and backward pass compiled when first called; every output allocated by each call."""
    threads = 0 if x.is_cuda else torch.get_num_threads()
    run = torch_compile.compiled(_as_fused, problem, threads=threads)
    return _launch(problem, run, lambda: _settings(problem, x.device), x, *others)


def _examples() -> list[Layer]:
    # Widths and lengths that no tile divides, heads of no usual width.
    sizes: list[dict[str, Any]] = [
        {"kind": "transformer", "batch": 3, "length": 37, "width": 60, "head_width": 20},
        {"kind": "transformer", "batch": 1, "length": 65, "width": 96, "head_width": 48},
        {"kind": "bottleneck", "batch": 3, "length": 9, "width": 52},
        {"kind": "bottleneck", "batch": 2, "length": 15, "width": 128},
    ]
    return [
        Layer.model_validate({"direction": direction, "dtype": dtype, **size})
        for size, direction, dtype in itertools.product(
            sizes, get_args(Direction), ("float32", "tf32", "bfloat16", "float16")
        )
    ]


IMPLEMENTATIONS: Implementations = {
    "eager": eager,
    "amp": eager,
    "sdpa": functools.partial(eager, fused=True),
    "cudnn-deterministic": deterministic,
    "inductor": inductor,
}
OPERATOR = Operator(Layer, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
