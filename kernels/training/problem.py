"""One training step of a chain of `layers` equal layers: forward pass, loss, backward pass, optimizer.

    layer      y = tanh(x W^T), W [width, width]; with `lora_rank` above 0 y = tanh(x W^T + x A^T B^T),
               A [rank, width] and B [width, rank]: LoRA, which trains A and B and leaves W as it is
    loss       mean square of y - t, times width / 2, over `batch` rows
    segments   1: what the backward pass needs of every layer is kept. More: the chain is cut into so many
               segments, as torch.utils.checkpoint.checkpoint_sequential cuts it (equal ones, the last with
               the rest); of all but the last only the input is kept, and they are computed again backward
    micro_batches   the batch in so many parts, one after the other, whose gradients are added up
    optimizer  none (gradients only), sgd (with momentum) or adamw

**The same work in every launch.** With an optimizer the launch owns its weights, and begins each time by
copying those of the inputs into them; `byte_moved` counts that. Its moments are carried from launch to
launch: since the gradient is the same every time, they stay at their fixed point (SGD's momentum has as
much dampening, and AdamW corrects its bias), so that weights after the step are equal in every launch.
Without an optimizer the inputs are the weights, and nothing is copied.

**Memory.** `peak_byte` leaves out a launch's inputs. With an optimizer it holds weights, gradients, moments
and activations: all that training needs but the data. With `none` gradients and activations, so that the
activations' part is not lost among weights.

**Data types.** float32 and tf32: everything is float32. bfloat16 is mixed precision, as torch.amp.autocast
does it: weights, gradients and moments float32, products and activations bfloat16.

`flop` are those of products that run: no gradient of x is computed.

Strongest known: `fused`, torch's own optimizers in one kernel. Apex and DeepSpeed have others, which are
not measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from bench.spec import Dtypes, Implementation, MatrixProblem, Size, Specs, TensorSpec
from kernels.implementations import AMPERE, ANY, on_both, on_cuda

Optimizer = Literal["none", "sgd", "adamw"]

OF_OPTIMIZER = ("foreach", "fused", "bitsandbytes")
"""Implementations that differ from `eager` in the optimizer alone."""
UPDATE_BYTE: Mapping[tuple[str, Optimizer], int] = {
    ("eager", "sgd"): 32, ("foreach", "sgd"): 32, ("fused", "sgd"): 20,
    ("eager", "adamw"): 80, ("foreach", "adamw"): 80, ("fused", "adamw"): 28, ("bitsandbytes", "adamw"): 16,
}  # fmt: skip
"""(implementation, optimizer) -> bytes that the update reads and writes for each parameter.

