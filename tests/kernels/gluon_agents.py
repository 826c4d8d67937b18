"""The partitions of an emulated kernel, one thread each, of which one runs at a time.

At every call that synchronises a partition stops and hands its step to the scheduler (gluon_emulator.py),
which decides who goes on. So between two such calls nothing else happens, and all that happens is in an order
that the scheduler's seed fixes.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import triton

from tests.kernels.gluon_machine import Async, Ident, Machine, Space, Step

if TYPE_CHECKING:
    from tests.kernels.gluon_memory import Memory, Pending, Traffic, View

_HERE = threading.local()
_NOT_KERNELS = (str(Path(triton.__file__).parent), str(Path(__file__).parent / "gluon_"))


class Stopped(BaseException):
    """The launch has ended with a fault elsewhere."""


class Launch:
    """One cluster of a launched kernel."""

    def __init__(self, program: Sequence[int], grid: Sequence[int], ctas: int, traffic: Traffic) -> None:
        self.program, self.grid, self.ctas, self.traffic = program, grid, ctas, traffic
        self.machine = Machine(Space())
        self.memory: dict[str, Memory] = {}
        self.agents: list[Agent] = []
        self.paired = False
        """Whether products are of pairs of blocks."""

    def agent(self, name: str, cta: int, warps: int, body: Callable[[], Any]) -> Agent:
        """A new partition, which runs once the machine counts it alive."""
        made = Agent(self, self.machine.space.agent(name, cta), name, cta, warps, body)
        self.agents.append(made)
        return made


class Agent:
    """A partition of one block."""

    def __init__(
        self, launch: Launch, number: int, name: str, cta: int, warps: int, body: Callable[[], Any]
    ) -> None:
        self.launch, self.number, self.name, self.cta, self.warps = launch, number, name, cta, warps
        self.steps: list[Step] = []
        """All that it did."""
        self.asked: Step | None = None
        """What it would do next."""
        self.error: BaseException | None = None
        self.pending: list[Pending] = []
        """The sums of its products that were not waited for."""
        self.stopped = False
        self._issued: dict[str, list[Ident]] = {}
        self._named: dict[str, int] = {}
        self._times = 0
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(body,), daemon=True)

    # For the scheduler.

    def go_on(self) -> None:
        """Let it run until its next step is known."""
        if self.asked is None and not self.steps and not self._thread.is_alive():
            self._thread.start()
        else:
            self._mine.release()
        self._theirs.acquire()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End its thread, wherever it is."""
        self.stopped = True
        if self._thread.is_alive():
            self._mine.release()
            self._thread.join()

    def _run(self, body: Callable[[], Any]) -> None:
        _HERE.agent = self
        try:
            body()
            self.step("end")
        except Stopped:
            pass
        except BaseException as error:  # handed to the scheduler's thread
            self.error = error
        self._theirs.release()

    # For the kernel's calls.

    def step(self, kind: str, **named: Any) -> None:
        """Ask for this step, and go on once it happened."""
        self._ask(Step(kind, at=self.at(), **named))

    def _ask(self, step: Step) -> None:
        self.asked = step
        self._theirs.release()
        if step.kind == "end":
            return
        self._mine.acquire()
        if self.stopped:
            raise Stopped
        self.asked = None

    def issue(self, engine: str, **named: Any) -> None:
        """Start an operation that ends later."""
        ident = (self.number, len(self.steps))
        self._issued.setdefault(engine, []).append(ident)
        at = self.at()
        self._ask(Step("issue", issued=Async(ident, engine, at=at, **named), at=at))

    def drain(self, engine: str, remaining: int) -> None:
        """Wait until all but the last `remaining` of its operations have ended."""
        issued = self._issued.setdefault(engine, [])
        cut = max(0, len(issued) - remaining)
        self.step("drain", after=tuple(issued[:cut]))
        del issued[:cut]

    def read(self, view: View) -> None:
        self.step("read", regions=(view.region(self.cta),), ident=(self.number, len(self.steps)))

    def write(self, view: View) -> None:
        self.step("write", regions=(view.region(self.cta),), ident=(self.number, len(self.steps)))

    def cluster_arrive(self) -> None:
        self._times += 1
        self.step("cluster_arrive")

    def cluster_wait(self) -> None:
        self.step("cluster_wait", amount=self._times)

    def specialize(self, partitions: list[Any], warps: list[int]) -> Any:
        """Run the first partition here and the others beside it; what the first returns."""
        (first, arguments), *others = partitions
        agents = []
        for (function, given), count in zip(others, warps, strict=True):
            name = f"{function.__name__} {len(agents) + 1}"

            def body(function: Any = function, given: Any = given) -> Any:
                return function(*given)

            agents.append(self.launch.agent(name, self.cta, count, body))
        numbers = tuple(one.number for one in agents)
        self.step("fork", agents=numbers)
        result = first(*arguments)
        self.step("join", agents=numbers)
        return result

    def at(self) -> str:
        """File and line of the kernel that is calling."""
        frame = _kernels_frame()
        return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "?"

    def named(self) -> str:
        """A name for what is being allocated: the variable's that it is assigned to, made unique."""
        frame = _kernels_frame()
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame else ""
        found = re.match(r"\s*(\w+)\s*(?::[^=]*)?=", line)
        name = (found.group(1) if found else "memory") + (
            f" of {self.name}" if self.number >= self.launch.ctas else ""
        )
        times = self._named[name] = self._named.get(name, 0) + 1
        return name if times == 1 else f"{name} {times}"


def stuck(machine: Machine, asked: Sequence[tuple[Agent, Step]]) -> str:
    """That none of these partitions can take its step, and what each waits for."""
    return "nothing can go on: " + "; ".join(
        f"{agent.name} of CTA {agent.cta} at {step.at} waits for {machine.blocked(agent.number, step)}"
        for agent, step in asked
    )


def current() -> Agent:
    """The partition that is running."""
    agent: Agent = _HERE.agent
    return agent


def _kernels_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_KERNELS):
        frame = frame.f_back
    return frame
