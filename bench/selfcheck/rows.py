"""Checks by the rows of a worker: faults, CUDA graphs, steadiness and rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

import kernels
from bench.device.datasheet import Datasheet
from bench.device.detect import Device
from bench.device.nvml import NvmlGpu
from bench.format import amount_text, count_text, share_text
from bench.model.ceilings import two_speeds
from bench.runner.supervisor import WorkerSupervisor, check_request, measure_request
from bench.sampling.protocol import protocol
from bench.selfcheck.finding import Finding, checked, failed, passed, warned
from bench.spec import DeviceKind, Problem
from bench.sweep.grammar import Cache
from bench.sweep.load import Case
from bench.worker.fault import Fault

START_S, MEASURE_S = 60.0, 30.0
"""Seconds of grace for a row that may need a new worker, for a measurement."""
SAMPLING_S = 0.25
"""Most seconds of sampling in a visit: enough to distinguish a sound time from an unsound one."""


def measured(
    supervisor: WorkerSupervisor,
    implementation: str,
    problem: Problem,
    cache: Cache = "warm",
    threads: int | None = None,
    first: bool = True,
) -> dict[str, Any]:
    """The row of one visit, with the number of its samples in place of the samples; `first`: checked, too."""
    case = Case("doctor", implementation, problem, cache, series="", role="measurement")
    settings = protocol(supervisor.device.kind)
    row = supervisor.answer(measure_request(case, settings, None, SAMPLING_S, threads, first), SAMPLING_S)
    return row | {"samples": len(row.pop("samples_s", []))}


def outcome(answer: Mapping[str, Any]) -> str:
    """The status of a row with its reason: `error: AcceleratorError: ...`."""
    return f"{answer['status']}: {answer['reason']}" if answer.get("reason") else str(answer["status"])


# ---- an illegal address, a hang and a kill each give a row, and the next row is good

FAULTS = {
    "illegal": ("illegal address", ("error", "crashed")),
    "hang": ("hang", ("timeout",)),
    "kill": ("kill", ("crashed",)),
}
"""Fault -> the name of its finding, and the statuses that its row may have: an illegal address is an error on
a GPU, a crash on a CPU."""
HANG_S = 2.0
"""Seconds after which a launch counts as hung: a sound one takes microseconds."""
FAULT_REMEDY = (
    "Do not run unattended: one bad kernel would spoil the rows after it. Report it with the JSON file."
)


def survival(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding for each fault. Faults run side by side: starting new workers takes most of the time."""

    def of_fault(fault: str) -> Finding:
        with closing(WorkerSupervisor(device, grace_s=START_S)) as supervisor:
            return survived(supervisor, fault)

    with ThreadPoolExecutor(len(FAULTS)) as pool:
        findings = list(pool.map(of_fault, FAULTS))
    yield from {finding.name: finding for finding in findings}.values()


def survived(supervisor: WorkerSupervisor, fault: str) -> Finding:
    """Provoke a fault, and ask for a good result before and afterwards."""
    problem = Fault(dtype="float32", length=1024)
    good = check_request("good", problem, quick=True)
    first = supervisor.answer(good)
    if first["status"] != "ok":
        return failed("good row", f"A sound kernel's row is {outcome(first)}.", FAULT_REMEDY, row=first)
    name, allowed = FAULTS[fault]
    supervisor.grace_s = HANG_S if fault == "hang" else START_S
    row = supervisor.answer(check_request(fault, problem, quick=True))
    supervisor.grace_s = START_S
    after = supervisor.answer(good)
    # An error has to name the fault: a kernel that did not compile would prove nothing.
    another = row["status"] == "error" and fault not in str(row.get("reason", ""))
    if row["status"] not in allowed or another:
        sentence = f"Its row should be {' or '.join(allowed)}, and is {outcome(row)}."
    elif after["status"] != "ok":
        sentence = f"Its row is right, but a sound kernel's row after it is {outcome(after)}."
    else:
        return passed(name, f"Its row is {outcome(row)}; the next is ok.", row=row, after=after)
    return failed(name, sentence, FAULT_REMEDY, row=row, after=after)


