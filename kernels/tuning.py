"""Choosing among the configurations of one of our kernels: the device decides, once, and it is written down.

Choices lie in kernels/tuned, one JSON file for each device, readable and small: under the versions of
everything that makes or runs a kernel, under the operator with a hash of its source, one line for each
question. A choice is used again only where all of these are the same; otherwise the device is asked anew.
What that takes is part of no measured time, and is reported (`Launch.tuning_s`).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import triton
from triton.runtime.errors import OutOfResources, PTXASError

from bench.spec import Launch, Unsupported

C = TypeVar("C")

TUNED = Path(__file__).with_name("tuned")
_HERE = Path(__file__).parent
_REFUSALS = (OutOfResources, PTXASError)


class Choices:
    """What has been chosen on one device, in memory and on disk."""

    def __init__(self, folder: Path, device: str, versions: str) -> None:
        """`device` names the file; what other versions chose stays in it, untouched and unused."""
        self.path = folder / f"{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}.json"
        self.versions = versions
        self._known: dict[str, dict[str, dict[str, Any]]] = self._read().get(versions, {})

    def get(self, operator: str, question: str) -> str:
        """The configuration chosen for this question, as text; empty if it was never asked."""
        found = self._known.get(operator, {}).get(question, {})
        return str(found.get("configuration", ""))

    def put(self, operator: str, question: str, answer: dict[str, Any]) -> None:
        """Remember, and write down. A checkout that cannot be written to remembers for this process alone."""
        self._known.setdefault(operator, {})[question] = answer
        try:
            self._write(operator, question, answer)
        except OSError:
            return

    def _read(self) -> dict[str, Any]:
        try:
            read: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):  # none yet, or cut short by hand: ask the device
            return {}
        return read if isinstance(read, dict) else {}

    def _write(self, operator: str, question: str, answer: dict[str, Any]) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:  # each GPU of a kind has its own process
            fcntl.flock(lock, fcntl.LOCK_EX)
            everything = self._read()
            mine = everything.setdefault(self.versions, {}).setdefault(operator, {})
            mine[question] = answer
            part = self.path.with_suffix(f".{os.getpid()}")
            part.write_text(_text(everything), "utf-8")
            part.replace(self.path)


def _text(everything: dict[str, Any]) -> str:
    """JSON with one line for each choice, in order: read by people and compared by git."""
    versions = []
    for version, operators in sorted(everything.items()):
        parts = []
        for operator, choices in sorted(operators.items()):
            lines = [f"      {json.dumps(q)}: {json.dumps(choices[q])}" for q in sorted(choices)]
            parts.append(f"    {json.dumps(operator)}: {{\n" + ",\n".join(lines) + "\n    }")
        versions.append(f"  {json.dumps(version)}: {{\n" + ",\n".join(parts) + "\n  }")
    return "{\n" + ",\n".join(versions) + "\n}\n"


def fastest(
    question: tuple[object, ...],
    candidates: Sequence[C],
    launch: Callable[[C], Launch],
    compile: Callable[[C], object] | None = None,  # noqa: A002
) -> C:
    """The candidate whose launch replays quickest in a CUDA graph, on the current device.

    `question` begins with the operator's name and says all that a choice depends on; candidates are told
    apart by their text. Each is replayed for 2 ms, data warm where the cache holds it. With `compile`, which
    makes a candidate's program without running it, they are compiled side by side first. One that the
    device has no room for is passed over; Unsupported if that is all of them.
    """
    return _chosen(question, candidates, launch, compile)[0]


def tuned(
    question: tuple[object, ...],
    candidates: Sequence[C],
    launch: Callable[[C], Launch],
    compile: Callable[[C], object] | None = None,  # noqa: A002
) -> Launch:
    """The launch of the `fastest` candidate, with the seconds that choosing it took just now."""
    begin = time.perf_counter()
    candidate, asked = _chosen(question, candidates, launch, compile)
    spent_s = time.perf_counter() - begin if asked else 0.0
    return replace(launch(candidate), tuning_s=spent_s)


def _chosen(
    question: tuple[object, ...],
    candidates: Sequence[C],
    launch: Callable[[C], Launch],
    compile: Callable[[C], object] | None,  # noqa: A002
) -> tuple[C, bool]:
    """The candidate, and whether the device was asked."""
    if len(candidates) == 1:
        return candidates[0], False
    known = _choices(torch.cuda.current_device())
    operator = f"{question[0]} {_source(str(question[0]))}"
    text = " ".join(str(part) for part in question[1:]) or "any"
    before = known.get(operator, text)
    for candidate in candidates:
        if str(candidate) == before:
            return candidate, False
    begin = time.perf_counter()
    seconds = _timed(candidates, launch, compile)
    best = min(seconds, key=seconds.__getitem__)
    answer = {
        "configuration": str(candidates[best]),
        "median_us": round(1e6 * seconds[best], 2),
        "of": len(seconds),
        "tuning_s": round(time.perf_counter() - begin, 2),
    }
    known.put(operator, text, answer)
    return candidates[best], True


def _timed(
    candidates: Sequence[C],
    launch: Callable[[C], Launch],
    compile: Callable[[C], object] | None,  # noqa: A002
) -> dict[int, float]:
    """Seconds of one launch by place in the list, of those that the device has room for."""
    if compile is not None:
        # What fails to compile here fails again below, where it is passed over.
        with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
            for candidate in candidates:
                compile(candidate)
    seconds: dict[int, float] = {}
    refused: Exception | None = None
    for place, candidate in enumerate(candidates):
        try:
            call = launch(candidate).call
            call()  # compiles
            seconds[place] = 1e-3 * triton.testing.do_bench_cudagraph(call, rep=2, return_mode="median")
        except _REFUSALS as error:
            refused = error
    if not seconds:
        raise Unsupported(f"none of {len(candidates)} configurations fits this device: {refused}")
    return seconds


@functools.cache
def _choices(device: int) -> Choices:
    found = torch.cuda.get_device_properties(device)
    return Choices(TUNED, f"{found.name} {found.multi_processor_count} SM", versions())


def versions() -> str:
    """What makes and runs our kernels: other versions, other choices."""
    from triton.backends.nvidia.compiler import get_ptxas

    ptxas = get_ptxas(90).version
    driver = 0
    if torch.cuda.is_available():
        driver = torch._C._cuda_getDriverVersion()  # type: ignore[attr-defined]
    return f"triton {triton.__version__}, ptxas {ptxas}, CUDA driver {driver // 1000}.{driver % 1000 // 10}"


@functools.cache
def _source(operator: str) -> str:
    """Short hash of the operator's files: a kernel that was edited has never been tuned."""
    found = hashlib.sha256()
    for path in sorted((_HERE / operator).glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:8]
