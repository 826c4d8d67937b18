"""A training step on tensors: inputs, the float64 reference, and how a launch repeats the same step.

Inputs are x and t [batch, width] and of each layer W, with LoRA also A and B; weights are float32. Outputs
are the gradients of the trained weights in that order, and with an optimizer these weights after the step.
Each call allocates gradients anew, as `zero_grad` of torch has it.
"""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint_sequential

from bench.spec import Implementations, Launch, Operator, Tensors, Uniform
from kernels.optional import lacking
from kernels.precision import cublas_precision
from kernels.rounding import FLOAT32, TF32_CUT, UNIT_ROUNDOFF, reach
from kernels.tensors import inputs as declared
from kernels.training.problem import Training

LEARNING_RATE, MOMENTUM, BETAS, DECAY = 0.1, 0.9, (0.9, 0.999), 0.01
EPSILON = 0.1
"""AdamW's, far above the usual 1e-8: at that a step is nearly the gradient's sign, so that rounding would
decide the step of a weight whose gradient is tiny. It changes no time."""
_Optimizing = Callable[[Training, list[torch.Tensor]], torch.optim.Optimizer]
_LORA_GAIN = 0.1
"""Deviation of what LoRA adds, as a share of what it is added to."""
_SETTLING = 400
"""Updates after which moments of 8 bits hardly move. They are corrected by a number that a graph keeps."""


def inputs(problem: Training, uniform: Uniform) -> Tensors:
    """x, t and the weights. W keeps the variance of what it multiplies, so tanh is not saturated."""
    x, t, *random = declared(problem, uniform)
    weights = []
    for name, weight in zip(list(problem.tensors[0])[2:], random, strict=True):
        gain = math.sqrt(1 / weight.shape[1]) * (_LORA_GAIN if name[0] == "B" else 1)
        weights.append(weight * (gain / weight.square().mean().sqrt()))
    return x, t, *weights


def _layers(problem: Training, weights: Tensors) -> list[Tensors]:
    each = 3 if problem.lora_rank else 1
    return [weights[at : at + each] for at in range(0, len(weights), each)]


def _layer(weights: Tensors, x: torch.Tensor) -> torch.Tensor:
    z = functional.linear(x, weights[0])
    if len(weights) > 1:
        z = z + functional.linear(functional.linear(x, weights[1]), weights[2])
    return torch.tanh(z)


def _trained(problem: Training, weights: Tensors) -> list[torch.Tensor]:
    frozen = 1 if problem.lora_rank else 0
    return [weight for layer in _layers(problem, weights) for weight in layer[frozen:]]


def reference(problem: Training, x: torch.Tensor, t: torch.Tensor, *weights: torch.Tensor) -> Tensors:
    """Gradients and weights after the step, in float64: of the whole batch at once, by the chain rule."""
    exact = [weight.double() for weight in weights]
    layers = _layers(problem, tuple(exact))
    # W + B A, whose gradient is that of both.
    products = [of[0] + of[2] @ of[1] if problem.lora_rank else of[0] for of in layers]
    kept = [x.double()]
    for product in products:
        kept.append(torch.tanh(kept[-1] @ product.T))
    dy = (kept[-1] - t.double()) / problem.batch
    gradients: list[torch.Tensor] = []
    for of, product, x_of, y_of in zip(layers[::-1], products[::-1], kept[-2::-1], kept[:0:-1], strict=True):
        dz = dy * (1 - y_of**2)
        dw = dz.T @ x_of
        gradients[:0] = [of[2].T @ dw, dw @ of[1].T] if problem.lora_rank else [dw]
        dy = dz @ product
    if problem.optimizer == "none":
        return tuple(gradients)
    after = []
    for weight, gradient in zip(_trained(problem, tuple(exact)), gradients, strict=True):
        if problem.optimizer == "adamw":
            weight = weight * (1 - LEARNING_RATE * DECAY)
            gradient = gradient / (gradient.abs() + EPSILON)
        after.append(weight - LEARNING_RATE * gradient)
    return *gradients, *after


