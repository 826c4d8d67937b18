"""A block of a convolutional network in inference: convolution, normalization, activation function.

    y = activation(norm(x * w))      x [n, c, h, w], w [k, c, window, window], y [n, k, p, q]

    norm         none
                 batchnorm   (z - mean) / sqrt(variance + 1e-5) * weight + shift, all four [k], float32
                 layernorm   over the k channels of a pixel, with weight and shift [k]; NHWC only
    activation   relu, gelu (with erf), silu, sigmoid

The convolution is that of `kernels.convolution`, without groups, dilation or a bias; p, q and layouts are as
there. In inference batch normalization is linear, so it can be folded into the weights and a bias beforehand.

**Traffic.** What is unfused passes over y once more for each step, which reads it and writes it:

    implementation               passes after the convolution
    cudnn, onednn                one for norm, one for the activation function
    cudnn-folded, onednn-folded  one for the activation function; cuDNN's bias is one more
    inductor                     one for both
    cudnn-relu, onednn-fused     none

Strongest known: kernels that TensorRT and cuDNN's graphs build for a fused block, of which torch has
`cudnn-relu`, and on a CPU oneDNN's post-operations, `onednn-fused`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError, model_validator

from bench.spec import Dtypes, Implementation, MatrixProblem, Size, Specs, TensorSpec
from kernels.convolution.problem import Convolution, Layout
from kernels.implementations import AMPERE, FLOATS, PRODUCTS, inductor, on_cpu, on_cuda

Norm = Literal["none", "batchnorm", "layernorm"]
Function = Literal["relu", "gelu", "silu", "sigmoid"]

EPSILON = 1e-5
"""What normalization adds to the variance, torch's default."""
FEWEST_NORMALIZED = 16
"""Fewest channels that layernorm takes: the variance of a few may be so small that rounding explains all."""
STATISTICS_BYTE = 8
"""Mean and reciprocal standard deviation of a pixel, float32 each, which torch's layernorm writes."""

_CUDA: Dtypes = {**FLOATS, "float16": (5, 3), "bfloat16": AMPERE}
_SPECIAL: dict[Function, int] = {"relu": 0, "gelu": 1, "silu": 2, "sigmoid": 2}


class ConvolutionBlock(MatrixProblem):
    """One block: sizes, `norm`, `activation`, `layout`, `dtype`.

    Raises ValueError where the convolution is impossible, and for a layernorm of few channels or in NCHW.
    """

    operator: ClassVar[str] = "convolution_block"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("cudnn", "unfused: cuDNN's convolution (searched), then a kernel for each step", _CUDA),
        on_cuda("cudnn-folded", "batchnorm folded into cuDNN's weights and bias beforehand", _CUDA),
        on_cuda("cudnn-relu", "that, with bias and ReLU in cuDNN's kernel (cudnn_convolution_relu)", _CUDA),
        on_cpu("onednn", "unfused: oneDNN's convolution, then a kernel for each step", FLOATS),
        on_cpu("onednn-folded", "batchnorm folded into oneDNN's weights and bias beforehand", FLOATS),
        on_cpu("onednn-fused", "that, with the activation function in oneDNN's kernel", FLOATS),
        inductor("torch.compile: the library's convolution, then one kernel for the rest", PRODUCTS),
    )

    n: Size
    c: Size
    h: Size
    w: Size
    k: Size
    window: Size
    stride: Size = 1
    padding: Annotated[int, Field(ge=0)] = 0
    norm: Norm
    activation: Function
    layout: Layout

    @model_validator(mode="after")
    def _possible(self) -> ConvolutionBlock:
        try:
            self.convolution()
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
        if self.norm == "layernorm" and self.layout == "NCHW":
            raise ValueError("layernorm is over a pixel's channels, which lie together in NHWC, not in NCHW")
        if self.norm == "layernorm" and self.k < FEWEST_NORMALIZED:
            raise ValueError(f"layernorm needs at least {FEWEST_NORMALIZED} channels, not k = {self.k}")
        return self

    def convolution(self, bias: bool = False) -> Convolution:
        """The block's convolution."""
        names = ("n", "c", "h", "w", "k", "stride", "padding", "layout", "dtype")
        same: dict[str, Any] = {name: getattr(self, name) for name in names}
        return Convolution(direction="forward", window_h=self.window, window_w=self.window, bias=bias, **same)

    @property
    def flop(self) -> int:
        """FLOP of the convolution; the other steps' few are not counted, since they run on other units."""
        return self.convolution().flop

    @property
    def product(self) -> tuple[int, int, int]:
        """(m, n, k) of the convolution."""
        return self.convolution().product

    @property
    def special_functions(self) -> int:
        """Special functions for the elements of y: exponential, and of silu and sigmoid a reciprocal."""
        return _SPECIAL[self.activation] * self._elements

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x and w; four float32 for each channel for batchnorm, two of the data type for layernorm; y."""
        read, written = self.convolution().tensors
        names = {"batchnorm": "weight shift mean variance", "layernorm": "weight shift"}.get(self.norm, "")
        of_channel = TensorSpec((self.k,), "float32" if self.norm == "batchnorm" else None)
        return {**read, **dict.fromkeys(names.split(), of_channel)}, written

    def read_once(self, implementation: str) -> int:
        """What the convolution reads, and the parameters.

        What is folded is read as a bias, by cudnn-relu without a pass of its own.
        """
        parameters = 0 if self.folds(implementation) else self.byte_read - self.convolution().byte_read
        if implementation == "cudnn-relu":
            parameters = self.k * self.item_byte
        return self._convolved(implementation).read_once(_library(implementation)) + parameters

    def byte_again(self, implementation: str) -> int:
        """What the convolution reads again, and y for each pass that follows (see above)."""
        again = self._passes(implementation) * self.byte_written
        return self._convolved(implementation).byte_again(_library(implementation)) + again

    def moved_written(self, implementation: str) -> int:
        """What the convolution writes, y for each pass, and layernorm's statistics."""
        written = self._passes(implementation) * self.byte_written
        if self.norm == "layernorm" and implementation in ("cudnn", "onednn"):
            written += STATISTICS_BYTE * self._elements // self.k
        return self._convolved(implementation).moved_written(_library(implementation)) + written

    def folds(self, implementation: str) -> bool:
        """Whether batch normalization is part of the weights and a bias."""
        return self.norm == "batchnorm" and implementation.endswith(("-folded", "-relu", "-fused"))

    def refusal(self, implementation: str) -> str:
        """There must be something to fold; no convolution's kernel has layernorm; cuDNN's has ReLU only."""
        if implementation.endswith("-folded") and self.norm != "batchnorm":
            return f"{implementation} folds batchnorm into the weights; {self.norm} cannot be folded"
        if implementation.endswith(("-relu", "-fused")) and self.norm == "layernorm":
            return f"{implementation} has no layernorm in the convolution's kernel"
        if implementation == "cudnn-relu" and self.activation != "relu":
            return f"cudnn-relu has relu in cuDNN's kernel, not {self.activation}"
        return ""

    def probe(self) -> ConvolutionBlock:
        """The convolution's: 2 images, 64 channels in and out, 32 windows a side."""
        small = self.convolution().probe()
        return self.model_copy(update={name: getattr(small, name) for name in ("n", "c", "h", "w", "k")})

    @property
    def _elements(self) -> int:
        return self.byte_written // self.item_byte

    def _convolved(self, implementation: str) -> Convolution:
        """The convolution as it is computed: with a bias, which `Convolution` counts, where one is folded."""
        return self.convolution(bias=self.folds(implementation) and implementation != "cudnn-relu")

    def _passes(self, implementation: str) -> int:
        if implementation in ("cudnn", "onednn"):
            return 1 if self.norm == "none" else 2
        return 0 if implementation in ("cudnn-relu", "onednn-fused") else 1


def _library(implementation: str) -> str:
    """The implementation of `kernels.convolution` that computes the convolution."""
    return implementation.partition("-")[0]


PROBLEM = ConvolutionBlock
