"""Lock of a GPU: one timed run at a time. The kernel releases it when its holder dies, however it dies.

The lock is `flock` on a file named by the GPU's UUID, so neither the GPU's number nor the user who measures
matters. The file holds a note for a run that is refused: which process has the lock, on which host (each
container is one), since when, doing what. It is emptied at the end; the next holder replaces what a killed
one has left.

The file lies in /dev/shm: it exists on every Linux, everyone may write to it, it is empty after a restart,
and containers that share it (`--ipc=host`) share the lock, as they would not with /tmp or $XDG_RUNTIME_DIR.
Containers that share a GPU but no folder do not see each other's locks, and other programs take none. For
both there is the count of foreign processes on the GPU, which stands in every row.

A CPU is not locked. Everything on the machine uses it, so a lock among our own runs would promise a quiet
that it cannot keep; and rows of a CPU record what neighbours took (pressure, steal), which is flagged.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from bench.errors import UserError

FOLDER = Path("/dev/shm")

_NOTE_LENGTH = 4096
"""No note is longer; whatever else may stand in such a file is not read to its end."""


@contextmanager
def device_lock(uuid: str, device: str, doing: str, folder: Path = FOLDER) -> Iterator[str]:
    """Hold the device of this UUID while the block runs; UserError if another run holds it.

    `device` is what a person calls it (`cuda:0 (NVIDIA H200)`), `doing` the purpose, for the note to a run
    that is refused (`results in DIR`). Yields an empty text, or a sentence to be shown on why the device
    could not be locked: the run may go on, but nothing then keeps a second one away. An empty UUID, as a CPU
    has, locks nothing.
    """
    if not uuid:
        yield ""
        return
    path = folder / f"roofbench-{uuid}.lock"
    try:
        descriptor = _locked(path, device)
    except OSError as error:
        yield f"{device} is not locked against a second run: {path}: {error.strerror or error}"
        return
    try:
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        _write(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since} ({doing})")
        yield ""
    finally:
        _write(descriptor, "")
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that was started and still has a copy
        os.close(descriptor)


def _locked(path: Path, device: str) -> int:
    """A descriptor of the locked file. UserError if another holds it, OSError if it cannot be locked."""
    descriptor = _opened(path)
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode) or opened.st_nlink > 1:
            raise OSError("is not a plain file of its own")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with os.fdopen(descriptor, errors="replace") as file:
            note = file.read(_NOTE_LENGTH)
        who = note if note.startswith("process ") and note.isprintable() else "another process"
        what_to_do = "wait for it, choose another with --bench-device, or stop it"
        raise UserError(f"{device} is being measured by {who}; {what_to_do}") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: Path) -> int:
    """Open the file, created if need be; read-only where it is another user's and we may not write.

    It never follows a symbolic link, which in a folder open to all could point at anyone's file, and never
    waits for the other end of a pipe.
    """
    careful = os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | careful, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever our umask: the next run may be another user's
        return descriptor
    except FileExistsError:  # O_CREAT on another's file is refused in such folders (fs.protected_regular)
        pass
    try:
        return os.open(path, os.O_RDWR | careful)
    except PermissionError:
        return os.open(path, os.O_RDONLY | careful)


def _write(descriptor: int, note: str) -> None:
    """Replace the note. Where that is not allowed, or the disk is full, the lock holds all the same."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)
