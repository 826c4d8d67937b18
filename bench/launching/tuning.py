"""Choosing among the configurations of one of our kernels: the device decides, once, and it is written down.

Choices lie in kernels/tuned, one JSON file for each device, readable and small: under the versions of
everything that makes or runs a kernel, under the operator with a hash of its sources, one line for each
question. A choice is used again only where all of these are the same; otherwise candidates are timed again.
What that takes is part of no measured time, and is reported (`Launch.tuning_s`).
"""

from __future__ import annotations

import ast
import ctypes
import fcntl
import functools
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
import triton
from triton.runtime.errors import OutOfResources

from bench.launching import timing
from bench.launching.ending import await_end, trusted
from bench.spec import Launch, Unsupported, cause

C = TypeVar("C")

_ROOT = Path(__file__).parents[2]
TUNED = _ROOT / "kernels" / "tuned"
_FIRST: ContextVar[bool] = ContextVar("first_that_compiles", default=False)


class Choices:
    """What has been chosen on one device, in memory and on disk."""

    def __init__(self, folder: Path, device: str, versions: str) -> None:
        """`device` names the file; what other versions chose stays in it, untouched and unused."""
        self.path = folder / f"{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}.json"
        self.versions = versions
        self._known: dict[str, dict[str, dict[str, Any]]] = {}

    def get(self, operator: str, question: str) -> dict[str, Any]:
        """The answer to this question as `put` was given it, here or elsewhere; empty if there is none."""
        known = self._known.setdefault(operator, {})
        if question not in known:
            self._known[operator] = known = self._read().get(self.versions, {}).get(operator, {}) | known
        return known.get(question, {})

    def put(self, operator: str, question: str, answer: dict[str, Any], lasting: bool = True) -> None:
        """Remember, and if `lasting` write down.

        A checkout that cannot be written to remembers for this process alone.
        """
        self._known.setdefault(operator, {})[question] = answer
        if not lasting:
            return
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


@contextmanager
def first_that_compiles() -> Iterator[None]:
    """Within it `tuned` takes the first candidate that compiles and fits the device.

    Nothing is timed, and no choices are read or written: for checks of what a kernel computes.
    """
    before = _FIRST.set(True)
    try:
        yield
    finally:
        _FIRST.reset(before)


def takes_first() -> bool:
    """Whether this is within `first_that_compiles`: what is chosen then is no choice to remember."""
    return _FIRST.get()


def tuned(
    question: tuple[object, ...],
    candidates: Sequence[C],
    launch: Callable[[C], Launch],
    compile: Callable[[C], object] | None = None,  # noqa: A002
    timed: int | None = None,
    doubt: Callable[[C], str] | None = None,
) -> Launch:
    """The launch of the candidate that takes least time on the current device (timing.py).

    It says which candidate that is, which were passed over, and how long choosing took.

    `question` begins with the operator's name and says all that a choice depends on; candidates are told
    apart by their text. The only candidate is taken untried. With `compile`, which makes a candidate's
    program without running it, they are compiled side by side first. A candidate that does not compile, that
    the device has no room for, or that cannot be captured in a CUDA graph is passed over. With `timed` only
    the first so many that run are timed, the others neither compiled nor tried. A candidate for which `doubt`
    returns a reason, after it ran, is passed over for it. If that is all of them: Unsupported where none fits
    or all are refused; RuntimeError, whose cause is the error of the compiler or of the capture, otherwise.
    Any other error of a launch is raised; Stuck where a launch does not end. Kernels that got stuck earlier
    in the run are passed over (ending.py).
    """
    begin = time.perf_counter()
    candidates, given_up = trusted(candidates)

    def chosen(candidate: C, passed_over: Iterable[str] = (), tuning_s: float = 0.0) -> Launch:
        passed_over = (*given_up, *passed_over)
        made = launch(candidate)
        return replace(made, tuning_s=tuning_s, passed_over=passed_over, configuration=str(candidate))

    if len(candidates) == 1:
        return chosen(candidates[0])
    passed_over: list[str] = []
    running = _running(candidates, launch, doubt, passed_over)
    if takes_first():
        return chosen(next(running), passed_over)
    choices = _choices(torch.cuda.current_device())
    operator = f"{question[0]} {_source(str(question[0]))}"
    text = " ".join(str(part) for part in question[1:]) or "any"
    before = choices.get(operator, text)
    for candidate in candidates:
        if str(candidate) == before.get("configuration"):
            return chosen(candidate, before.get("passed_over", ()))
    trying = time.perf_counter()
    if compile is not None:
        compile_side_by_side(candidates[:timed], compile)
    runnable = list(itertools.islice(running, timed))
    best, seconds = _quickest(runnable, launch, passed_over)
    answer = {
        "configuration": str(best),
        "median_us": round(1e6 * seconds, 2),
        "of": len(runnable),
        **({"passed_over": passed_over} if passed_over else {}),
        "tuning_s": round(time.perf_counter() - trying, 2),
    }
    # Without the kernels that this run has given up it is no choice for other runs.
    choices.put(operator, text, answer, lasting=not given_up)
    return chosen(best, passed_over, time.perf_counter() - begin)


