"""Words for parameters on axes: `rows of A and C, m` instead of `m`.

The same parameter means different things to different operators: n is a width to a matrix product and a
batch to a pooling layer. Words that hold for one operator alone stand under its name.
"""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "batch": "batch size",
    "c": "channels, c",
    "h": "height of an image, h (pixels)",
    "inputs": "input features",
    "length": "row length (elements)",
    "n": "batch size, n (images)",
    "outputs": "output features",
    "stride": "stride (pixels)",
    "w": "width of an image, w (pixels)",
    "window": "pooling window (pixels a side)",
}
"""Name of a parameter along an axis -> words, with the unit if it is not a count of what the words name."""

PER: Mapping[tuple[str, ...], str] = {("n", "c", "h", "w"): "element of the input", ("steps",): "load"}
"""Parameters whose product durations are divided by -> what that counts."""

OF_OPERATOR: Mapping[str, Mapping[str, str]] = {
    "gemm": {
        "m": "rows of A and C, m",
        "n": "columns of B and C, n",
        "k": "columns of A and rows of B, k",
        "batch": "products of one launch",
    },
    "activations": {"n": "batch size, n"},
    "convolution": {
        "c": "input channels, c",
        "dilation": "dilation (pixels from tap to tap)",
        "groups": "groups of channels",
        "k": "output channels, k",
        "window_h": "window height (pixels)",
    },
    "convolution_block": {
        "c": "input channels, c",
        "k": "output channels, k",
        "window": "window (pixels a side)",
    },
    "layer": {
        "head_width": "width of a head (elements)",
        "length": "tokens of a sequence, or pixels a side of an image",
        "width": "width of the layer (features or channels)",
    },
    "fma": {
        "flop_per_byte": "operations for each byte (FLOP/B)",
        "length": "array length (elements)",
        "programs": "thread blocks",
    },
    "transfer": {"length": "elements of each copy"},
    "stream": {
        "kind": "kind of pass over memory",
        "length": "array length (elements)",
        "programs": "programs, one on each SM",
    },
    "attention": {
        "head_width": "width of a head (elements)",
        "heads": "attention heads",
        "kv_length": "keys of a sequence",
        "q_length": "queries of a sequence",
        "kv_heads": "heads of keys and values",
    },
    "latency": {"footprint_byte": "memory that is visited (bytes)", "steps": "loads of a chain"},
    "recurrent": {"hidden": "hidden features", "steps": "steps of a sequence"},
    "training": {
        "micro_batches": "micro-batches",
        "lora_rank": "rank of LoRA (0: all weights are trained)",
        "segments": "checkpoint segments",
        "width": "width of a layer (features)",
    },
}
"""Operator -> words for the parameters that only it has, or that mean something else to it.

Parameters of operators that only others' tables have keep their names.
"""


def axis_words(name: str, operator: str = "") -> str:
    """Words for a parameter of this operator along an axis; the name itself if there are none."""
    return OF_OPERATOR.get(operator, {}).get(name) or WORDS.get(name, name)