fused: parameter, gradient and moments once. eager and foreach: operator by operator, sgd `mul_` and `add_` of
the momentum and `add_` of the parameter; adamw `mul_`, `lerp_`, `mul_`, `addcmul_`, `sqrt`, `div`, `add_`,
`addcdiv_`.
"""
_RESTORED_BYTE = 8
"""Bytes for each trained parameter that is copied from the inputs."""

_DTYPES: Dtypes = {"float32": ANY, "tf32": AMPERE, "bfloat16": AMPERE}


class Training(MatrixProblem):
    """One step: `layers`, `width`, `batch`, `segments`, `micro_batches`, `optimizer`, `lora_rank`, `dtype`.

    Raises ValueError for more segments than layers, micro-batches that do not divide the batch, and a rank
    above the width.
    """

    operator: ClassVar[str] = "training"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("eager", "autograd, torch.utils.checkpoint, the optimizer parameter by parameter", _DTYPES),
        on_both("foreach", "the optimizer's operators on lists, torch's choice on a GPU", _DTYPES),
        on_both("fused", "the optimizer in one kernel for many parameters", _DTYPES),
        on_cuda("bitsandbytes", "AdamW of bitsandbytes with moments of 8 bits, if installed", _DTYPES),
        on_both("waiting", "as eager; the host waits until the step is done", _DTYPES),
        on_both("emptying", "as waiting, then gc.collect() and torch.cuda.empty_cache()", _DTYPES),
    )

    layers: Size
    width: Annotated[int, Field(ge=2)]
    batch: Size
    segments: Size = 1
    micro_batches: Size = 1
    optimizer: Optimizer
    lora_rank: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _possible(self) -> Training:
        if self.segments > self.layers:
            raise ValueError(f"{self.layers} layers cannot be cut into {self.segments} segments")
        if self.batch % self.micro_batches:
            raise ValueError(f"micro_batches {self.micro_batches} does not divide batch {self.batch}")
        if self.lora_rank > self.width:
            raise ValueError(f"lora_rank {self.lora_rank} is above width {self.width}")
        return self

    @property
    def trained_count(self) -> int:
        """Parameters that are trained."""
        return self.layers * self.width * (2 * self.lora_rank or self.width)

    @property
    def again(self) -> int:
        """Layers that are computed a second time: those of all segments but the last."""
        return self.layers // self.segments * (self.segments - 1)

    @property
    def flop(self) -> int:
        """FLOP: of each layer 3 products of W, 4 where it is computed again; of LoRA see the code."""
        square, thin = 2 * self.batch * self.width**2, 4 * self.batch * self.width * self.lora_rank
        forward = (self.layers + self.again) * (square + thin)
        through = (self.layers - 1) * square  # gradients of a layer's input, which x does not need
        if not self.lora_rank:
            return forward + through + self.layers * square
        # Through B for A's gradient, through A for the input's, and the gradients of both.
        return forward + through + self.layers * (thin // 2 + thin) + (self.layers - 1) * thin // 2

    @property
    def special_functions(self) -> int:
        """A tangent for each activation."""
        return (self.layers + self.again) * self.batch * self.width

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x, t and float32 weights of each layer: W, with LoRA A and B; and the gradients of what is trained.

        With an optimizer what is trained, too, is written.
        """
        x, (width, rank) = TensorSpec((self.batch, self.width)), (self.width, self.lora_rank)
        of_layer = {"W": (width, width)} | ({"A": (rank, width), "B": (width, rank)} if rank else {})
        weights = {
            f"{name}_{layer}": TensorSpec(shape, "float32")
            for layer in range(self.layers)
            for name, shape in of_layer.items()
        }
        trained = {name: spec for name, spec in weights.items() if not (rank and name[0] == "W")}
        gradients = {f"d{name}": spec for name, spec in trained.items()}
        written = gradients if self.optimizer == "none" else gradients | trained
        return {"x": x, "t": x, **weights}, written

    def byte_moved(self, implementation: str) -> int:
        """What products, tangents, casts, loss, sums of gradients and the optimizer read and write."""
        a, item = self._activation_byte, self.item_byte
        square, times = self.layers * self.width**2, self.micro_batches
        forward, again = self.layers, self.again
        # Each pass reads every weight once for each micro-batch.
        weights = item * square * times * (2 + again / forward)
        of_w = 0 if self.lora_rank else 2 * forward
        rows = a * (4 * (forward + again) + 3 * forward + 2 * (forward - 1) + of_w)
        gradients = 4 * self.trained_count * (1 + 3 * (times - 1))
        casts = (6 * (1 + again / forward) * (square + self._lora) + 6 * self.trained_count) * times
        thin = self.batch * self.lora_rank * item * (4 * forward + 2 * again)
        lora = item * self._lora * times * 3 + (thin + 6 * a * forward if self.lora_rank else 0)
        moved = weights + rows + gradients + lora + 4 * a + (casts if item == 2 else 0)
        if self.optimizer != "none":
            way = implementation if implementation in OF_OPTIMIZER else "eager"
            # What is refused has no bytes of its own.
            of_update = UPDATE_BYTE.get((way, self.optimizer), UPDATE_BYTE["fused", self.optimizer])
            moved += (of_update + _RESTORED_BYTE) * self.trained_count
        return max(self.byte, round(moved))

    def byte_again(self, implementation: str) -> int:
        """What is read beyond the inputs."""
        return max(0, self.byte_moved(implementation) - self.moved_written(implementation) - self.byte_read)

    def moved_written(self, implementation: str) -> int:
        """Activations and their gradients, gradients, weights copied and updated."""
        passes = 2 * (self.layers + self.again) + 2 * self.layers
        return self.byte_written + passes * self._activation_byte

    def refusal(self, implementation: str) -> str:
        """Only an optimizer can be fused, and only AdamW has an implementation by bitsandbytes."""
        if implementation in OF_OPTIMIZER and self.optimizer == "none":
            return f"{implementation} is a way to run the optimizer, and there is none"
        if implementation == "bitsandbytes" and self.optimizer != "adamw":
            return f"bitsandbytes is here for adamw, not for {self.optimizer}"
        return ""

    def probe(self) -> Training:
        """The same step of fewer layers and rows."""
        return self.at_most(layers=4, batch=64, segments=4, micro_batches=1)

    @property
    def _activation_byte(self) -> int:
        """Bytes of what one layer returns."""
        return self.batch * self.width * self.item_byte

    @property
    def _lora(self) -> int:
        return self.trained_count if self.lora_rank else 0


PROBLEM = Training
