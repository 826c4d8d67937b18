"""The parent's side of the worker: starts it, sends requests and survives its death. Needs no torch.

A kernel may do anything to the process it runs in: kill it, hang it, fill its memory, write over it. So what
comes from there is not taken on trust: an answer must be whole, in time, and to the request. A worker that
fails once gets no further request.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.environment.dependencies import ROOT, child_environment

ENVIRONMENT = {
    # Freed memory stays with the worker: a fresh page for every output would be timed as the kernel's.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 46),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}
INTERPRET = "TRITON_INTERPRET"
"""Has Triton interpret kernels on the host: for checks of custom ones, where there is no GPU."""
FORBIDDEN = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING", INTERPRET)
"""Would change what a data type means, interpret kernels, or make the host wait for each launch, behind the
sweep's back."""
ERRORS_KEPT_BYTE = 1 << 16
"""The end of standard error that is kept: a kernel that prints for ever must fill neither disk nor memory."""
LOOK_S = 1.0
"""How often a silent worker is polled: while a child of its own holds the pipe, no end of file arrives."""
LAST_WORDS_S = 2.0
"""Seconds that a stopped worker has to report where it was."""
DEATH_S = 10.0
"""A process stuck in a driver cannot be killed: it is waited for this long, and then left behind."""

_FATAL = "Fatal Python error: "
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


class WorkerDied(RuntimeError):
    """The worker gave no answer. `status` is the row's: crashed or timeout."""

    def __init__(self, status: str, reason: str) -> None:
        self.status = status
        super().__init__(reason)


def device_environment(kind: str, uuid: str | None) -> dict[str, str]:
    """The environment of a process that owns a device of this kind; the GPU of this UUID is all it sees.

    It finds the packages that this process finds, and the kernels of this checkout.
    """
    environment = {k: v for k, v in child_environment().items() if k not in FORBIDDEN}
    if kind == "cpu":
        environment |= ENVIRONMENT
    if uuid is not None:
        environment["CUDA_VISIBLE_DEVICES"] = uuid
    return environment


class Worker:
    """A child process that owns one device and answers one request at a time."""

    def __init__(
        self,
        kind: str,
        cache_byte: int,
        seed: int,
        uuid: str | None = None,
        threads: int | None = None,
        module: str = "bench.worker",
        root: Path | None = None,
        interprets: bool = False,
    ) -> None:
        """Start it. `uuid` makes one GPU the only visible one; `threads` None leaves torch's choice.

        `interprets`: Triton's kernels run in its interpreter, which nothing may time.
        `module` is what it runs, of the checkout in `root` (default: this one). It dies with the thread that
        calls this (lifeline.py).
        """
        environment = device_environment(kind, uuid)
        environment |= {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        environment |= {INTERPRET: "1"} if interprets else {}
        settings = {"kind": kind, "cache_byte": cache_byte, "seed": seed, "uuid": uuid, "threads": threads}
        settings["parent"] = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(settings)],
            cwd=root or ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self._answers, self._errors = bytearray(), bytearray()
        self._heard = selectors.DefaultSelector()
        for stream, kept in ((self._process.stdout, self._answers), (self._process.stderr, self._errors)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._heard.register(stream, selectors.EVENT_READ, kept)

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """The answer. WorkerDied if the worker ends, if `deadline_s` seconds pass, or if it answers nonsense.

        However it failed, it is stopped, also where the request was interrupted: a late answer must not be
        taken for that to the next one.
        """
        try:
            return self._ask(request, time.monotonic() + deadline_s)
        except BaseException as error:
            death = self._stopped(deadline_s) if isinstance(error, TimeoutError) else error
            self.kill()
            raise death from None

    def _ask(self, request: dict[str, Any], until: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._hear(0.0)
        if self._answers:
            raise WorkerDied("crashed", f"the worker spoke unasked: {bytes(self._answers[:80])!r}")
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._ended() from None
        while b"\n" not in self._answers:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            if not self._hear(min(left_s, LOOK_S)):
                closed = self._process.stdout not in self._heard.get_map()
                if closed or self._process.poll() is not None:
                    raise self._ended()
        line, _, rest = bytes(self._answers).partition(b"\n")
        self._answers[:] = rest
        answer = _object(line)
        self._errors.clear()  # what it printed so far has nothing to do with how it may die later
        return answer

    def _hear(self, wait_s: float) -> bool:
        """Read its output for up to `wait_s` seconds; False if there was none."""
        heard = False
        for key, _ in self._heard.select(wait_s):
            got = os.read(key.fd, 1 << 20)
            key.data.extend(got)
            if got:
                heard = True
            else:
                self._heard.unregister(key.fileobj)
        del self._errors[:-ERRORS_KEPT_BYTE]
        return heard

    def _ended(self) -> WorkerDied:
        """The exception that the exit status and the last output call for."""
        self._until_over(DEATH_S)
        code = self._process.returncode
        if code is None:
            how = "closed a pipe and went on"
        elif code == -signal.SIGKILL:
            how = "was killed (SIGKILL), perhaps for memory"
        elif code < 0:
            name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
            how = f"ended with {name}"
        else:
            how = f"ended with exit code {code}"
        words = ", ".join(filter(None, last_words(self._all_errors())))
        return WorkerDied("crashed", f"the worker {how}" + (f": {words}" if words else ""))

    def _stopped(self, deadline_s: float) -> WorkerDied:
        """Stop it with a signal that lets the fault handler report where it was."""
        self._errors.clear()
        self._process.send_signal(signal.SIGABRT)
        self._until_over(LAST_WORDS_S)
        _, where = last_words(self._all_errors())
        reason = f"no answer within {deadline_s:.0f} s; the worker was stopped"
        return WorkerDied("timeout", f"{reason} {where}".rstrip())

    def _until_over(self, most_s: float) -> None:
        """Read until the process has ended: a process that still prints would wait for a reader."""
        until = time.monotonic() + most_s
        while self._process.poll() is None and (left_s := until - time.monotonic()) > 0:
            self._hear(min(left_s, 0.02))

    def _all_errors(self) -> str:
        self._hear(0.0)  # once: it takes in all that a pipe can hold
        return self._errors.decode(errors="replace")

    def kill(self) -> None:
        """Kill it and the processes it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH_S)

    def close(self) -> None:
        """End it: by closing its input, or by force if it does not follow."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._until_over(5.0)
        if self._process.poll() is None:
            self.kill()
        self._heard.close()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def _object(line: bytes) -> dict[str, Any]:
    """The content of an answer; WorkerDied if the line is no answer."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise WorkerDied("crashed", f"the worker answered nonsense: {line[:80]!r}")
    return answer


# ---- the cause of its death, in the few words that fit into a row's reason
#
# At a fatal signal Python's fault handler (PYTHONFAULTHANDLER) prints `Fatal Python error: ...` to standard
# error, then for each thread its frames, the innermost first, then a list of modules that is of no use here.


_HARNESS = re.compile("^<frozen|/lib/python|/bench/(worker|autotune|doctor)/")
"""Files of frames that are neither an operator's nor a custom kernel's."""


def last_words(text: str) -> tuple[str, str]:
    """(the last line before the fault handler's report, the place it names: `in function (file:line)`).

    Each is empty if there is none.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    begin = max((at for at, line in enumerate(lines) if line.startswith(_FATAL)), default=len(lines))
    before = [line.strip() for line in lines[:begin]]
    # C++ says what it threw before a long list of addresses.
    thrown = [line for line in before if line.startswith("what():")]
    words = (thrown or before or [""])[-1]
    return words if len(words) <= 300 else f"{words[:300]} ...", _place(lines[begin:])


def _place(report: list[str]) -> str:
    begin = next((at for at, line in enumerate(report) if line.startswith("Current thread ")), 0)
    frames = [frame for line in report[begin:] if (frame := _FRAME.fullmatch(line))]
    if not frames:
        return ""
    # The innermost frame is often inside torch; ours, or a custom kernel's, says which kernel it was.
    own = [frame for frame in frames if not _HARNESS.search(frame["file"])]
    frame = next((frame for frame in own if "/kernels/" in frame["file"]), [*own, *frames][0])
    file = "/".join(frame["file"].split("/")[-3:])
    return f"in {frame['function']} ({file}:{frame['line']})"