def _quickest(runnable: list[C], launch: Callable[[C], Launch], passed_over: list[str]) -> tuple[C, float]:
    """(the quickest, seconds of its launch). What cannot be captured goes from `runnable` to `passed_over`.

    If that is all of them: what broke the last capture.
    """
    while True:
        makers = [functools.partial(_call, launch, candidate) for candidate in runnable]
        try:
            best, seconds = timing.quickest(makers)
        except timing.Uncaptured as error:
            if error.place is None or len(runnable) == 1:
                raise
            passed_over.append(f"{runnable.pop(error.place)}: {error}")
        else:
            return runnable[best], seconds


def _call(launch: Callable[[C], Launch], candidate: C) -> Callable[[], object]:
    return launch(candidate).call


def compile_side_by_side(candidates: Sequence[C], compile: Callable[[C], object]) -> None:  # noqa: A002
    """Fill Triton's cache from several threads. What fails to compile here fails again when it is tried.

    Triton 3.6 forgets a failed compilation and repeats it; 3.7 keeps it and raises the same error again.
    """
    with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
        for candidate in candidates:
            with suppress(Unsupported):
                compile(candidate)


def _running(
    candidates: Sequence[C],
    launch: Callable[[C], Launch],
    doubt: Callable[[C], str] | None,
    passed_over: list[str],
) -> Iterator[C]:
    """The candidates that run: each one's launch has been called and has finished.

    `candidate: reason` of the others goes to `passed_over`. If that is all of them: raises what `tuned` does.
    """
    not_compiled: Exception | None = None
    for candidate in candidates:
        try:
            launch(candidate).call()
        except Exception as error:
            if isinstance(error, Unsupported | OutOfResources):
                reason = str(error)
            elif within_compiler := _within_compiler(error):
                # Triton 3.7 keeps what a thread raised, hence also our frames and the tensors in them.
                error.with_traceback(within_compiler)
                reason, not_compiled = cause(error), not_compiled or error
            else:  # not the candidate's fault: the device's, or a mistake in our code
                raise
        else:
            # Two launches may share a workspace, so they must not overlap; a fault of the kernel shows here.
            await_end(candidate)
            reason = doubt(candidate) if doubt is not None else ""
            if not reason:
                yield candidate
                continue
        passed_over.append(f"{candidate}: {reason}")
    if len(passed_over) < len(candidates):
        return
    none = f"none of {len(candidates)} configurations"
    if not_compiled is not None:
        raise RuntimeError(f"{none} compiles; {passed_over[-1]}") from not_compiled
    raise Unsupported(f"{none} can run on this device; {passed_over[-1]}")


def _within_compiler(error: Exception) -> TracebackType | None:
    """The traceback from where Triton's compiler was entered; None if the error does not come from there.

    The compiler loads and launches nothing. What it raises is of many kinds (CompilationError, PTXASError,
    the RuntimeError of a pass), and a failed launch raises some of them too: so the place counts, not the
    class. A host that has no memory or disk left is no fault of the candidate.
    """
    if isinstance(error, OSError | MemoryError):
        return None
    compiler = triton.compile.__code__
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code is not compiler:
        here = here.tb_next
    return here


@functools.cache
def _choices(device: int) -> Choices:
    properties = torch.cuda.get_device_properties(device)
    made_by = versions(architecture=10 * properties.major + properties.minor)
    return Choices(TUNED, f"{properties.name} {properties.multi_processor_count} SM", made_by)


def versions(libcuda: str = "libcuda.so.1", architecture: int = 90) -> str:
    """What makes and runs our kernels: other versions, other choices.

    `libcuda` is the driver to ask; `architecture` (ten times the compute capability) decides which of the two
    ptxas that Triton has assembles.
    """
    from triton.backends.nvidia.compiler import get_ptxas

    ptxas = get_ptxas(architecture).version
    return f"triton {triton.__version__}, ptxas {ptxas}, {_driver(libcuda)}"


def _driver(libcuda: str) -> str:
    """The newest CUDA that the driver can run, as `CUDA driver 13.0`. Needs neither a GPU nor a context."""
    try:
        library = ctypes.CDLL(libcuda)
    except OSError:
        return f"no CUDA driver ({libcuda} cannot be loaded)"
    version = ctypes.c_int()
    if status := library.cuDriverGetVersion(ctypes.byref(version)):
        return f"CUDA driver of unknown version (cuDriverGetVersion returns {status})"
    return f"CUDA driver {version.value // 1000}.{version.value % 1000 // 10}"


@functools.cache
def _source(operator: str) -> str:
    """Short hash of the operator's files and of what they import of kernels/ and of here, directly or not.

    A kernel that was edited, or is chosen in another way (timing.py), has never been tuned. What is imported
    only where it is needed counts too. The files are read, since what a process has imported by now depends
    on what it was asked before.
    """
    files: set[Path] = set()
    left = set((_ROOT / "kernels" / operator).glob("*.py"))
    while left:
        files.add(path := left.pop())
        left |= set(_imported(path)) - files
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:8]


def _imported(path: Path) -> Iterator[Path]:
    """The modules of kernels/ and of bench/launching/ that a file imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):  # of a module, or modules of a package
            names = [f"{node.module}", *(f"{node.module}.{name}" for name in names)]
        for name in names:
            file = _ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith(("kernels.", "bench.launching.")) and file.is_file():
                yield file
