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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, get_args

import torch

from bench.launching import inductor as torch_compile
from bench.spec import Launch, Operator, Tensors, Uniform
from kernels.layer import formula
from kernels.layer import reference as by_formula
from kernels.layer.problem import LOSS_SCALE, TRANSFORMERS, Direction, Layer, Weight
from kernels.layer.rounding import tolerance
from kernels.precision import cublas_precision, cudnn_precision
from kernels.tensors import inputs as declared


def inputs(problem: Layer, uniform: Uniform) -> Tensors:
    """x [batch, length, width] or [batch, width, length, length] in NHWC, the weights in float32, dy like x.

    x has variance 1, matrices keep the variance of what they multiply, with GELU behind them a half of it.
    Factors of norms are near 1, shifts and biases small.
    """
    x, *others = declared(problem, uniform)
    count = len(problem.weights)
    weights = map(functools.partial(_weight, problem), problem.weights, others[:count])
    return x * math.sqrt(3), *weights, *others[count:]


def _weight(problem: Layer, weight: Weight, random: torch.Tensor) -> torch.Tensor:
    if weight.role != "matrix":
        return 0.1 * random + (weight.role == "factor")
    gain = 2 if problem.kind == "mlp" else 1
    made = random * math.sqrt(3 * gain / math.prod(weight.shape[1:]))
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
    return _forward(problem.kind in TRANSFORMERS, problem, *leaves)


def inductor(problem: Layer, x: torch.Tensor, *others: torch.Tensor) -> Launch:
    """Forward and backward pass compiled when first called; every output allocated by each call."""
    threads = 0 if x.is_cuda else torch.get_num_threads()
    run = torch_compile.compiled(_as_fused, problem, threads=threads)
    return _launch(problem, run, lambda: _settings(problem, x.device), x, *others)


def _examples() -> list[Layer]:
    # Widths and lengths that no tile divides, heads of no usual width, shared heads of keys.
    sizes: list[dict[str, Any]] = [
        {"kind": "transformer", "batch": 3, "length": 37, "width": 60, "head_width": 20},
        {"kind": "transformer", "batch": 1, "length": 65, "width": 96, "head_width": 48},
        {"kind": "transformer-modern", "batch": 2, "length": 33, "width": 72, "head_width": 12, "group": 3},
        {"kind": "transformer-modern", "batch": 5, "length": 13, "width": 88, "head_width": 44, "group": 2},
        {"kind": "mlp", "batch": 67, "width": 51, "depth": 3},
        {"kind": "mlp", "batch": 3, "length": 19, "width": 130},
        {"kind": "bottleneck", "batch": 3, "length": 9, "width": 52},
        {"kind": "bottleneck", "batch": 2, "length": 15, "width": 128},
    ]
    return [
        Layer.model_validate({"direction": direction, "dtype": dtype, **size})
        for size, direction, dtype in itertools.product(
            sizes, get_args(Direction), ("float32", "tf32", "bfloat16", "float16")
        )
    ]


OPERATOR = Operator(
    problem=Layer,
    inputs=inputs,
    reference=reference,
    implementations={
        "eager": eager,
        "amp": eager,
        "sdpa": functools.partial(eager, fused=True),
        "cudnn-deterministic": deterministic,
        "inductor": inductor,
    },
    tolerance=tolerance,
    examples=_examples(),
    excerpt=excerpt,
)
