"""How much memory a training step of a chain of layers holds at most: the formula behind `peak_byte`.

The guides' table counts bytes for each parameter: weights 4, gradients 4, moments 8 with AdamW, 4 with
SGD's momentum, 2 with AdamW of 8 bits; 16-bit copies of the weights in mixed precision. Activations are n of
an n-layer chain, and with s segments those of the longest and an input for each other: about 2 sqrt(n) at
best. Of k micro-batches each has 1/k of them.

These are not all there at once. Activations are freed backward as gradients come to be, so the peak is at the
end of the forward pass, when a segment begins or ends backward, or in the optimizer, which may need
temporaries: torch's `eager` AdamW three of one parameter's size, `foreach` one of each parameter's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MOMENTS_BYTE: Mapping[str, int] = {"none": 0, "sgd": 4, "adamw": 8}
"""Optimizer -> bytes of its moments for each trained parameter."""
MOMENTS_8_BIT_BYTE = 2
"""The same with AdamW of 8 bits."""
_FLOAT32 = 4


@dataclass(frozen=True)
class TrainingStep:
    """One training step, by the names of kernels/training/problem.py."""

    layers: int
    width: int
    batch: int
    segments: int
    micro_batches: int
    optimizer: str
    lora_rank: int
    dtype: str

    @property
    def trained(self) -> int:
        """Trained parameters of one layer."""
        return self.width * (2 * self.lora_rank or self.width)

    @property
    def parameters(self) -> int:
        """All parameters of one layer."""
        return self.trained + (self.width**2 if self.lora_rank else 0)

    @property
    def item_byte(self) -> int:
        """Bytes of an element of an activation."""
        return 2 if self.dtype == "bfloat16" else _FLOAT32

    def peak_byte(self, implementation: str) -> int:
        """Most bytes that it holds in addition to its inputs; with an optimizer, its weights are its own."""
        held = 0
        if self.optimizer != "none":
            eight_bit = implementation == "bitsandbytes"
            moments = MOMENTS_8_BIT_BYTE if eight_bit else MOMENTS_BYTE[self.optimizer]
            held = self.layers * (_FLOAT32 * self.parameters + moments * self.trained)
        return held + max(*self._passes(), self._update(implementation))

    @property
    def activation_byte(self) -> int:
        """What one layer returns for a micro-batch."""
        return self.batch // self.micro_batches * self.width * self.item_byte

    def _passes(self) -> Iterator[int]:
        """Bytes at the moments of the passes when there may be most."""
        a, mixed = self.activation_byte, self.item_byte == 2
        gradient = _FLOAT32 * self.trained
        # 16-bit copies; W of LoRA is copied anew at each use, and in the first layer it is not needed again.
        copied, frozen = (2 * self.trained, 2 * (self.parameters - self.trained)) if mixed else (0, 0)
        kept = a + a * self.lora_rank // self.width
        size = self.layers // self.segments
        sizes = [size] * (self.segments - 1) + [self.layers - size * (self.segments - 1)]

        def activations(inputs: int, layers: int) -> int:
            return inputs * a + layers * (kept + frozen) - (frozen if not inputs else 0)

        # Gradients of the micro-batches before, to which those of this one are added.
        done = self.layers * gradient if self.micro_batches > 1 else 0
        yield (
            done + activations(self.segments - 1, sizes[-1]) + self.layers * copied + (6 if mixed else 1) * a
        )
        loss = 6 if mixed else 2
        for inputs, layers in reversed(list(enumerate(sizes))):
            yield done + activations(inputs, layers) + layers * copied + loss * a
            rest = activations(inputs, layers - 1) + (layers - 1) * copied
            through = 2 if inputs + layers > 1 else 1  # the first layer's input needs no gradient
            yield done + rest + through * a + gradient + copied
            loss = 2
            done += layers * gradient if self.micro_batches == 1 else 0
            alone = gradient if self.micro_batches > 1 else 0
            yield done + inputs * a + alone + max(a, copied)

    def _update(self, implementation: str) -> int:
        temporaries = 0
        if self.optimizer == "adamw" and implementation == "foreach":
            temporaries = self.layers * self.trained
        elif self.optimizer == "adamw" and implementation not in ("fused", "bitsandbytes"):
            tensors = self.layers * (2 if self.lora_rank else 1)
            temporaries = min(3, tensors + 1) * self.trained // (2 if self.lora_rank else 1)
        return _FLOAT32 * (self.layers * self.trained + temporaries)
