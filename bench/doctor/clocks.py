"""Two clocks: the same launches timed by ours and by torch.utils.benchmark, in turns, in one process.

The other reads the processor's counter around a block of launches, on a GPU after a synchronization: it
shares neither events nor graphs with our clock. A machine changes speed while it is watched, so turns are
short, and compared are the turns of the same round. The process is this module itself, run as a worker is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import median
from typing import Any

from bench.device.detect import Device
from bench.doctor.finding import Finding, checked, failed
from bench.doctor.steadiness import Anchor, anchors
from bench.format import ratio_text
from bench.runner.merge_visits import SEED
from bench.runner.worker_process import Worker
from bench.spec import DeviceKind
from bench.worker.lifeline import die_with

ROUNDS = 6
"""RingSampler of each clock. The lowest and highest of six ratios are a 97 % interval of their median."""
TURN_S = 0.12
DEADLINE_S = 60.0
AGREE, APART = 0.02, 0.10
"""Shares by which the clocks may differ, and beyond which no disturbance explains it."""
AGREE_REMEDY = "Look again when nothing else runs here: a restless machine sets two good clocks apart."
APART_REMEDY = "Do not measure: one of the clocks lies. Report this line."


def clocks(device: Device) -> Iterator[Finding]:
    """One finding for each anchor, warm."""
    threads = device.sm_count if device.kind == "cpu" else None
    settings = (device.kind, device.cache_byte, SEED, device.uuid or None, threads)
    with closing(Worker(*settings, module="bench.doctor.clocks")) as child:
        for anchor in anchors(device.kind):
            problem = anchor.problem
            asked = [problem.operator, anchor.implementation, problem.parameters()]
            yield agreed(anchor, child.ask({"asked": asked}, DEADLINE_S)["turns"], device.kind)


def agreed(anchor: Anchor, turns: Sequence[tuple[float, float]], kind: DeviceKind) -> Finding:
    """How far the clocks are apart; `turns` are seconds of a launch by ours and by the other, by round.

    A CPU's clocks all read one counter, so only its neighbours can drive them apart: there a difference is no
    failure, and an interval that is too wide to decide gives no warning.
    """
    ratios = sorted(ours / other for ours, other in turns)
    middle, least_off = median(ratios), max(0.0, ratios[0] - 1, 1 - ratios[-1])
    ours_s = median(ours for ours, _ in turns)
    shown = ratio_text(middle, ratios[0], ratios[-1])
    sentence = f"{anchor.noun}: {1e6 * ours_s:.1f} us by our clock, {shown} of torch.utils.benchmark's."
    if kind == "cuda" and least_off > APART:
        return failed("two clocks", sentence, APART_REMEDY)
    off = least_off if kind == "cpu" else abs(middle - 1)
    return checked("two clocks", off <= AGREE, sentence, AGREE_REMEDY)


# ---- in the process that has torch


def turns_of(bench: Any, operator: str, implementation: str, parameters: dict[str, Any]) -> list[list[float]]:
    """Seconds of a launch by our clock and by torch's timer in each of ROUNDS rounds."""
    import torch
    from torch.utils import benchmark

    import kernels
    from bench.sampling.stopping import collect
    from bench.worker.buffer_ring import BufferRing
    from bench.worker.cache_ring import RingSampler, launches_per_sample

    problem = kernels.problem(operator)(**parameters)
    slots = BufferRing(bench, kernels.operator(operator), implementation, problem, 1)
    slots.warm_launch_s()  # what a first call sets up must not be captured
    (call,) = slots.calls
    turns = RingSampler(bench.clock, [call], launches_per_sample(bench.clock, [call], bench.protocol), False)
    step_s = bench.clock.resolution_s / turns.per_sample
    block = turns.per_sample * (10 if bench.device.type == "cuda" else 1)
    timer = benchmark.Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())

    def ours() -> float:
        return median(collect(turns, bench.protocol, TURN_S, bench.now, step_s).samples_s)

    def other() -> float:
        # Blocks of as many launches as our samples have: where launches scatter to one side, as on a CPU, the
        # median of other blocks is another by some percent. On a GPU, where they do not, ten times as many:
        # each block ends with a synchronization of some 10 us.
        blocks, begin = list[float](), time.perf_counter()
        while not blocks or time.perf_counter() - begin < TURN_S:
            blocks.append(float(timer.timeit(number=block).median))
        return median(blocks)

    ours(), other()  # the first turn includes one-off costs
    rounds = []
    for number in range(ROUNDS):  # every other round goes backwards: a steady drift cancels
        reads = (ours, other) if number % 2 == 0 else (other, ours)
        read = {each: each() for each in reads}
        rounds.append([read[ours], read[other]])
    return rounds


def main() -> None:
    """Answer requests for the turns of a case, as the worker answers its own."""
    die_with(json.loads(sys.argv[1])["parent"])
    from bench.worker.__main__ import main as answer  # imports torch

    answer(lambda bench, request: {"turns": turns_of(bench, *request["asked"])})


if __name__ == "__main__":
    main()
