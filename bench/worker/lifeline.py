"""First steps of a process: guard its standard output, which answers requests, and die with its parent."""

from __future__ import annotations

import ctypes
import io
import os
import resource
import signal
import sys
from typing import TextIO

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before any fork, after which a lock of the loader may be held for ever


def answers_only() -> TextIO:
    """The standard output, line by line, for answers alone: prints of libraries now go to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a kernel's file prints must not fail for its letters
        sys.stdout.reconfigure(errors="replace")
    return answers


def die_with(parent: int) -> None:
    """Have this process killed when its parent dies, even in the middle of a kernel.

    `parent` is the id of the process that started this one. If it is dead already, this process ends here. A
    program of others has it as its `preexec_fn`: what is set here outlives exec.
    Systems other than Linux cannot do this; there the process ends with its input. Core dumps are switched
    off: with a device's memory mapped they fill a disk.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform != "linux":
        return
    _LIBC.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