def _autocast(problem: Training, device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, dtype=torch.bfloat16) if problem.item_byte == 2 else nullcontext()


def _gradients(problem: Training, x: torch.Tensor, t: torch.Tensor, weights: Tensors) -> None:
    """Adds each trained weight's gradient up in its `grad`; the backward pass is outside of autocast."""
    functions = [partial(_layer, layer) for layer in _layers(problem, weights)]
    share = problem.width / 2 / problem.micro_batches
    parts = zip(x.chunk(problem.micro_batches), t.chunk(problem.micro_batches), strict=True)
    for x_part, t_part in parts:
        with torch.enable_grad():
            with _autocast(problem, x.device):
                # There is no dropout whose random numbers would have to be repeated.
                y = checkpoint_sequential(  # type: ignore[no-untyped-call]
                    functions, problem.segments, x_part, use_reentrant=False, preserve_rng_state=False
                )
                loss = functional.mse_loss(y, t_part) * share
            del y
            loss.backward()  # type: ignore[no-untyped-call]


def _torch_optimizer(problem: Training, trained: list[torch.Tensor], **way: bool) -> torch.optim.Optimizer:
    if problem.optimizer == "sgd":
        return torch.optim.SGD(trained, LEARNING_RATE, momentum=MOMENTUM, dampening=MOMENTUM, **way)
    capturable = trained[0].is_cuda
    return torch.optim.AdamW(trained, LEARNING_RATE, BETAS, EPSILON, DECAY, capturable=capturable, **way)


_one_by_one = partial(_torch_optimizer, foreach=False, fused=False)


def _bitsandbytes(problem: Training, trained: list[torch.Tensor]) -> torch.optim.Optimizer:
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise lacking("bitsandbytes", "bitsandbytes", error) from error
    made: torch.optim.Optimizer = AdamW8bit(trained, LEARNING_RATE, BETAS, EPSILON, DECAY)
    return made


def _step(
    optimizer_of: _Optimizing, problem: Training, x: torch.Tensor, t: torch.Tensor, *given: torch.Tensor
) -> Launch:
    """The whole step. With an optimizer it works on copies of the weights; moments come of one step here."""
    owns = problem.optimizer != "none"
    weights = tuple(weight.clone() if owns else weight.detach() for weight in given)
    trained = [weight.requires_grad_() for weight in _trained(problem, weights)]
    originals = _trained(problem, given)
    optimizer = optimizer_of(problem, trained) if owns else None

    def call() -> Tensors:
        with torch.no_grad():
            if optimizer is not None:
                torch._foreach_copy_(trained, originals)
        with cublas_precision(problem.dtype) if x.is_cuda else nullcontext():
            _gradients(problem, x, t, weights)
        if optimizer is not None:
            optimizer.step()
        gradients = [_taken(weight) for weight in trained]
        return *gradients, *(weight.detach() for weight in trained if owns)

    if owns:
        call()  # the moments are there from here on, before a graph is captured
    return Launch(call)


def _taken(weight: torch.Tensor) -> torch.Tensor:
    """Its gradient, which the next step must not find."""
    gradient, weight.grad = weight.grad, None
    assert gradient is not None
    return gradient


def _settled(problem: Training, *tensors: torch.Tensor) -> Launch:
    """bitsandbytes counts steps on the host, and a graph keeps the count: so moments must move no more."""
    launch = _step(_bitsandbytes, problem, *tensors)
    for _ in range(_SETTLING):
        launch.call()
    return launch


def _blocking(empties: bool, problem: Training, x: torch.Tensor, *others: torch.Tensor) -> Launch:
    """As eager, but by the host's clock; with `empties` unused memory is given back after each step."""
    step = _step(_one_by_one, problem, x, *others)

    def call() -> torch.Tensor | Tensors:
        written = step.call()
        if empties:
            gc.collect()
            torch.cuda.empty_cache()  # nothing, where CUDA has not begun
        if x.is_cuda:
            torch.cuda.synchronize()
        return written

    return Launch(call, blocks=True)


