"""The parent's end of the worker: starts it, asks it, outlives it. Needs no torch."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

ENVIRONMENT = {
    # Freed memory stays with the worker: a fresh page for every output would be timed as the kernel's.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 46),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}
FORBIDDEN = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TRITON_INTERPRET")
"""Would change what a data type means, or interpret kernels, behind the sweep's back."""


class WorkerDied(RuntimeError):
    """The worker gave no answer. `status` is the row's: crashed or timeout."""

    def __init__(self, status: str, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Worker:
    """A child process that owns one device and answers one request at a time."""

    def __init__(
        self, kind: str, cache_byte: int, seed: int, uuid: str | None = None, threads: int | None = None
    ) -> None:
        """Start it. `uuid` makes one GPU the only visible one; `threads` None leaves torch's choice."""
        environment = {k: v for k, v in os.environ.items() if k not in FORBIDDEN}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        if kind == "cpu":
            environment |= ENVIRONMENT
        if uuid is not None:
            environment["CUDA_VISIBLE_DEVICES"] = uuid
        settings = {"kind": kind, "cache_byte": cache_byte, "seed": seed, "threads": threads}
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.measure.worker", json.dumps(settings)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self._received = b""

    @property
    def pid(self) -> int:
        """Process id, for those who want to kill it."""
        return self._process.pid

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """The answer. WorkerDied if the worker ends, or if `deadline_s` seconds pass (it is then killed)."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError):
            raise self._death() from None
        line = self._line(time.monotonic() + deadline_s)
        if line is None:
            self.kill()
            raise WorkerDied("timeout", f"no answer within {deadline_s:.0f} s; the worker was stopped")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line(self, until: float) -> bytes | None:
        """The next line; None when time is up. WorkerDied at the end of the stream."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                left = until - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                got = os.read(self._process.stdout.fileno(), 1 << 20)
                if not got:
                    raise self._death()
                self._received += got
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _death(self) -> WorkerDied:
        """What the exit status and the last words say."""
        code = self._process.wait()
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        words = self.last_words()
        return WorkerDied("crashed", f"the worker ended with {how}" + (f": {words}" if words else ""))

    def last_words(self) -> str:
        """The last line the worker wrote to standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End it: by closing its input, or by force if it does not follow."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()
        self._errors.close()
