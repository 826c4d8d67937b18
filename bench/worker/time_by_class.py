"""Seconds of a launch by class of work, as torch's profiler sees the operators that it calls.

Each operator's own time goes to the class of the operator: on a GPU the time of the kernels that it
launched, on a CPU the time that it computed. Operators that a norm is composed of (RMSNorm on a CPU), and
their gradients, belong to the norm: autograd's sequence numbers tell of which operator a gradient is.
Classes are those of Ivanov et al. 2020 (Data Movement Is All You Need, table 1).

The launch runs again for this, after the samples were taken. CUPTI, which the profiler loads on a GPU,
slows what a process launches later (github.com/pytorch/pytorch/issues/144455), so such a process must
measure nothing more. Untried on a GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

CALLS = 7
"""Calls that are profiled; of each class the median is taken, as other processes disturb single calls."""
_CALL = "roofbench: a call"
LEAST_KNOWN = 0.95
"""Share of the kernels' time that must belong to an operator of a known class."""
COLUMNS = ("contraction_s", "normalization_s", "elementwise_s")
BY = {"cuda": "kernels of torch's operators (profiler)", "cpu": "torch's operators (profiler)"}

CONTRACTION = (
    "mm", "addmm", "bmm", "baddbmm", "convolution_backward", "mkldnn_convolution", "cudnn_convolution",
    "_slow_conv2d_forward", "_slow_conv2d_backward", "thnn_conv2d", "_scaled_dot_product_flash_attention",
    "_flash_attention_forward", "_efficient_attention_forward", "_flash_attention_backward",
    "_efficient_attention_backward", "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention",
    "_cudnn_attention_forward", "_cudnn_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
)  # fmt: skip
"""torch's operators that multiply matrices or convolve, without `aten::`."""
NORMALIZATION = (
    "native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward",
    "native_batch_norm", "native_batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward",
    "_batch_norm_with_update", "batch_norm_backward", "_softmax", "_softmax_backward_data",
)  # fmt: skip
"""Kernels that reduce and scale."""
ELEMENTWISE = (
    "add", "add_", "sub", "mul", "mul_", "div", "div_", "neg", "pow", "rsqrt", "sum", "mean", "copy_",
    "cat", "fill_", "zero_", "relu", "clamp_min", "threshold_backward", "gelu", "gelu_backward", "silu",
    "silu_backward", "_amp_foreach_non_finite_check_and_unscale_",
)  # fmt: skip
"""Everything else that computes, sums of biases' gradients and copies among it; views do not."""
_NAMES = dict(zip(COLUMNS, (CONTRACTION, NORMALIZATION, ELEMENTWISE), strict=True))
_CLASS = {f"aten::{name}": column for column, names in _NAMES.items() for name in names}
_TRITON = {"triton_poi": "elementwise_s", "triton_per": "normalization_s", "triton_red": "normalization_s"}
"""Beginnings of the names of Inductor's kernels: pointwise, and reductions kept or looped."""
_BACKWARD = "autograd::engine::evaluate_function: "


def seconds(calls: Sequence[Callable[[], Any]], on_gpu: bool) -> dict[str, Any]:
    """contraction_s, normalization_s, elementwise_s of one call, and parts_by; empty if they are not known.

    Empty for a compiled launch on a CPU, whose loops are no operators, and where kernels of more than 5 %
    of the time belong to no class.
    """
    known = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[known.CPU, *([known.CUDA] if on_gpu else [])]) as profile:
        for call in calls[:CALLS]:
            with torch.profiler.record_function(_CALL):
                call()
        if on_gpu:
            torch.cuda.synchronize()
    return by_class(list(profile.events() or ()), on_gpu)


def by_class(events: Sequence[Any], on_gpu: bool) -> dict[str, Any]:
    """`seconds` from the profiler's events (torch.autograd.profiler_util.FunctionEvent) of some calls."""
    of_cpu = [event for event in events if event.device_type == DeviceType.CPU]
    normalizing = _normalizing(of_cpu)
    begins = sorted(event.time_range.start for event in of_cpu if event.name == _CALL)
    spent: list[Counter[str]] = [Counter() for _ in begins]
    for event in of_cpu:
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if place := bisect_right(begins, event.time_range.start):
            spent[place - 1][_class(event, normalizing)] += own * 1e-6
    known = {name: median(of_call[name] for of_call in spent) for name in COLUMNS}
    compiled = not on_gpu and any(event.name.startswith("Torch-Compiled Region") for event in of_cpu)
    of_gpu = (event.self_device_time_total for event in events if event.device_type != DeviceType.CPU)
    least_s = LEAST_KNOWN * sum(of_gpu) * 1e-6 / len(begins) if on_gpu else 0.0
    if compiled or not sum(known.values()) or sum(known.values()) < least_s:
        return {}
    return {**known, "parts_by": BY["cuda" if on_gpu else "cpu"]}


def _class(event: Any, normalizing: set[int]) -> str:
    """The column to which an operator's own time belongs; empty if to none."""
    of_inductor = (column for start, column in _TRITON.items() if event.name.startswith(start))
    mine = _CLASS.get(event.name) or next(of_inductor, "")
    if mine != "elementwise_s":
        return mine
    for parent in _ancestors(event):
        gradient = parent.name.startswith(_BACKWARD) and parent.sequence_nr in normalizing
        if gradient or _CLASS.get(parent.name) == "normalization_s":
            return "normalization_s"
    return mine


def _normalizing(events: Iterable[Any]) -> set[int]:
    """Sequence numbers of the operators that are parts of a norm.

    A number is passed on until an operator takes it, so it is that of the last one that began with it.
    """
    last: dict[int, Any] = {}
    for event in sorted(events, key=lambda event: event.time_range.start):
        if event.sequence_nr >= 0 and event.scope == 0 and not event.name.startswith(_BACKWARD):
            last[event.sequence_nr] = event
    return {
        number
        for number, event in last.items()
        if any(_CLASS.get(each.name) == "normalization_s" for each in _ancestors(event))
    }


def _ancestors(event: Any) -> Iterable[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent
