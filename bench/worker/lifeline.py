"""What a process that answers on standard output does first."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import TextIO

PR_SET_PDEATHSIG = 1


def answers_only() -> TextIO:
    """Standard output, line by line, for answers alone: what a library prints goes to standard error now."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def die_with(parent: int) -> None:
    """From now on this process is killed when its parent dies, even in the middle of a kernel.

    `parent` is the process id that started this one. If it is dead already, this process ends here. Where the
    kernel cannot do this (other than Linux) the end of the input must do. Core dumps are switched off: with a
    device's memory mapped they fill a disk.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
