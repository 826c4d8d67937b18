"""What inference engines are timed at: linear layers that quantise, and what several GPUs do together."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bench.interop.imported_problems.counted import Counted, Counts, on_gpus
from bench.spec import ITEM_BYTE, PACKED, Dtypes, Implementation, Size

_HALF: Dtypes = {"bfloat16": (8, 0)}
_FLOAT8: Dtypes = {"float8_e4m3": (8, 9)}
_NVFP4: Dtypes = {"nvfp4": (10, 0)}


class QuantizedLinear(Counted):
    """y [batch, outputs] = x [batch, inputs] w' as an inference engine runs it: x and y are bfloat16.

    `dtype` is what is multiplied. Each launch quantises x to it; the weights are quantised beforehand.
    `scaling` says what has a scale of its own: all of x (`tensor`) or a `row` of it (the weights have one); a
    `block`, 128 elements of a row of x and 128 x 128 of the weights, in float32; a `group` of 16 elements of
    a row, in 8 bits, and one for the tensor (nvfp4).
    """

    operator: ClassVar[str] = "quantized_linear"
    arithmetic: ClassVar[Literal["matrix", "vector"]] = "matrix"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_gpus("torch.nn.functional.linear", "not quantised: what the others are compared with", _HALF),
        on_gpus("CutlassFP8ScaledMMLinearKernel", "vLLM's CUTLASS kernel, a scale for each row", _FLOAT8),
        *(
            on_gpus(f"{name}Fp8BlockScaledMMKernel", f"vLLM's choice of {name}, scales for blocks", _FLOAT8)
            for name in ("Cutlass", "DeepGemm", "FlashInfer", "Triton")
        ),
        *(
            on_gpus(f"FlashInfer{name}NvFp4LinearKernel", f"FlashInfer's {name} kernel", _NVFP4)
            for name in ("CuteDsl", "Cutlass")
        ),
    )

    scaling: Literal["none", "tensor", "row", "block", "group"]
    batch: Size
    inputs: Size
    outputs: Size

    def _quantized_byte(self, elements: int) -> int:
        return elements * ITEM_BYTE[self.dtype] // PACKED.get(self.dtype, 1)

    @property
    def counts(self) -> Counts:
        """2 batch inputs outputs FLOP, without quantising; x in bfloat16, the weights and their scales; y."""
        blocks = -(-self.inputs // 128) * -(-self.outputs // 128)
        groups = -(-self.inputs // 16) * self.outputs
        scales = {"none": 0, "tensor": 4, "row": 4, "block": 4 * blocks, "group": groups + 4}[self.scaling]
        weights = self.inputs * self.outputs
        return Counts(
            flop=2 * self.batch * weights,
            read=2 * self.batch * self.inputs + self._quantized_byte(weights) + scales,
            written=2 * self.batch * self.outputs,
        )

    @property
    def product(self) -> tuple[int, int, int]:
        """(m, n, k) in BLAS's order: outputs x batch, each a sum over the inputs."""
        return self.outputs, self.batch, self.inputs

    def beyond(self, implementation: str) -> Counts:
        """x again: read for a scale of the whole tensor, written quantised, read.

        Whether the quantised x goes through memory or a cache, the tables do not say.
        """
        if self.scaling == "none":
            return Counts()
        elements = self.batch * self.inputs
        quantized = self._quantized_byte(elements)
        scale = 2 * elements if self.scaling == "tensor" else 0
        return Counts(read=scale + quantized, written=quantized)


class Collective(Counted):
    """An operation that `gpus` GPUs do together; counts are those of one of them.

    `elements` is the larger of a GPU's two buffers: for all_gather its output, else its input. What goes from
    GPU to GPU is not counted, and no datasheet here has the rate of that.
    """

    operator: ClassVar[str] = "collective"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_gpus("NCCL", "NCCL, by nccl-tests", {"float16": (7, 0), "int8": (7, 0), "float32": (0, 0)}),
        on_gpus("vLLM_custom_graph", "vLLM's tensor_model_parallel_all_reduce in a CUDA graph", _HALF),
    )

    operation: Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall"]
    gpus: Annotated[int, Field(ge=2)]
    elements: Size

    @property
    def counts(self) -> Counts:
        """This GPU's input and output; gpus - 1 additions for each element of its share of the sums."""
        sums = self.operation in ("all_reduce", "reduce_scatter")
        buffer = self.elements * self.item_byte
        return Counts(
            flop=self.elements * (self.gpus - 1) // self.gpus if sums else 0,
            read=buffer // (self.gpus if self.operation == "all_gather" else 1),
            written=buffer // (self.gpus if self.operation == "reduce_scatter" else 1),
        )
