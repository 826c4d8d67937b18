"""What rounding explains of the errors of a layer and of its gradients, for the inputs of operator.py."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernels.layer.problem import Kind, Layer
from kernels.rounding import FLOAT32, TF32_CUT, UNIT_ROUNDOFF, reach

_ROUNDINGS: Mapping[Kind, int] = {
    # x, 4 weights, q k v, q scaled, scores, p, o, its projection, the sum, the middle, h, gelu, the result
    "transformer": 16,
    # the same with gate and up apart, silu and its product, and two norms before the products
    "transformer-modern": 20,
    # of each of its layers: weights, bias, z, gelu
    "mlp": 4,
    # x and dy; of each convolution: the weights, z, what is normalized; the sum
    "bottleneck": 12,
}
"""Times that numbers are rounded on the longest way from x to y."""
_CONTRACTIONS: Mapping[Kind, int] = {"transformer": 6, "transformer-modern": 6, "mlp": 1, "bottleneck": 3}
"""Products or convolutions on that way."""
_WINOGRAD = 8
"""What cuDNN's algorithms for 3x3 may add to the errors of sums (kernels/convolution/rounding.py)."""


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
    layers = problem.depth if problem.kind == "mlp" else 1
    contractions = ways * layers * _CONTRACTIONS[problem.kind]
    roundings = ways**2 * layers * _ROUNDINGS[problem.kind]
    window = 9 if problem.kind == "bottleneck" else 1
    terms = max(problem.width, window * problem.inner, problem.length, problem.tokens * (ways - 1))
    of_sum = math.sqrt(terms) / 3 * (_WINOGRAD if problem.kind == "bottleneck" else 1)
    if problem.dtype != "float32":
        of_sum += terms / 16
    error = UNIT_ROUNDOFF[problem.dtype] * math.sqrt(roundings / 3)
    error += FLOAT32 * math.sqrt(contractions) * (4 + of_sum)
    return error + (contractions * 2 * TF32_CUT if problem.dtype == "tf32" else 0.0)
