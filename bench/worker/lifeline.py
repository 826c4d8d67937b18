"""What a worker does first, so that nothing of it is left where nobody waits for its answer."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


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
