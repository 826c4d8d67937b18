"""Open facts of the hardware: each is observed in a process of its own and judged here.

    python -m studies.gpu.facts tf32|gluon|held|narrow|nvml SECONDS FILE

prints the numbers and, last, one line `yes: ...`, `no: ...` or `unknown: ...`; FILE gets them as JSON. On a
CPU this is a rehearsal, and says so: its libraries stand in for the GPU's, made-up readings for NVML's. The
part that needs torch is in on_device.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench.device.detect import detect
from bench.device.lock import device_lock
from bench.environment.dependencies import refuse_if_missing
from bench.errors import UserError, write_text
from bench.runner.worker_process import FORBIDDEN

ROUNDED_ERROR, CUT_ERROR = 2.6e-4, 6.9e-4
"""Relative error of a product of uniform random matrices whose operands were rounded to tf32, or cut off.

Computed on a CPU, as in the tests; of normal random matrices it is 2.9e-4 and 7.7e-4.
"""
CUT_BIAS = -6.3e-4
"""The part of CUT_ERROR that all elements share: cutting off makes every operand smaller."""


@dataclass
class GpuFact:
    """The answer to one question."""

    question: str
    answer: Literal["yes", "no", "unknown"]
    sentence: str
    """The observation, in a sentence that can stand alone."""
    numbers: dict[str, Any] = field(default_factory=dict)


def tf32(numbers: Mapping[str, Mapping[str, float]]) -> GpuFact:
    """Whether tf32 operands are rounded.

    `numbers`: implementation -> `error` (relative, of the whole product) and `bias` (its common part).
    """
    verdicts = {name: tf32_operands(each["error"], each["bias"]) for name, each in numbers.items()}
    words = "; ".join(f"{name} {how}" for name, how in verdicts.items()) or "nothing ran"
    known = {how for how in verdicts.values() if how in ("rounds", "cuts off")}
    answer: Literal["yes", "no", "unknown"] = "unknown"
    if verdicts and len(known) == len(set(verdicts.values())):
        answer = "yes" if known == {"rounds"} else "no"
    return GpuFact(
        "Are tf32 operands rounded?", answer, words, {name: dict(errors) for name, errors in numbers.items()}
    )


def tf32_operands(error: float, bias: float) -> str:
    """The conversion of the operands, judged by a product's relative error and bias."""
    if error < 1e-5:
        return "computes in float32"
    if error < 1.5 * ROUNDED_ERROR and abs(bias) < 0.15 * abs(CUT_BIAS):
        return "rounds"
    if 0.7 * CUT_ERROR < error < 1.5 * CUT_ERROR and 1.4 * CUT_BIAS < bias < 0.7 * CUT_BIAS:
        return "cuts off"
    if 0.3 * CUT_BIAS > bias > 0.7 * CUT_BIAS:
        return "cuts off one operand of two"
    return f"does neither (error {error:.1e}, bias {bias:.1e})"


