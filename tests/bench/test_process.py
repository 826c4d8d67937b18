"""The parent outlives whatever a worker does, and says what it did.

The worker here is a stand-in without torch: it runs the Python text that a request holds.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.runner import worker_process
from bench.runner.worker_process import Worker, WorkerDied
from tests.bench.several import checkout_of

ROOT = Path(__file__).parents[2]
STAND_IN = """
import ctypes, json, os, signal, sys
from bench.worker.lifeline import die_with
die_with(json.loads(sys.argv[1])["parent"])
answers = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
def answer(content):
    answers.write(json.dumps(content).encode() + b"\\n")
for line in sys.stdin:
    exec(json.loads(line)["do"], globals())
"""
LONG_S = 300.0
"""A deadline that no test waits for."""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A folder to start workers in."""
    return checkout_of(STAND_IN, tmp_path)


@contextmanager
def started(stand_in: Path) -> Iterator[Worker]:
    made = Worker("cpu", 1 << 20, 1, root=stand_in)
    try:
        assert made.ask({"do": "answer({'ready': True})"}, LONG_S) == {"ready": True}
        yield made
    finally:
        made.close()
    assert made._process.poll() is not None


@pytest.fixture
def worker(stand_in: Path) -> Iterator[Worker]:
    with started(stand_in) as made:
        yield made


def death(worker: Worker, do: str, deadline_s: float = LONG_S) -> WorkerDied:
    """How the worker dies of this; it is then gone, and gives no later request an answer."""
    with pytest.raises(WorkerDied) as first:
        worker.ask({"do": do}, deadline_s)
    assert worker._process.poll() is not None
    with pytest.raises(WorkerDied):
        worker.ask({"do": "answer({})"}, LONG_S)
    assert "\n" not in str(first.value)
    return first.value


def test_answers_are_those_to_the_questions(worker: Worker) -> None:
    for number in range(20):
        assert worker.ask({"do": f"print('noise'); answer({{'n': {number}}})"}, LONG_S) == {"n": number}


