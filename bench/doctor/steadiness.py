"""Steadiness: a large copy and a large product, again and again, and what the rows say of clock and NVML.

A machine that computes everything right may still be of no use for comparisons, as its memory may change
between two speeds, or its clock may move.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from statistics import median
from typing import Any, NamedTuple

import kernels
from bench.device.detect import Device
from bench.doctor.finding import Finding, checked, failed, outcome
from bench.format import amount_text, count_text, share_text, span_text
from bench.judge.flags import HELD
from bench.runner.supervisor import WorkerSupervisor, visit_to
from bench.sampling.protocol import protocol
from bench.spec import DeviceKind, Problem
from bench.sweep.load import Case

GRACE_S = 30.0
SAMPLING_S = 0.25
"""Most seconds of sampling in a visit: enough to distinguish a sound time from an unsound one."""
PROCESSES, ROUNDS = 3, 4
"""Processes, and visits to each anchor in every process, as a CPU's memory may have a speed for its life."""
LONGEST_S, LEAST_VISITS = 15.0, 6
"""Seconds after which a machine that is much slower has no more visits, and the visits made in any case."""
STEADY: Mapping[DeviceKind, float] = {"cpu": 0.10, "cuda": 0.03}
"""Share by which the highest of the rates may exceed the lowest (assumed)."""
LEAST, MOST = 0.60, 1.05
"""Shares of a datasheet's peak between which a large GEMM and a copy lie on a sound device (assumed)."""
LATE = 0.05
"""Share of a row's samples that may be late: an interrupted host makes some, and they are discarded."""
COLUMNS = (
    *("sm_clock_hz", "memory_clock_hz", "limit_reasons", "held_power", "held_thermal"),
    *("power_w", "power_limit_w", "temperature_c", "foreign_processes"),
)
"""Columns of a row that only NVML fills."""
MEMORY_REMEDY = "Expect wide intervals from memory; measure with a longer --bench-budget, compare by ab."
PRODUCTS_REMEDY = "Stop what else runs here; look at power and heat; measure with a longer --bench-budget."
RATE_REMEDY = (
    "Look at the clock, the power limit and the neighbours: a GPU that is held back measures its brake."
)
HIGH_REMEDY = "Do not measure: nothing exceeds its peak, so the clock or bench/device/datasheets is wrong."
CLOCK_REMEDY = "For comparisons fix the clock: sudo nvidia-smi --lock-gpu-clocks=MHZ, a value it can hold."
HEAT_REMEDY = "Look at cooling and power supply: within seconds of load neither should hold the clock."
NVML_REMEDY = "Measure all the same; a newer driver, or a host that lets NVML in, may fill them."
GRAPH_REMEDY = "Update the driver or torch: without graphs, times hold the gaps that the host leaves."
LATE_REMEDY = "Leave the processor to the run: the host was still queuing when the blocking kernel ended."
ROW_REMEDY = "Look at the lines above: mend what the row names first."


class Anchor(NamedTuple):
    """What is measured again and again."""

    name: str
    """Name of its finding."""
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
    product: dict[str, Any] = {"dtype": "float32" if is_cpu else "float16", "layout": "NN"}
    product |= dict.fromkeys("mnk", 1024 if is_cpu else 8192)
    library, gemm = "onednn" if is_cpu else "cublas", kernels.problem("gemm")(**product)
    return (
        Anchor("steady memory", "copies", "aten", kernels.problem("stream")(**copy), "byte/s"),
        Anchor("steady GEMM", "matrix multiplications", library, gemm, "FLOP/s"),
    )


def steadiness(device: Device) -> Iterator[Finding]:
    """The findings on the memory, on the products, and on a GPU's clock, NVML, graphs and late samples."""
    with closing(WorkerSupervisor(device, grace_s=GRACE_S)) as supervisor:
        yield from visited(supervisor, device)


