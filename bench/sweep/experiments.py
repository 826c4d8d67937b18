"""The experiments and rules of the guides: the one list of their numbers, by which claims name them."""

from __future__ import annotations

from collections.abc import Mapping

_COUNT = {"MM": 23, "FC": 17, "CV": 20, "ML": 17, "RN": 10, "GB": 11, "PR": 9, "HW": 6, "TR": 11}
"""Group -> how many experiments it has: matrix products, fully-connected layers, convolution, memory-limited
layers, recurrent layers, GPU background, precision, hardware, training."""

EXPERIMENTS = tuple(
    f"{group}-{number:02}" for group, count in _COUNT.items() for number in range(1, count + 1)
)
"""Their numbers, such as MM-01."""

RULES: Mapping[int, str] = dict(
    enumerate(
        (
            "work where arithmetic is the limit, and know on which side you are",
            "where memory is the limit, do not tune for arithmetic",
            "align dimensions to 16 bytes",
            "linear layers: align batch, inputs and outputs",
            "convolution: align input and output channels",
            "recurrent layers: align mini-batch and hidden size",
            "unaligned sizes use Tensor Cores too, but more slowly",
            "from the A100 on, align to 128 bytes",
            "use TF32 for float32 code, or mixed precision",
            "choose sizes that 64 to 256 divide",
            "beyond 512 divisibility matters less",
            "one dimension should be well above 256",
            "M, N and K in multiples of 8: up to 6 times as fast",
            "larger matrices are more efficient",
            "raise the batch of a small linear layer",
            "too small a batch is limited by memory",
            "pad the first convolution's channels from 3 to 4",
            "convolution: channels and batch in multiples of 256",
            "larger convolutions are more parallel",
            "make the number of tiles a multiple of the SMs",
            "avoid tile quantization",
            "find the limit by operations for each byte",
            "early layers: dense convolution, not depthwise",
            "early layers: batch normalization, not layer normalization",
            "late layers: depthwise and layer normalization are acceptable",
            "ReLU is the best activation",
            "large images: shuffle pixels into channels",
            "channels in multiples of 16 (float16) or 32 (int8)",
            "a mini-batch in multiples of 8",
            "pad sequences to 16 or 32",
            "concatenate query, key and value",
            "NHWC, not NCHW",
            "4 channels or a multiple of 8",
            "batch and neurons above 128",
            "a vocabulary in multiples of 8",
            "pad the batch of tokens to a multiple of 8",
            "mixed precision with scaled gradients",
            "check that Tensor Cores are used",
            "2:4 sparsity",
            "gradient accumulation and checkpointing",
            "8-bit optimizers",
            "no bias before batch normalization",
            "a larger batch",
            "a faster data loader",
            "fused kernels",
            "empty_cache and gc.collect",
            "cudnn.benchmark with fixed sizes, TF32 on, deterministic off",
            "offloading and LoRA",
            "parallelism over devices",
            "memory-limited layers: try the implementations there are",
            "memory-limited layers: count memory accesses; no parameter helps",
            "memory-limited layers: know their share of a step",
            "fewer activations are the only way to faster activation functions",
            "learn the features of new architectures",
        ),
        start=1,
    )
)
"""Number of a rule -> what it says, in our words."""

LACKING: Mapping[int, str] = {
    49: "several GPUs",
}  # fmt: skip
"""Rule that no claim about runs of our own speaks to -> what that would need."""
HALF: Mapping[int, str] = {
    28: "convolution of int8 on a GPU", 37: "gradients of a trained network that scaling saves",
    44: "a data loader with its workers", 47: "changing sizes", 48: "offloading within a step",
}  # fmt: skip
"""Rule of which claims decide a part -> what the rest needs."""