# ---- CUDA graphs

CAPTURE_REMEDY = "Update the driver or torch: without graphs, times hold the gaps that the host leaves."
AFTER_REMEDY = (
    "Do not measure with this torch: rows after a failed capture may be wrong. Report the JSON file."
)


def capture(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on graphs: a launch is captured and replayed, a failed capture harms no later launch."""
    with closing(WorkerSupervisor(device, grace_s=START_S)) as supervisor:
        yield from captured(supervisor)


def captured(supervisor: WorkerSupervisor) -> Iterator[Finding]:
    """Measure a launch that can be captured, one that cannot, and the first again."""
    problem = Fault(dtype="float32", length=1 << 20)
    before = measured(supervisor, "good", problem)
    where = f"clock {before.get('clock')}, {before.get('kernels') or 'kernels not named'}"
    if before["status"] != "ok":
        yield failed("capture", f"A captured launch's row is {outcome(before)}.", CAPTURE_REMEDY, row=before)
        return
    if before["clock"] != "graph":
        yield failed("capture", f"A plain launch was not captured: {where}.", CAPTURE_REMEDY, row=before)
        return
    yield passed("capture", f"A launch was captured and replayed: {where}.", row=before)

    refused, after = (measured(supervisor, name, problem) for name in ("uncapturable", "good"))
    numbers: dict[str, Any] = {"refused": refused, "after": after}
    sentence, remedy = "A launch that queries its stream was captured all the same.", CAPTURE_REMEDY
    if refused.get("clock") != "graph" or refused["status"] != "ok":
        seen = f"A launch that cannot be captured gave {outcome(refused)} (clock {refused.get('clock')})"
        if after["status"] == "ok" and after["clock"] == "graph":
            yield passed("failed capture", f"{seen}; the next request was right, by graph.", **numbers)
            return
        sentence = f"{seen}; the next request gave {outcome(after)} (clock {after.get('clock')})."
        remedy = AFTER_REMEDY
    yield failed("failed capture", sentence, remedy, **numbers)


# ---- a large copy and a large product, again and again: a machine that computes everything right may still
# be of no use for comparisons, as its memory may change between two speeds, or its clock may move


class Anchor(NamedTuple):
    """What is measured again and again."""

    name: str
    """Name of its finding on steadiness."""
    short: str
    """Short name, in those of its other findings."""
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
    is_cpu = kind == "cpu"
    copy: dict[str, Any] = {"dtype": "float32", "kind": "copy", "length": 1 << (24 if is_cpu else 26)}
    side = 1024 if is_cpu else 8192
    product: dict[str, Any] = {"dtype": "float32" if is_cpu else "float16", "layout": "NN"}
    product |= dict.fromkeys("mnk", side)
    library, gemm = "onednn" if is_cpu else "cublas", kernels.problem("gemm")(**product)
    return (
        Anchor("steady memory", "copy", "copies", "aten", kernels.problem("stream")(**copy), "byte/s"),
        Anchor("steady GEMM", "GEMM", "matrix multiplications", library, gemm, "FLOP/s"),
    )


PROCESSES, ROUNDS = 3, 4
"""Processes, and visits to each anchor in every process, as a CPU's memory may have a speed for its life."""
LONGEST_S, LEAST_VISITS = 15.0, 6
"""Seconds after which a machine that is much slower has no more visits, and the visits made in any case."""
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
VISIT_REMEDY = "Look at the lines above: mend what the row names first."


def steadiness(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on the memory, on the products, and on a GPU's clock, rates and late samples."""
    with closing(WorkerSupervisor(device, grace_s=MEASURE_S)) as supervisor:
        yield from visited(supervisor, device)


def visited(
    supervisor: WorkerSupervisor, device: Device, now: Callable[[], float] = time.perf_counter
) -> Iterator[Finding]:
    """How far apart the visits to each anchor are, and on a GPU what share of the peaks they reach."""
    began_s = now()
    threads = device.sm_count if device.kind == "cpu" else None
    rows: dict[Anchor, list[dict[str, Any]]] = {anchor: [] for anchor in anchors(device.kind)}
    for number in range(PROCESSES * ROUNDS):
        if number >= LEAST_VISITS and now() - began_s > LONGEST_S:
            break
        if device.kind == "cpu" and number and number % ROUNDS == 0:  # a GPU's memory is not its process's
            supervisor.close()
        for anchor in rows:
            row = measured(
                supervisor, anchor.implementation, anchor.problem, "cold", threads, first=not number
            )
            if row["status"] != "ok":
                yield failed(anchor.name, f"Its row is {outcome(row)}.", VISIT_REMEDY)
                return
            rows[anchor].append(row)
    lasted_s = now() - began_s
    for anchor, of_anchor in rows.items():
        speeds = [anchor.work / row["median_s"] for row in of_anchor]
        yield steady(anchor, speeds, lasted_s, device.kind)
    if device.kind == "cuda":
        clocks = [row["sm_clock_hz"] for each in rows.values() for row in each if row.get("sm_clock_hz")]
        yield clock(clocks, NvmlGpu(device.uuid).max_sm_clock_hz())
        for anchor, of_anchor in rows.items():
            yield share(anchor, float(np.median([row["median_s"] for row in of_anchor])), device.datasheet)
        launch = measured(supervisor, "aten", kernels.problem("launch")(dtype="float32"))
        yield late([*(row for each in rows.values() for row in each), launch])


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


LATE = 0.05
"""Share of a row's samples that may be late: an interrupted host makes some, and they are discarded."""
LEAST, MOST = 0.60, 1.05
"""Shares of a datasheet's peak between which a large GEMM and a copy lie on a sound device."""
LOW_REMEDY = (
    "Look at the clock, power limit and neighbours above; a GPU that is held back measures its brake."
)
HIGH_REMEDY = (
    "Do not measure: nothing exceeds its peak, so the clock or bench/device/datasheets is wrong. Report it."
)
NO_PEAK_REMEDY = (
    "Add a device file with its peaks (bench/device/datasheets): without one no time is known to be too good."
)
LATE_REMEDY = "Leave the processor to the run: the host queued launches later than the spin lasted."


def share(anchor: Anchor, median_s: float, sheet: Datasheet | None) -> Finding:
    """The share of the datasheet's peak that an anchor reached."""
    rate, peak = anchor.work / median_s, None
    if sheet is not None:
        is_copy = anchor.unit == "byte/s"
        peak = sheet.bandwidth_byte_per_s if is_copy else sheet.peak_flop_per_s("matrix", "float16")
    numbers: dict[str, Any] = {"rate": rate, "peak": peak}
    seen = amount_text(rate, anchor.unit)
    if peak is None:
        sentence = f"{seen}; the datasheet knows no peak to compare it with."
        return warned(f"{anchor.short} rate", sentence, NO_PEAK_REMEDY, **numbers)
    sentence = f"{seen}: {share_text(rate / peak)} of the datasheet's {amount_text(peak, anchor.unit)}."
    if rate > MOST * peak:
        return failed(f"{anchor.short} rate", sentence, HIGH_REMEDY, **numbers)
    return checked(f"{anchor.short} rate", rate >= LEAST * peak, sentence, LOW_REMEDY, **numbers)


def late(rows: Sequence[Mapping[str, Any]]) -> Finding:
    """The samples that were discarded because the spin ended before all launches were queued."""
    counts = [row.get("late_samples") for row in rows]
    samples = [row["samples"] for row in rows]
    known = [count for count in counts if count is not None]
    starts = [row["clock_start_s"] for row in rows if row.get("clock_start_s") is not None]
    if not known:
        return warned("late samples", "Rows do not say how many samples were late.", VISIT_REMEDY)
    sentence = f"{sum(known)} late samples in {len(known)} rows"
    sentence += f"; a graph takes {1e6 * max(starts):.1f} us to start." if starts else "."
    numbers: dict[str, Any] = {"late": counts, "samples": samples, "starts": starts}
    few = all((count or 0) <= LATE * many for count, many in zip(counts, samples, strict=True))
    return checked("late samples", few, sentence, LATE_REMEDY, **numbers)
