"""The lock on a device: two runs, runs that were killed, and files that are not what they should be."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.device.lock import device_lock
from bench.errors import UserError

UUID = "GPU-5f1b2c3d-0000-4444-8888-0123456789ab"
GPU = "cuda:0 (NVIDIA H200)"
WAY_OUT = "; wait for it, choose another with --bench-device, or stop it"


class Holder:
    """Another process that takes the lock, says what came of it, and holds it until told to end.

    A fork, so that one which goes on as another user need read no file.
    """

    def __init__(self, folder: Path, user: int | None = None) -> None:
        told, tell = os.pipe()
        wait, self.release = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.release)
            signal.alarm(20)  # one that waits for ever says nothing
            try:
                if user is not None:
                    os.setgid(user)
                    os.setuid(user)
                with device_lock(UUID, GPU, "results in /of/the/holder", folder) as why:
                    os.write(tell, (why or "held").encode() + b"\n")
                    os.read(wait, 1)
            except BaseException as raised:
                os.write(tell, str(raised).encode() + b"\n")
            os._exit(0)
        for end in (tell, wait):
            os.close(end)
        with os.fdopen(told) as answer:
            self.said = answer.readline().strip()

    def end(self) -> None:
        os.close(self.release)
        os.waitpid(self.pid, 0)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.end()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path)
    assert holder.said == "held"
    yield holder
    holder.kill()


def file(folder: Path) -> Path:
    return folder / f"roofbench-{UUID}.lock"


def taken(folder: Path) -> str:
    """What one who wants the lock is told; empty if he gets it."""
    with device_lock(UUID, GPU, "results in r", folder) as why:
        return why


def refused(folder: Path) -> str:
    with pytest.raises(UserError) as busy:
        taken(folder)
    return str(busy.value)


def test_a_second_run_is_told_who_has_the_device_since_when_and_what_to_do(
    held: Holder, tmp_path: Path
) -> None:
    said = refused(tmp_path)
    who = rf"process {held.pid} on {re.escape(socket.gethostname())} since \d+-\d+-\d+ \d\d:\d\d UTC"
    told = rf"{re.escape(GPU)} is being measured by {who} \(results in /of/the/holder\){re.escape(WAY_OUT)}"
    assert re.fullmatch(told, said), said
    second = Holder(tmp_path)
    assert second.said == said
    second.end()
    assert refused(tmp_path) == said, "the one refused took nothing away"


def test_a_holder_that_ends_or_is_killed_frees_the_device(tmp_path: Path) -> None:
    for end in (Holder.end, Holder.kill, Holder.kill, Holder.end):
        holder = Holder(tmp_path)
        assert holder.said == "held"
        assert refused(tmp_path)
        end(holder)
        assert taken(tmp_path) == ""


def test_a_cpu_is_never_locked(tmp_path: Path) -> None:
    with (
        device_lock("", "cpu", "results in r", tmp_path) as first,
        device_lock("", "cpu", "results in r", tmp_path) as why,
    ):
        assert first == why == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "rm -rf /", "process 1\n", "process 1 \x00", "\xff\x00" * 100])
def test_a_note_that_no_run_wrote_names_nobody(held: Holder, tmp_path: Path, text: str) -> None:
    file(tmp_path).write_text(text, encoding="latin-1")
    assert refused(tmp_path) == f"{GPU} is being measured by another process{WAY_OUT}"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.symlink_to(path.parent / "victim"), "symbolic link"),
        (lambda path: os.link(path.parent / "victim", path), "is not a plain file of its own"),
        (lambda path: os.mkfifo(path), "is not a plain file of its own"),
        (lambda path: path.mkdir(), "Is a directory"),
    ],
)
def test_a_trap_in_its_place_is_not_stepped_into_but_said(tmp_path: Path, make: object, says: str) -> None:
    """The run may go on: it is told that nothing keeps a second one away."""
    assert callable(make)
    (tmp_path / "victim").write_text("precious")
    make(file(tmp_path))
    said = taken(tmp_path)
    assert said.startswith(f"{GPU} is not locked against a second run: {file(tmp_path)}: ") and says in said
    assert (tmp_path / "victim").read_text() == "precious"


NOBODY_USER = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
class TestAnotherUser:
    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        """Where another user can reach it, open to all and sticky, as /dev/shm is."""
        made = Path(tempfile.mkdtemp())
        made.chmod(0o1777)
        yield made
        shutil.rmtree(made)

    def test_our_file_is_theirs_to_lock_too(self, folder: Path) -> None:
        assert taken(folder) == ""
        other = Holder(folder, NOBODY_USER)
        assert other.said == "held"
        assert f"process {other.pid} on " in refused(folder)
        other.end()
        assert taken(folder) == ""

    @pytest.mark.parametrize(
        ("make", "mode", "says"),
        [(os.mknod, 0o600, "Permission denied"), (os.mkfifo, 0o644, "is not a plain file of its own")],
    )
    def test_what_they_cannot_lock_is_said_and_not_waited_for(
        self, folder: Path, make: Callable[[Path], None], mode: int, says: str
    ) -> None:
        make(file(folder))
        file(folder).chmod(mode)
        other = Holder(folder, NOBODY_USER)
        assert other.said.startswith(f"{GPU} is not locked against a second run: {file(folder)}: ")
        assert other.said.endswith(says)
        other.end()
