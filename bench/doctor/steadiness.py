"""Check of steadiness: a large copy and a large product, visited as in a run again and again for ten seconds.

A machine that computes everything right may still be of no use for comparisons: its memory may change between
two speeds, or its clock may move. On a CPU some visits have a new process, as long as which a speed may last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

import kernels
from bench.device.detect import Device
from bench.device.nvml import NvmlGpu
from bench.doctor import rates, requests
from bench.doctor.finding import Finding, checked, failed, passed
from bench.format import amount_text, count_text, share_text
from bench.model.ceilings import two_speeds
from bench.runner.rows import SEED
from bench.runner.supervisor import WorkerSupervisor, measure_request
from bench.sampling.protocol import protocol
from bench.spec import DeviceKind, Problem
from bench.sweep.load import Case

COPY: dict[str, Any] = {"dtype": "float32", "kind": "copy", "length": 1 << 24}
PRODUCT: dict[str, Any] = {"dtype": "float32", "m": 1024, "n": 1024, "k": 1024, "layout": "NN"}
"""What a CPU does; a GPU, what `rates` holds against its datasheet."""
PROCESSES, ROUNDS = 3, 4
"""Processes, and visits to each of the two in every process."""
LONGEST_S, LEAST = 15.0, 6
"""Seconds after which a machine that is much slower has no more visits, and the visits made in any case."""
SAMPLING_S = 0.25
"""Most seconds that a visit samples: with all that comes beside it, the visits last ten seconds or so."""
STEADY: Mapping[DeviceKind, float] = {"cpu": 0.10, "cuda": 0.03}
"""Share by which the highest of the rates may exceed the lowest."""
CLOCK = 0.01
"""Share by which a clock that is fixed may seem to move, as it is read in steps."""
MEMORY_REMEDY = (
    "Expect wide intervals for all that works from memory; measure with --bench-visits 3 and compare by ab, "
    "which takes turns."
)
PRODUCTS_REMEDY = "Stop what else runs here, and look at power and heat; measure with --bench-visits 3."
CLOCK_REMEDY = "For comparisons fix the clock: sudo nvidia-smi --lock-gpu-clocks=MHZ, a value it can hold."
ROW_REMEDY = "Look at the lines above: mend what the row names first."


class Anchor(NamedTuple):
    """What is visited again and again."""

    name: str
    """Of its finding."""
    noun: str
    implementation: str
    problem: Problem
    unit: str

    @property
    def work(self) -> int:
        """FLOP or bytes of a launch."""
        return self.problem.byte if self.unit == "byte/s" else self.problem.flop


def anchors(kind: DeviceKind) -> tuple[Anchor, Anchor]:
    """A copy beyond every cache, and a product that fills the device."""
    copy, product = (COPY, PRODUCT) if kind == "cpu" else (rates.COPY, rates.GEMM)
    library = "onednn" if kind == "cpu" else "cublas"
    return (
        Anchor("steady memory", "copies", "aten", kernels.problem("stream")(**copy), "byte/s"),
        Anchor("steady products", "products", library, kernels.problem("gemm")(**product), "FLOP/s"),
    )


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on the memory, on the products, and on a GPU's clock."""
    with closing(WorkerSupervisor(device, SEED, rates.GRACE_S)) as supervisor:
        yield from steadiness(supervisor, device)


def steadiness(
    supervisor: WorkerSupervisor, device: Device, now: Callable[[], float] = time.perf_counter
) -> Iterator[Finding]:
    """How far apart the visits to each anchor are."""
    began_s = now()
    rows: dict[str, list[dict[str, Any]]] = {anchor.name: [] for anchor in anchors(device.kind)}
    for number in range(PROCESSES * ROUNDS):
        if number >= LEAST and now() - began_s > LONGEST_S:
            break
        if device.kind == "cpu" and number and number % ROUNDS == 0:  # a GPU's memory is not its process's
            supervisor.close()
        for anchor in anchors(device.kind):
            row = supervisor.answer(_request(anchor, device), SAMPLING_S)
            if row["status"] != "ok":
                yield failed(anchor.name, f"Its row is {requests.outcome(row)}.", ROW_REMEDY)
                return
            rows[anchor.name].append(row)
    lasted_s = now() - began_s
    for anchor in anchors(device.kind):
        speeds = [anchor.work / row["median_s"] for row in rows[anchor.name]]
        yield steady(anchor, speeds, lasted_s, device.kind)
    if device.kind == "cuda":
        clocks = [row["sm_clock_hz"] for each in rows.values() for row in each if row.get("sm_clock_hz")]
        highest_mhz = NvmlGpu(device.uuid).ask("nvmlDeviceGetMaxClockInfo", 1)  # NVML_CLOCK_SM
        yield clock(clocks, None if highest_mhz is None else 1e6 * highest_mhz)


def steady(anchor: Anchor, speeds: Sequence[float], lasted_s: float, kind: DeviceKind) -> Finding:
    """Whether these speeds, of every visit in `unit`, are one, two, or scattered."""
    low, high = min(speeds), max(speeds)
    spread = high / low - 1
    text = f"{count_text(len(speeds), 'visit')} to {anchor.noun} within {lasted_s:.0f} s"
    if both := two_speeds(speeds, least=2):
        shown = " and ".join(
            f"{amount_text(float(np.median(part)), anchor.unit)} in {len(part)}" for part in both
        )
        sentence = f"{text} have two speeds: {shown}."
    else:
        ends = f"{amount_text(low, anchor.unit)} to {amount_text(high, anchor.unit)}"
        sentence = f"{text}: {ends}, which is {share_text(spread)} apart."
    remedy = MEMORY_REMEDY if anchor.unit == "byte/s" else PRODUCTS_REMEDY
    return checked(anchor.name, spread <= STEADY[kind], sentence, remedy, speeds=list(speeds), spread=spread)


def clock(clocks: Sequence[float], highest_hz: float | None) -> Finding:
    """Whether a GPU's clock, in hertz after each visit, was the same for all the work."""
    if not clocks:
        return passed("steady clock", "The SM clock is unknown, as NVML does not report it.")
    low, high = min(clocks), max(clocks)
    numbers: dict[str, Any] = {"clocks": list(clocks), "highest_hz": highest_hz}
    of = "" if highest_hz is None else f" of at most {1e-6 * highest_hz:.0f} MHz"
    if high > (1 + CLOCK) * low:
        sentence = f"The SM clock is not locked: it was {1e-6 * low:.0f} to {1e-6 * high:.0f} MHz{of}."
        return checked("steady clock", high <= (1 + STEADY["cuda"]) * low, sentence, CLOCK_REMEDY, **numbers)
    is_lowered = highest_hz is not None and high < (1 - CLOCK) * highest_hz
    why = ": locked, or held there" if is_lowered else ""
    return passed("steady clock", f"The SM clock stayed at {1e-6 * high:.0f} MHz{of}{why}.", **numbers)


def _request(anchor: Anchor, device: Device) -> dict[str, Any]:
    case = Case("doctor", anchor.implementation, anchor.problem, "cold", series="", role="measurement")
    threads = device.sm_count if device.kind == "cpu" else None
    return measure_request(case, protocol(device.kind), None, SAMPLING_S, threads, first=False)
