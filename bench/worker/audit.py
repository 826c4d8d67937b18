"""Audit of a custom kernel after it was timed: do launches like the timed ones compute from their inputs?

A kernel could keep its results by address, compute once or only when it is checked, or return before another
thread or stream is done; right results before and after timing do not show it. So part of an input is changed
in place just before a launch, which is then compared with float64: a launch at random, into outputs that hold
what was right before, and the last one of the ring, into poison. On a GPU the graph that was timed is
replayed; launches by the stream are queued behind the change, so that work on another stream reads too early.
On a CPU a launch after a change must not take longer than one without, and no thread may go on after it.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bench.worker.cache_ring import RingSampler
from bench.worker.check import largest, outputs_of, poison, put_back, same, within
from bench.worker.clock import Clock

if TYPE_CHECKING:
    from bench.spec import Tensors
    from bench.worker.buffer_ring import BufferRing
    from bench.worker.visit import Visit

SHARE = 0.01
"""Share of a visit's sampling time that each part of an audit launches for at most; once is always."""
LATER = 1 / 3
"""Share of the later visits that are audited too."""
PAIRS = 10
"""Launches after a change, and without one, that are timed."""
KEPT = 1.5
"""Times as long as the median launch without one that the quickest launch after a change may take (assumed):
values of one range took the place of others, which no kernel that computes all of it notices."""
WATCH_S, BUSY_S = 0.2, 8e-3
"""Seconds for which a kernel's threads are watched, on a busy machine too, and processor seconds that one may
still use: two ticks of the clock by which they are counted."""
LIBC = ctypes.PyDLL(None)  # whose functions keep Python's lock
LIBC.memmove.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def unpaid(slots: BufferRing, clock: Clock, turns: RingSampler, visit: Visit, launch_s: float) -> str:
    """Why the timed launches did not do the work of a launch; empty if they did.

    The first visit to a case is audited with all there is, a later one with one launch, if chance will have
    it. What has no room for another copy of its inputs, or no input that could change, is not audited.
    """
    most_s, has_room = SHARE * visit.budget_s, 3 * slots.problem.byte_stored <= slots.bench.free_byte()
    if not has_room or (not visit.first and random.random() > LATER):
        return ""
    drawn = random.randrange(len(slots.calls))
    for slot, poisoned in ((drawn, False), (turns.last[0], True)) if visit.first else ((drawn, False),):
        if why := _changed_in_place(slots, clock, turns, slot, poisoned, most_s / launch_s):
            return why
    if not visit.first or clock.name != "host" or launch_s > most_s:
        return ""
    return _kept_by_content(slots, drawn, most_s)


def _changed_in_place(
    slots: BufferRing, clock: Clock, turns: RingSampler, slot: int, poisoned: bool, most: float
) -> str:
    """What is wrong with a launch of this slot right after part of its inputs has changed."""
    inputs = slots.inputs[slot]
    with put_back(inputs) as before:
        if not any(map(_thirds, inputs)):
            return ""

        def change() -> None:
            for tensor in inputs:
                _change(tensor)
            if poisoned:
                poison(slots.launches[slot].outputs)

        kept: Tensors = ()
        used_s: dict[threading.Thread, float] = {}

        def launch() -> Tensors:
            nonlocal kept, used_s
            written = outputs_of(slots.calls[slot]())
            kept = tuple(map(_at_once, written))
            used_s = _used_s()
            return written

        if clock.whole_turns:
            change()
            turns()
            written = kept = outputs_of((turns.captured or [])[slot])
        else:
            count = random.randint(0, int(min(turns.per_sample, clock.most_launches - 2, most)))
            others = [slots.calls[(slot - count + at) % len(slots.calls)] for at in range(count)]
            batch = clock.batch([*others, change, launch], False)
            batch()
            written = batch.written[-1]
        slots.bench.synchronize()
        if busy := _busy(used_s):
            return f"its thread {busy} goes on computing after a launch has returned"
        error, tolerance = slots.judged(slot, kept)
        if not all(map(_only_changed, inputs, before)):
            return "it changes its inputs, which other launches read"
        if within(error, tolerance):
            return ""
        if not all(map(same, kept, written)):
            return "its outputs were still being written after a launch had returned"
    return (
        f"relative error {error:.2e} of a launch whose inputs had changed in place: it hands out an earlier "
        "result, or returns before its work is done"
    )