_LARGEST_GRADIENT = 2.4
"""Times 1 / sqrt(batch): five deviations of a sum over rows of (y - t) x / batch, where y - t is up to 0.8
and x up to 0.6 as a root mean square."""
_STEP = {"sgd": 0.1, "adamw": 1.0}
"""How a small error of a gradient moves a weight: by the learning rate, with AdamW divided by its epsilon."""


def tolerance(problem: Training, implementation: str) -> list[float]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|; one for each output.

    W keeps the variance of what it multiplies and tanh has slopes up to 1, so an error is, relative to the
    numbers, as large behind a layer as before it, but for what the finite width adds: a product of n random
    matrices stretches different vectors differently, with deviations of sqrt(2 n / width) in the logarithm.
    Errors of different roundings add up as squares.

    * A layer rounds a weight, its product (with LoRA three, and a sum) and tanh, on the way to the loss,
      there for the factors of a gradient, and on the way back: 4 times as many in all.
    * tf32 shrinks every product by up to 2^-9, there and back.
    * Sums of K terms in float32: u' sqrt(K) / 3, and u' K / 16 where tensor cores cut off; tanh 4 u'.
    * The largest of all errors is within `high` deviations, the largest |value| at least `low` of its own.
    * A weight after the step has the gradient's error times the step, and roundings of float32.
    """
    n, products = problem.layers, 3 if problem.lora_rank else 1
    terms = max(problem.width, problem.batch)
    of_sum = math.sqrt(terms) / 3 + (terms / 16 if problem.dtype != "float32" else 0)
    error = UNIT_ROUNDOFF[problem.dtype] * math.sqrt(4 * n * (1 + 2 * products) / 3)
    error += FLOAT32 * math.sqrt(4 * n * products) * (4 + of_sum)
    error += 2 * n * products * 2 * TF32_CUT if problem.dtype == "tf32" else 0
    error *= math.exp(2 * math.sqrt(2 * n / problem.width))
    rank, width = problem.lora_rank, problem.width
    shapes = [(rank, width), (width, rank)] if rank else [(width, width)]
    gradients = [error * reach(math.prod(shape)) for shape in shapes]
    if problem.optimizer == "none":
        return gradients * n
    after = []
    for place, (gradient, (_, inputs)) in enumerate(zip(gradients, shapes, strict=True)):
        largest = 0.8 * math.sqrt(3 / inputs) * (0.1 if place else 1)
        step = _STEP[problem.optimizer] * _LARGEST_GRADIENT / math.sqrt(problem.batch)
        after.append(gradient * step / largest + 8 * FLOAT32)
    return gradients * n + after * n


def _examples() -> list[Training]:
    # Odd sizes, a single layer, segments that leave a rest, micro-batches of one row.
    sizes: list[dict[str, Any]] = [
        {"layers": 1, "width": 37, "batch": 5},
        {"layers": 5, "width": 19, "batch": 21, "segments": 2, "micro_batches": 3},
        {"layers": 7, "width": 33, "batch": 9, "segments": 3, "micro_batches": 9},
        {"layers": 4, "width": 24, "batch": 10, "segments": 4, "lora_rank": 5},
        {"layers": 3, "width": 29, "batch": 6, "micro_batches": 2, "lora_rank": 1},
    ]
    return [
        Training.model_validate({"optimizer": optimizer, "dtype": dtype, **size})
        for size, optimizer, dtype in itertools.product(
            sizes, ("none", "sgd", "adamw"), ("float32", "tf32", "bfloat16")
        )
    ]


IMPLEMENTATIONS: Implementations = {
    "eager": partial(_step, _one_by_one),
    "foreach": partial(_step, partial(_torch_optimizer, foreach=True, fused=False)),
    "fused": partial(_step, partial(_torch_optimizer, fused=True)),
    "bitsandbytes": _settled,
    "waiting": partial(_blocking, False),
    "emptying": partial(_blocking, True),
}
OPERATOR = Operator(Training, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), counted_on_cpu=True)
