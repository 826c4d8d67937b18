"""Two anchors timed by our clocks and by independent ones, in turns, in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from bench.device.detect import Device
from bench.doctor.finding import Finding, checked, failed
from bench.format import ratio_text
from bench.runner.rows import SEED
from bench.spec import DeviceKind
from bench.validation.clock_agreement import Comparison, Ratio, comparison
from bench.validation.instruments import Given, Reading, cpu_reading, cuda_readings, cupti_reading
from bench.worker.__main__ import make_bench
from bench.worker.measure_case import Bench

ANCHORS: Mapping[DeviceKind, Sequence[tuple[str, Given]]] = {
    "cpu": (
        ("clocks, GEMM", ("gemm", "onednn", {"dtype": "float32", "m": 512, "n": 512, "k": 512})),
        ("clocks, copy", ("stream", "aten", {"dtype": "float32", "kind": "copy", "length": 1 << 22})),
    ),
    "cuda": (
        ("clocks, GEMM", ("gemm", "cublas", {"dtype": "float16", "m": 4096, "n": 4096, "k": 4096})),
        ("clocks, copy", ("stream", "aten", {"dtype": "float32", "kind": "copy", "length": 1 << 26})),
    ),
}
"""Launches of a tenth of a millisecond and more, where fixed costs do not matter."""
ROUNDS = 6
AGREE = 0.02
APART = 0.10
"""Share beyond which no disturbance explains the difference."""
REMEDY = {
    "cpu": "Stop what else runs here and look again; python -m bench instruments asks at length.",
    "cuda": "Look again on an idle GPU; python -m bench instruments asks at length, on more cases.",
}
APART_REMEDY = (
    "Do not measure: one of the clocks lies. Run python -m bench instruments and report both outputs."
)


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding for each anchor, with warm data."""
    threads = device.sm_count if device.kind == "cpu" else 1
    torch.set_num_threads(threads)
    bench = make_bench(device.kind, device.cache_byte, SEED, device.uuid or None)
    with torch.no_grad():
        readings = {}
        for name, given in ANCHORS[device.kind]:
            readings[name] = _in_turns(bench, device.kind, given, threads)
            yield agreed(name, comparison(*readings[name]), device.kind)
        # The profiler comes last, since CUPTI stays attached; by then the clock may be another.
        for name, given in ANCHORS[device.kind] if device.kind == "cuda" else ():
            case, turns_s = readings[name]
            first = next(iter(turns_s))
            seen = cupti_reading("profiler", bench, given, ROUNDS)[1]
            yield profiled(name, comparison(case, {first: turns_s[first]} | seen))


def _in_turns(bench: Bench, kind: DeviceKind, given: Given, threads: int) -> Reading:
    """One anchor with warm data, timed by the instruments that can take turns in one process."""
    if kind == "cpu":
        return cpu_reading(bench, given, threads, ROUNDS)
    return next(iter(cuda_readings(bench, given, ROUNDS)))


def profiled(name: str, compared: Comparison) -> Finding:
    """Our clock beside the profiler, which measured later: a difference is never a failure."""
    finding = agreed(f"profiler, {name.removeprefix('clocks, ')}", compared, "cuda")
    return finding if finding.level != "FAIL" else replace(finding, level="WARN", remedy=REMEDY["cuda"])


def agreed(name: str, compared: Comparison, kind: DeviceKind) -> Finding:
    """How far the clocks are apart at one anchor.

    A CPU's clocks all read one counter, so only its neighbours can drive them apart: a difference there is no
    failure, and an interval that is too wide to decide gives no warning.
    """
    ours, *others = compared.median_s
    known = {other: ratio for other in others if (ratio := compared.ours_over[other]) is not None}
    unknown = [other for other in others if other not in known]
    ratios = {other: asdict(ratio) for other, ratio in known.items()}
    numbers: dict[str, Any] = {"median_s": compared.median_s, "ours_over": ratios}
    listed = ", ".join(f"{_text(ratio)} of {other}" for other, ratio in known.items())
    sentence = f"{compared.case}: {1e6 * compared.median_s[ours]:.1f} us by {ours}, {listed or 'alone'}."
    if unknown:
        sentence += f" No ratio to {', '.join(unknown)}."
    if kind == "cuda" and any(_least_off(ratio) > APART for ratio in known.values()):
        return failed(name, sentence, APART_REMEDY, **numbers)
    off = _least_off if kind == "cpu" else _off
    agree = not unknown and all(off(ratio) <= AGREE for ratio in known.values())
    return checked(name, agree, sentence, REMEDY[kind], **numbers)


def _text(ratio: Ratio) -> str:
    """The ratio, with its interval where it is far from 1."""
    if _off(ratio) > AGREE:
        return ratio_text(ratio.middle, ratio.low, ratio.high)
    return f"{ratio.middle:.3f}"


def _off(ratio: Ratio) -> float:
    return abs(ratio.middle - 1)


def _least_off(ratio: Ratio) -> float:
    """The smallest share by which two clocks may differ, by the interval of their ratio."""
    return max(0.0, ratio.low - 1, 1 - ratio.high)