def _kept_by_content(slots: BufferRing, slot: int, most_s: float) -> str:
    """What launches show whose input changes now and then, between two contents that are both known.

    They differ for one content, or take longer once it has changed: looking up a result was timed then.
    """
    call, inputs = slots.calls[slot], slots.inputs[slot]
    parts = next(filter(None, map(_thirds, inputs)), None)
    if parts is None:
        return ""
    with put_back(inputs):
        values = [part.clone() for part in parts]
        results: list[Tensors] = [_launched(slots, slot, parts[0], content) for content in values]
        for pairs, least in ((PAIRS, 3), (3 * PAIRS, 3 * PAIRS)):  # what few launches suggest, many must show
            taken_s: tuple[list[float], list[float]] = ([], [])
            ends = time.perf_counter() + most_s
            while len(taken_s[1]) < pairs and (len(taken_s[1]) < least or time.perf_counter() < ends):
                for changes in (False, True):
                    values, results = (values[::-1], results[::-1]) if changes else (values, results)
                    parts[0].copy_(values[0])
                    began = time.perf_counter()
                    written = call()
                    taken_s[changes].append(time.perf_counter() - began)
                    if changes and not _alike(slots, tuple(map(_at_once, outputs_of(written))), results[0]):
                        return (
                            "launches with the same inputs give different results, as if some did not compute"
                        )
            times = min(taken_s[1]) / statistics.median(taken_s[0])
            if times <= KEPT:
                return ""
    return f"a launch takes {times:.1f} times as long once its input has changed: it keeps results"


def _launched(slots: BufferRing, slot: int, part: torch.Tensor, content: torch.Tensor) -> Tensors:
    """Copies of what a launch of this slot writes, with this content in a part of its inputs."""
    part.copy_(content)
    return tuple(tensor.clone() for tensor in outputs_of(slots.calls[slot]()))


def _alike(slots: BufferRing, written: Tensors, before: Tensors) -> bool:
    """Whether two results are the same but for what their arithmetic explains, each from the right one."""
    allowed = slots.operator.tolerance(slots.problem, slots.implementation)
    each = [allowed] * len(written) if isinstance(allowed, float | int) else allowed
    apart = zip(written, before, each, strict=True)
    return all(largest(a.float() - b.float()) <= 2 * share * largest(b) for a, b, share in apart)


def _thirds(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(the middle third, the first third) along the first axis that has three; None if it may not change.

    Wide integers may not: they are indices, which mean something where they are. The views do not share the
    tensor's count of changes, by which a kernel could know of one.
    """
    axis = next((at for at, size in enumerate(tensor.shape) if size > 2), None)
    if axis is None or not (tensor.is_floating_point() or tensor.itemsize == 1):
        return None
    third = tensor.shape[axis] // 3
    return tensor.data.narrow(axis, third, third), tensor.data.narrow(axis, 0, third)


def _change(tensor: torch.Tensor) -> None:
    """Give the numbers in its middle other ones of its own, if it may have others."""
    if parts := _thirds(tensor):
        parts[0].copy_(parts[1])


def _only_changed(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether nothing but `_change` changed it; its middle is put back."""
    if (parts := _thirds(tensor)) and (middle := _thirds(before)):
        if not same(*parts):
            return False
        parts[0].copy_(middle[0])
    return same(tensor, before)


def _at_once(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of what is there now: on a CPU no other Python thread can begin to compute before it is made.

    So its memory is Python's: torch lets other threads run while it allocates.
    """
    if tensor.is_cuda or not tensor.numel() or not tensor.is_contiguous():
        return tensor.clone()
    memory = bytearray(tensor.nbytes)
    copy = (ctypes.c_char * len(memory)).from_buffer(memory)
    LIBC.memmove(ctypes.addressof(copy), tensor.data_ptr(), len(memory))
    return torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype).view(tensor.shape)


def _busy(before_s: dict[threading.Thread, float]) -> str:
    """The name of a Python thread of this process that works while this one does nothing, or ends; or empty.

    `before_s` are those that were there when a launch returned. OpenMP's threads, which spin for a while
    after the work of an operator, are none of Python's.
    """
    ends = time.perf_counter() + WATCH_S
    while before_s and time.perf_counter() < ends:
        time.sleep(WATCH_S / 20)
        after_s = _used_s()
        for each, before in before_s.items():
            if each not in after_s or after_s[each] - before > BUSY_S:
                return each.name
    return ""


def _used_s() -> dict[threading.Thread, float]:
    """Processor seconds of this process's other Python threads, where Linux tells."""
    used_s = {}
    for each in {*threading.enumerate()} - {threading.current_thread()}:
        with suppress(OSError):  # it has ended meanwhile
            told = Path(f"/proc/self/task/{each.native_id}/schedstat").read_text()
            used_s[each] = int(told.split()[0]) * 1e-9
    return used_s
