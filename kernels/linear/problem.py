"""A fully-connected (linear) layer: y = x w' + bias, and the two gradients that training takes of it.

    forward               y [batch, outputs] = x w' + bias      x [batch, inputs], w [outputs, inputs]
    activation_gradient   dx [batch, inputs] = dy w             dy [batch, outputs]
    weight_gradient       dw [outputs, inputs] = dy' x          with bias also db [outputs], the sums of dy

Row-major, as torch holds them (nn.Linear stores w as [outputs, inputs]); ' transposes. Each is one GEMM of
the documents, which are column-major and call the weights A:

    direction             M         N         K         layout
    forward               outputs   batch     inputs    TN
    activation_gradient   inputs    batch     outputs   NN
    weight_gradient       inputs    outputs   batch     NT

So batch is the length of no row in memory: an odd one misaligns nothing.

`bias` adds the vector to y, forward, and sums its gradient along with dw. dx knows no bias.

Strongest known: cuBLASLt, which adds the bias as it stores; measured as `cublaslt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from bench.spec import DeviceKind, Implementation, MatrixProblem, Size, Specs, TensorSpec
from kernels.gemm.problem import INT8_LARGEST_K, Gemm, Layout

Direction = Literal["forward", "activation_gradient", "weight_gradient"]

AS_GEMM: Mapping[Direction, tuple[str, str, str, Layout]] = {
    "forward": ("outputs", "batch", "inputs", "TN"),
    "activation_gradient": ("inputs", "batch", "outputs", "NN"),
    "weight_gradient": ("inputs", "outputs", "batch", "NT"),
}
"""Which of the layer's sizes are m, n and k, and the layout."""


def _like_gemm(name: str, summary: str) -> Implementation:
    """The GEMM's implementation of this name, on its devices, for the data types that cuBLASLt has too."""
    of_gemm, common = Gemm.implementation(name), Gemm.implementation("cublaslt").dtypes
    dtypes = {dtype: lowest for dtype, lowest in of_gemm.dtypes.items() if dtype in common}
    return Implementation(name, summary, of_gemm.devices, dtypes)


class Linear(MatrixProblem):
    """One pass of one layer: `direction`, `batch`, `inputs`, `outputs`, `bias`, `dtype`."""

    operator: ClassVar[str] = "linear"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        _like_gemm("cublas", "what nn.Linear calls: torch.mm, addmm for a bias, sum for its gradient"),
        _like_gemm("cublaslt", "cuBLASLt called directly, its heuristic's first algorithm; a bias is fused"),
        _like_gemm("onednn", "torch.mm, addmm, sum on a CPU: MKL for float32 and float64, oneDNN below"),
        _like_gemm("triton", "our GEMM for this shape, a bias fused; its gradient is a second kernel"),
    )

    direction: Direction
    batch: Size
    inputs: Size
    outputs: Size
    bias: bool = False

    @model_validator(mode="after")
    def _exists(self) -> Linear:
        if self.bias and self.direction == "activation_gradient":
            raise ValueError("an activation gradient knows no bias")
        if self.item_byte == 1:
            if self.direction != "forward" or self.bias:
                raise ValueError(f"{self.dtype} layers are forward and without bias here")
            if self.dtype == "int8" and self.inputs > INT8_LARGEST_K:
                raise ValueError(f"int8 sums pass int32 beyond {INT8_LARGEST_K} inputs; given {self.inputs}")
        return self

    @property
    def gemm(self) -> Gemm:
        """The product, by the table above: M, N, K and layout. Without the bias."""
        m, n, k, layout = AS_GEMM[self.direction]
        return Gemm(
            m=getattr(self, m), n=getattr(self, n), k=getattr(self, k), layout=layout, dtype=self.dtype
        )

    @property
    def adds_bias(self) -> bool:
        """Whether y has a bias added."""
        return self.bias and self.direction == "forward"

    @property
    def sums_bias_gradient(self) -> bool:
        """Whether db is an output."""
        return self.bias and self.direction == "weight_gradient"

    @property
    def flop(self) -> int:
        """2 batch inputs outputs in each direction. Adding a bias or summing its gradient is not counted."""
        return self.gemm.flop

    @property
    def product(self) -> tuple[int, int, int]:
        """The GEMM's m, n, k."""
        return self.gemm.product

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """Both operands, forward also a bias or the scales of float8_e4m3; y, dx, or dw and with bias db."""
        x, w = TensorSpec((self.batch, self.inputs)), TensorSpec((self.outputs, self.inputs))
        dy, scale = TensorSpec((self.batch, self.outputs)), TensorSpec((1,), "float32")
        bias = {"b": TensorSpec((self.outputs,))} if self.bias else {}
        if self.direction == "activation_gradient":
            return {"dy": dy, "w": w}, {"dx": x}
        if self.direction == "weight_gradient":
            return {"dy": dy, "x": x}, {"dw": w} | bias
        scales = dict.fromkeys(("x_scale", "w_scale") if self.dtype == "float8_e4m3" else (), scale)
        return {"x": x, "w": w} | bias | scales, {"y": dy._replace(dtype=self.gemm.output_dtype)}

    def byte_again(self, implementation: str) -> int:
        """dy, which the bias gradient's own kernel reads after the product; or y with a copied bias."""
        if self.sums_bias_gradient:
            return self.byte_of(self.tensors[0]["dy"])
        return self.gemm.byte_written if self._copies_bias(implementation) else 0

    def moved_written(self, implementation: str) -> int:
        """The outputs; y twice on a CPU, where torch.addmm first copies the bias to every row of it."""
        return self.byte_written * (2 if self._copies_bias(implementation) else 1)

    def _copies_bias(self, implementation: str) -> bool:
        return self.adds_bias and implementation == "onednn"

    def refusal(self, implementation: str) -> str:
        """What the GEMM refuses; and no bias gradient by cuBLASLt."""
        if implementation == "cublaslt" and self.sums_bias_gradient:
            return "cublaslt is the product alone here, so it does no weight_gradient with bias"
        return _of_gemm(self.gemm.refusal(implementation))

    def missing(self, implementation: str, device: DeviceKind, capability: tuple[int, int] | None) -> str:
        """Why this device cannot run it, also by what the GEMM lacks there."""
        reason = super().missing(implementation, device, capability)
        return reason or _of_gemm(self.gemm.missing(implementation, device, capability))

    def probe(self) -> Linear:
        """At most 256 a side: a few milliseconds even where a type has no fast path."""
        return self.at_most(batch=256, inputs=256, outputs=256)


def _of_gemm(refusal: str) -> str:
    return f"as a GEMM: {refusal}" if refusal else ""


PROBLEM = Linear
