"""Activation functions: y = f(x) of every element, and dx = f' dy.

Element-wise, so only n c h w counts, not how it is split. What the backward pass reads beside dy is what
PyTorch's autograd saves: the output y of relu, sigmoid and tanh, whose derivatives are functions of y,
and the input x of gelu and silu.

    relu       max(x, 0)                                     dx = dy where y > 0, else 0
    sigmoid    1 / (1 + e^-x)                                dx = dy (1 - y) y
    tanh       tanh x                                        dx = dy (1 - y^2)
    gelu       x Phi(x), Phi the normal distribution         dx = dy (Phi(x) + x phi(x))
    gelu-tanh  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) its derivative
    silu       x sigmoid(x)                                  dx = dy s (1 + x (1 - s)), s = sigmoid(x)

Sources: Hendrycks and Gimpel, "Gaussian Error Linear Units" (gelu, both forms, and silu).

Strongest known: torch's own kernels, measured as `aten`; but for gelu a copy of as many bytes is the limit.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from bench.spec import Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import WITH_FLOAT64, inductor, on_both, on_cuda

Function = Literal["relu", "sigmoid", "tanh", "gelu", "gelu-tanh", "silu"]
Direction = Literal["forward", "backward"]

_FLOP: Mapping[Function, tuple[int, int]] = {
    "relu": (1, 2), "sigmoid": (4, 3), "tanh": (6, 3), "gelu": (12, 15), "gelu-tanh": (12, 15), "silu": (5, 9)
}  # fmt: skip
_SPECIAL: Mapping[Function, tuple[int, int]] = {
    "relu": (0, 0), "sigmoid": (2, 0), "tanh": (1, 0), "gelu": (1, 2), "gelu-tanh": (1, 1), "silu": (2, 2)
}  # fmt: skip
"""Operations and special functions for an element, forward and backward."""


class Activation(Problem):
    """One activation function of a tensor `[n, c, h, w]`, forward or backward."""

    operator: ClassVar[str] = "activations"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "torch's own element-wise kernels, with out= or grad_input=", WITH_FLOAT64),
        inductor("torch.compile of the one function"),
        on_cuda("triton", "our streaming kernel, few instructions an element (elementwise.py)"),
    )

    function: Function
    direction: Direction = "forward"
    n: Size
    c: Size = 1
    h: Size = 1
    w: Size = 1

    @property
    def elements(self) -> int:
        """n c h w."""
        return self.n * self.c * self.h * self.w

    @property
    def flop(self) -> int:
        """Elements times a nominal count, since an exponential has no agreed number of operations.

        Forward: relu 1, sigmoid 4, silu 5, tanh 6, gelu 12 in both forms. Backward: relu 2, sigmoid and
        tanh 3 (the formula above), silu 9, gelu 15. They never bind.
        """
        return self.elements * _FLOP[self.function][self.direction == "backward"]

    @property
    def special_functions(self) -> int:
        """Elements times: an exponential and a reciprocal for a sigmoid, one for tanh, which GPUs have as one
        instruction; an exponential for Phi, another for phi. None of relu, nor of derivatives that use y."""
        return self.elements * _SPECIAL[self.function][self.direction == "backward"]

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """Forward x and y; backward what was saved (x or y) and dy, and dx."""
        image = TensorSpec((self.n, self.c, self.h, self.w))
        if self.direction == "forward":
            return {"x": image}, {"y": image}
        return {"saved": image, "dy": image}, {"dx": image}


PROBLEM = Activation