@dataclass
class Trials:
    """What trials of kernels at random shapes have shown; each is named, with its error or the reason."""

    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Those that failed, that float64 does not confirm, or that gave other bits when repeated."""
    refused: list[str] = field(default_factory=list)
    """Those that do not run on this device, or with this Triton."""
    broken: str = ""
    """The one that hung or left the device unable to compute; none followed it."""
    shapes: list[str] = field(default_factory=list)
    """The problems of which something ran."""


def confirmed(question: str, nouns: str, trials: Trials, proof: str = "float64") -> GpuFact:
    """Whether all `nouns` are right.

    What a device refuses is no wrong result: it is said, and makes the answer unknown only if nothing ran.
    """
    right, wrong, refused = trials.right, trials.wrong, trials.refused
    of_all = f"{len(right) + len(wrong)} {nouns} of {len(trials.shapes)} shapes"
    absent = f"; {len(refused)} did not run, first {refused[0]}" if refused else ""
    numbers = asdict(trials)
    if trials.broken:
        words = f"{trials.broken}; before it {len(right)} of {of_all} were right"
        return GpuFact(question, "no", words, numbers)
    if wrong:
        words = f"{len(wrong)} of {of_all} are wrong, first {wrong[0]}{absent}"
        return GpuFact(question, "no", words, numbers)
    if right:
        return GpuFact(question, "yes", f"{of_all}, all confirmed by {proof}{absent}", numbers)
    return GpuFact(question, "unknown", refused[0] if refused else "nothing ran", numbers)


@dataclass(frozen=True)
class Refresh:
    """How often a counter was refreshed."""

    changes: int
    interval_s: float | None
    """Median time between changes; None with fewer than two."""
    longest_s: float | None


def refresh(times_s: Sequence[float], values: Sequence[float | None]) -> Refresh:
    """The refreshes of a counter that was read at these times; a value of None is an unknown one."""
    known = [(at, value) for at, value in zip(times_s, values, strict=True) if value is not None]
    changed = [at for (_, before), (at, value) in pairwise(known) if value != before]
    steps = [later - earlier for earlier, later in pairwise(changed)]
    return Refresh(len(changed), median(steps) if steps else None, max(steps, default=None))


def nvml(
    times_s: Sequence[float], counters: Mapping[str, Sequence[float | None]], expected_s: float
) -> GpuFact:
    """Whether NVML's energy counter is refreshed every `expected_s` seconds or sooner.

    `counters`: name -> its readings at these times; None where NVML did not report it.
    """
    question = f"Is NVML's energy counter refreshed every {1e3 * expected_s:.0f} ms or sooner?"
    refreshes = {name: refresh(times_s, values) for name, values in counters.items()}
    numbers = {name: asdict(counter) for name, counter in refreshes.items()}
    words = []
    for name, counter in refreshes.items():
        often = "never changed" if counter.interval_s is None else f"every {1e3 * counter.interval_s:.0f} ms"
        words.append(
            f"{name} {often}" if any(v is not None for v in counters[name]) else f"{name} is unknown"
        )
    energy = refreshes.get("energy")
    if energy is None or energy.interval_s is None or energy.longest_s is None:
        return GpuFact(question, "unknown", "; ".join(words) or "nothing is known", numbers)
    answer: Literal["yes", "no"] = "yes" if energy.interval_s <= expected_s else "no"
    return GpuFact(question, answer, "; ".join(words), numbers)


QUESTIONS = ("tf32", "gluon", "held", "narrow", "nvml")


def main(words: Sequence[str]) -> int:
    """Exit code 0 if the question was answered, 1 if it stays unknown. UserError for bad input."""
    if len(words) != 3 or words[0] not in QUESTIONS or not words[1].isdigit():
        raise UserError(f"give one of {', '.join(QUESTIONS)}, seconds, a JSON file to write")
    name, seconds, path = words[0], float(words[1]), Path(words[2])
    for variable in FORBIDDEN:
        os.environ.pop(variable, None)
    device = detect()
    if device.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid
    with device_lock(device.uuid, str(device), f"asking about {name}") as unlocked:
        if unlocked:
            print(unlocked, file=sys.stderr)
        from studies.gpu import on_device  # imports torch, whose environment is ready by now

        fact: GpuFact = getattr(on_device, name)(device, seconds)
    for key, value in fact.numbers.items():
        print(f"{key}: {value}")
    is_cpu = device.kind == "cpu"
    print(fact.question + (" (a rehearsal: this is a CPU)" if is_cpu else ""))
    # Flushed, as a kernel that hangs may keep this process from ending by itself.
    print(f"{fact.answer}: {fact.sentence}", flush=True)
    written = {"fact": name, "device": str(device), "rehearsal": is_cpu, **asdict(fact)}
    write_text(path, json.dumps(written, indent=1))
    return int(fact.answer == "unknown")


if __name__ == "__main__":
    refuse_if_missing()
    try:
        raise SystemExit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