def visited(
    supervisor: WorkerSupervisor, device: Device, now: Callable[[], float] = time.perf_counter
) -> Iterator[Finding]:
    """Visit each anchor in turns, in several processes on a CPU, and judge what the rows say."""
    began_s, settings = now(), protocol(device.kind)
    rows: dict[Anchor, list[dict[str, Any]]] = {anchor: [] for anchor in anchors(device.kind)}
    for number in range(PROCESSES * ROUNDS):
        if number >= LEAST_VISITS and now() - began_s > LONGEST_S:
            break
        if device.kind == "cpu" and number and number % ROUNDS == 0:  # a GPU's memory is not its process's
            supervisor.close()
        for anchor, of_anchor in rows.items():
            case = Case(
                "doctor", anchor.implementation, anchor.problem, "cold", series="", role="measurement"
            )
            threads = supervisor.threads("all")
            visit = visit_to(case, settings, SAMPLING_S, threads, first=not number)
            row = supervisor.visit(visit).columns()
            if row["status"] != "ok":
                yield failed(anchor.name, f"The row of {anchor.noun} is {outcome(row)}.", ROW_REMEDY)
                return
            of_anchor.append(row)
    for anchor, of_anchor in rows.items():
        speeds = [anchor.work / row["median_s"] for row in of_anchor]
        yield steady(anchor, speeds, now() - began_s, device)
    if device.kind == "cuda":
        yield from told([row for of_anchor in rows.values() for row in of_anchor])


def steady(anchor: Anchor, speeds: Sequence[float], lasted_s: float, device: Device) -> Finding:
    """Whether these speeds, of every visit in `unit`, are one or scattered, and can be true."""
    low, high, is_copy = min(speeds), max(speeds), anchor.unit == "byte/s"
    sentence = f"{count_text(len(speeds), 'visit')} to {anchor.noun} within {lasted_s:.0f} s"
    sentence += f": {span_text(amount_text(low, anchor.unit), amount_text(high, anchor.unit))}"
    sentence += f", which is {share_text(high / low - 1)} apart"
    peak = None
    if sheet := device.datasheet:
        peak = sheet.bandwidth_byte_per_s if is_copy else sheet.peak_flop_per_s("matrix", "float16")
    remedy = MEMORY_REMEDY if is_copy else PRODUCTS_REMEDY
    good = high <= (1 + STEADY[device.kind]) * low
    if peak is not None:
        share = median(speeds) / peak
        sentence += f"; {share_text(share)} of the datasheet's peak"
        if share > MOST:
            return failed(anchor.name, f"{sentence}.", HIGH_REMEDY)
        if share < LEAST:
            good, remedy = False, RATE_REMEDY
    return checked(anchor.name, good, f"{sentence}.", remedy)


def told(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """What the rows of a GPU say of its clock, of NVML, of graphs and of late samples."""
    by = {str(row["clock"]) for row in rows}
    yield checked("graphs", by == {"graph"}, f"Launches are timed by: {', '.join(sorted(by))}.", GRAPH_REMEDY)
    late = sum(row.get("late_samples") or 0 for row in rows)
    samples = late + sum(len(row["samples_s"]) for row in rows)
    sentence = f"{late} of {samples} samples were late."
    yield checked("late samples", late <= LATE * samples, sentence, LATE_REMEDY)

    lacking = [name for name in COLUMNS if all(row.get(name) is None for row in rows)]
    sentence = f"NVML fills {len(COLUMNS) - len(lacking)} of {len(COLUMNS)} columns."
    if lacking:
        sentence += f" Rows lack {', '.join(lacking)}."
    yield checked("NVML", not lacking, sentence, NVML_REMEDY)

    held = {name: max(row.get(name) or 0.0 for row in rows) for name in ("held_thermal", "held_hardware")}
    hertz = [row["sm_clock_hz"] for row in rows if row.get("sm_clock_hz")]
    if not hertz:  # the line above says so
        return
    sentence = f"The SM clock was {1e-6 * min(hertz):.0f} to {1e-6 * max(hertz):.0f} MHz; heat held it back "
    sentence += f"for {share_text(held['held_thermal'])}, hardware for {share_text(held['held_hardware'])}."
    is_held = max(held.values()) > HELD
    is_steady = max(hertz) <= (1 + STEADY["cuda"]) * min(hertz)
    remedy = HEAT_REMEDY if is_held else CLOCK_REMEDY
    yield checked("clock", is_steady and not is_held, sentence, remedy)