def test_a_worker_finds_the_packages_that_its_parent_finds(
    stand_in: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carried by a search path alone, where nothing can be installed; never instead of the checkout's."""
    carried = tmp_path_factory.mktemp("carried")
    for package in ("wheel_carried_by_path", "bench"):
        (carried / package).mkdir()
        (carried / package / "__init__.py").write_text(f"FOUND = {package!r}")
    monkeypatch.syspath_prepend(str(carried))
    do = "import bench, wheel_carried_by_path as one; answer({'one': one.FOUND, 'ours': bench.__file__})"
    with started(stand_in) as made:
        found = made.ask({"do": do}, LONG_S)
    assert found == {"one": "wheel_carried_by_path", "ours": str(stand_in / "bench" / "__init__.py")}


@pytest.mark.parametrize(
    "nonsense",
    [b"", b"x", b'{"a": 1', b'{"a": 1}}', b"[1]", b"null", b"\xff\xfe", b'{"a": \0}', b"[" * 100_000],
)
def test_an_answer_that_is_none_ends_the_worker(worker: Worker, nonsense: bytes) -> None:
    died = death(worker, f"answers.write({nonsense!r} + b'\\n')")
    assert died.status == "crashed" and "the worker answered nonsense: b'" in str(died)
    assert len(str(died)) < 400


def test_a_cut_answer_is_a_death(worker: Worker) -> None:
    died = death(worker, """answers.write(b'{"a": 1'); os._exit(0)""")
    assert str(died) == "the worker ended with exit code 0" and died.status == "crashed"


def test_a_whole_answer_counts_though_the_worker_dies_of_it(worker: Worker) -> None:
    assert worker.ask({"do": "answer({'a': 1}); os._exit(5)"}, LONG_S) == {"a": 1}
    assert str(death(worker, "answer({})")) == "the worker ended with exit code 5"


@pytest.mark.parametrize("more", [b'{"b": 2}\n', b'{"b"', b"\n", b"\0"])
def test_what_is_said_beyond_the_answer_is_none_to_the_next_question(worker: Worker, more: bytes) -> None:
    assert worker.ask({"do": f"answers.write(b'{{\"a\": 1}}\\n' + {more!r})"}, LONG_S) == {"a": 1}
    died = death(worker, "answer({'c': 3})")
    assert died.status == "crashed" and "the worker spoke unasked: " in str(died)


def test_of_endless_errors_the_end_is_kept(worker: Worker) -> None:
    flood = "for _ in range(300): sys.stderr.write('x' * 99_999 + '\\n')"
    assert worker.ask({"do": f"{flood}\nanswer({{}})"}, LONG_S) == {}
    died = death(worker, f"{flood}\nsys.stderr.write('the last line\\n'); os._exit(4)")
    assert str(died) == "the worker ended with exit code 4: the last line"
    assert len(worker._errors) <= worker_process.ERRORS_KEPT_BYTE


@pytest.mark.parametrize(
    ("do", "says"),
    [
        ("sys.exit(3)", "ended with exit code 3"),
        ("raise ValueError('no\\nsuch thing')", "ended with exit code 1: such thing"),
        ("def f(): ctypes.string_at(0)\nf()", "ended with SIGSEGV: in f (<string>:1)"),
        ("def f(): os.abort()\nf()", "ended with SIGABRT: in f (<string>:1)"),
        (
            "sys.stderr.write('what():  out of tiles\\n#0 0x1\\n'); os.abort()",
            "ended with SIGABRT: what():  o",
        ),
        ("os.kill(os.getpid(), signal.SIGTERM)", "ended with SIGTERM"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed (SIGKILL), perhaps for memory"),
        ("os.kill(os.getpid(), 40)", "ended with signal 40"),
    ],
)
def test_how_a_worker_died_is_said(worker: Worker, do: str, says: str) -> None:
    worker.ask({"do": "sys.stderr.write('of another case\\n'); answer({})"}, LONG_S)
    died = death(worker, do)
    assert died.status == "crashed"
    assert str(died).startswith(f"the worker {says}"), died
    assert "of another case" not in str(died)


def test_a_worker_that_hangs_is_stopped_and_says_where(worker: Worker) -> None:
    died = death(worker, "def spin():\n  while True: pass\nspin()", 0.2)
    assert died.status == "timeout"
    assert str(died) == "no answer within 0 s; the worker was stopped in spin (<string>:2)"


def test_a_worker_that_cannot_even_say_where_is_stopped_too(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "LAST_WORDS_S", 0.1)
    deaf = "import faulthandler; faulthandler.disable(); signal.signal(signal.SIGABRT, signal.SIG_IGN)"
    died = death(worker, f"{deaf}\nwhile True: pass", 0.5)
    assert died.status == "timeout" and str(died) == "no answer within 0 s; the worker was stopped"


def test_a_worker_whose_child_holds_the_pipe_is_dead_all_the_same(worker: Worker, tmp_path: Path) -> None:
    do = f"""
if (child := os.fork()) == 0:
    os.setsid()
    signal.pause()
open({str(tmp_path / "child")!r}, 'w').write(str(child))
os._exit(7)
"""
    try:
        assert str(death(worker, do)) == "the worker ended with exit code 7"
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("do", ["answers.close()", "os.close(0); answer({'a': 1})"])
def test_a_worker_that_closes_a_pipe_and_goes_on_is_stopped(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, do: str
) -> None:
    monkeypatch.setattr(worker_process, "DEATH_S", 0.2)
    do += "\nwhile True: pass"
    if "answer(" in do:
        assert worker.ask({"do": do}, LONG_S) == {"a": 1}
    assert str(death(worker, do)) == "the worker closed a pipe and went on"


def test_what_the_worker_has_started_goes_with_it(worker: Worker, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    do = f"""
begun, begins = os.pipe()
if os.fork() == 0:
    open_end = os.open({str(tmp_path / "held")!r}, os.O_WRONLY)
    os.write(begins, b"x")
    signal.pause()
os.read(begun, 1)
os._exit(7)
"""
    with pytest.raises(WorkerDied):
        worker.ask({"do": do}, LONG_S)
    assert select.select([held], [], [], 60)[0] and os.read(held, 1) == b""  # its only writer is dead
    os.close(held)


def test_a_request_that_was_interrupted_is_never_answered_later(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker_process, "_object", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.ask({"do": "answer({'first': 1})"}, LONG_S)
    with pytest.raises(WorkerDied):
        worker.ask({"do": "answer({'second': 2})"}, LONG_S)
    assert worker._process.poll() is not None


@pytest.mark.parametrize("at", ["a kernel", "import torch"])
def test_the_worker_dies_with_its_parent_in_the_middle_of(at: str, stand_in: Path) -> None:
    """Killed -9, the parent can tell nobody; the worker, which looks at nothing, is gone all the same."""
    fifo, wheels = stand_in / "busy", stand_in / "wheels"
    os.mkfifo(fifo)
    do = f"import os\nos.close(os.open({str(fifo)!r}, os.O_WRONLY))\nwhile True: pass"
    (wheels / "torch").mkdir(parents=True)
    (wheels / "torch" / "__init__.py").write_text(do)
    program = (
        "from pathlib import Path; from bench.runner.worker_process import Worker;"
        f"worker = Worker('cpu', 1, 1, root=Path({str(stand_in if at == 'a kernel' else ROOT)!r}));"
        f"print(worker._process.pid, flush=True); worker.ask({{'do': {do!r}}}, {LONG_S})"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(wheels)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    worker = os.pidfd_open(pid)
    try:
        fifo.open().close()  # returns once the worker is there
        assert not select.select([worker], [], [], 0)[0]
        parent.kill()
        assert select.select([worker], [], [], 60)[0], "the worker lives on"
    finally:
        signal.pidfd_send_signal(worker, signal.SIGKILL)
        os.close(worker)
        parent.stdout.close()
        parent.wait()


@pytest.mark.parametrize(("parent", "code"), [("os.getppid()", 0), ("os.getppid() + 1", 1)])
def test_a_worker_whose_parent_is_dead_already_does_not_begin(parent: str, code: int) -> None:
    program = f"import os; from bench.worker.lifeline import die_with; die_with({parent}); print('begins')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code and done.stdout == ("" if code else "begins\n"), done.stderr
