"""First steps of a process that answers requests: guard its standard output, and die with its parent."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import TextIO

PR_SET_PDEATHSIG = 1


def answers_only() -> TextIO:
    """The standard output, line by line, for answers alone: prints of libraries now go to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def die_with(parent: int) -> None:
    """Have this process killed when its parent dies, even in the middle of a kernel.

    `parent` is the id of the process that started this one. If it is dead already, this process ends here.
    Systems other than Linux cannot do this; there the process ends with its input. Core dumps are switched
    off: with a device's memory mapped they fill a disk.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
