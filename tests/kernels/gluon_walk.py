"""Every order in which a kernel's steps can happen, where `gluon_emulator.emulate` tries one.

When a partition waits, arrives, copies and multiplies does not depend on the numbers, so one run tells the
sequence of each partition's steps, and the walk needs no data: from each state of the machine it takes every
step that is possible, of every partition and of every operation under way, and meets each state once. So it
finds, of this one launch, every deadlock, every buffer that is written while it may be read, every read of
what may not have arrived, and every read that another order shows other contents than the first run saw.

**What is left out**, unless the walk is `whole` (test_gluon_emulator.py holds the two against each other):

* A partition's steps from a wait on, through reads and writes, to the arrivals after them happen as one. Who
  may use the same memory is either ordered with both ends of such a block or with neither, and then the walk
  takes the two blocks in both orders.
* The issue of an operation happens with the step before it: the operation is under way for as long as others
  need to collide with it, so whoever could come before the issue comes after it and is a fault there.
* What an operation without a barrier reads or writes (products of Hopper, copies out) stays in use until its
  partition waits for it; a product of Blackwell until the commit behind it; a copy in until it completes its
  barrier's phase, with the others that do, and at a barrier of one partition alone until that waits there. An
  earlier end would only forbid less.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tests.kernels.gluon_agents import Launch, stuck
from tests.kernels.gluon_machine import Async, Fault, Machine, Step

_WAITS = ("wait", "drain", "join", "cluster_wait")
_ACCESSES = ("read", "write", "fence")

Choice = int | tuple[Async, ...]
"""A partition that takes its next steps, or operations that end, in this order."""


@dataclass(frozen=True)
class Walk:
    """How much there was to walk through."""

    states: int
    transitions: int


def walk(launch: Launch, most: int = 2_000_000, *, whole: bool = False) -> Walk:
    """All orders of an emulated launch's steps; Fault in the first that goes wrong, with how it came there.

    RuntimeError if there are more states than `most`.
    """
    start = Machine(launch.machine.space)
    start.saw = dict(launch.machine.saw)
    for cta in range(launch.ctas):
        start.life[cta], start.arrived[cta] = 1, 0
    scripts = [[(step,) for step in one.steps] if whole else _blocks(one.steps) for one in launch.agents]
    private = _private(scripts)
    places = (0,) * len(scripts)
    met = {(places, start.key())}
    transitions = 0
    # A state and the way to it, as a chain of choices from the last to the first.
    waiting: list[tuple[tuple[int, ...], Machine, Any]] = [(places, start, None)]
    while waiting:
        places, machine, way = waiting.pop()
        choices = _choices(scripts, places, machine, {} if whole else private, whole)
        if not choices and any(place < len(of) for place, of in zip(places, scripts, strict=True)):
            asked = [
                (agent, script[place][0])
                for agent, script, place in zip(launch.agents, scripts, places, strict=True)
                if machine.life.get(agent.number) == 1
            ]
            raise Fault(f"{stuck(machine, asked)}; {_told(launch, scripts, way)}")
        for choice in choices:
            transitions += 1
            after, there = machine.copy(), places
            taken = (choice, way)
            try:
                if isinstance(choice, int):
                    _take(after, choice, scripts[choice][places[choice]])
                    there = (*places[:choice], places[choice] + 1, *places[choice + 1 :])
                else:
                    for one in choice:
                        after.end(one)
            except Fault as fault:
                raise Fault(f"{fault}; {_told(launch, scripts, taken)}") from None
            key = (there, after.key())
            if key not in met:
                met.add(key)
                waiting.append((there, after, taken))
        if len(met) > most:
            raise RuntimeError(f"more than {most} states")
    return Walk(len(met), transitions)


def _blocks(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """The steps in groups that happen as one."""
    blocks: list[tuple[Step, ...]] = []
    released = True
    for step in steps:
        access = step.kind in _ACCESSES
        if step.kind in _WAITS or (released and access) or not blocks:
            blocks.append((step,))
            released = False
        else:
            blocks[-1] += (step,)
        released |= not access and step.kind not in (*_WAITS, "issue")
    return blocks


def _take(machine: Machine, agent: int, steps: Sequence[Step]) -> None:
    for step in steps:
        for ident in step.after:
            if ident in machine.flying:
                machine.end(machine.flying[ident])
        machine.apply(agent, step)


def _private(scripts: Any) -> dict[int, int]:
    """The barriers at which one partition alone waits, arrives and has copies arrive, and which."""
    users: dict[int, set[int]] = {}
    for agent, script in enumerate(scripts):
        for step in (step for steps in script for step in steps if step.kind != "init"):
            brought = [] if step.issued is None else [*step.issued.arrives, *dict(step.issued.brings)]
            for barrier in (step.barrier, *brought):
                users.setdefault(barrier, set()).add(agent)
    return {barrier: min(agents) for barrier, agents in users.items() if len(agents) == 1}


def _choices(
    scripts: Any, places: tuple[int, ...], machine: Machine, private: dict[int, int], whole: bool
) -> list[Choice]:
    """The partitions whose next steps are possible, and the operations that may end."""
    able: list[Choice] = []
    awaited = set()
    for agent, script in enumerate(scripts):
        if machine.life.get(agent) == 1:
            step = script[places[agent]][0]
            awaited.add(step.barrier)
            if (step.kind == "drain" and not whole) or not machine.blocked(agent, step):
                able.append(agent)
    if whole:
        return able + [(one,) for one in machine.ready()]
    return able + _ends(machine, private.keys() - awaited)


def _ends(machine: Machine, later: Set[int]) -> list[Choice]:
    """Copies in that together complete a barrier's phase, and products up to the next commit behind them."""
    queues: dict[int, list[Async]] = {}
    bringing: dict[int, list[Async]] = {}
    for ident, one in sorted(machine.flying.items()):
        if one.engine == "load":
            bringing.setdefault(one.brings[0][0], []).append(one)
        elif one.engine == "tcgen05":
            queue = queues.setdefault(ident[0], [])
            if not queue or not queue[-1].arrives:
                queue.append(one)
    found: list[Choice] = [tuple(queue) for queue in queues.values() if queue[-1].arrives]
    for barrier in bringing.keys() - later:
        copies = bringing[barrier]
        found += _completing(machine, barrier, copies)
    return found


def _completing(machine: Machine, barrier: int, copies: list[Async]) -> list[Choice]:
    """The fewest of these copies whose bytes complete the barrier's phase, each way to choose them."""
    _, missing, byte, _ = machine.barriers[barrier]
    if missing:
        return []
    found: list[tuple[Async, ...]] = []
    for count in range(1, len(copies) + 1):
        for some in combinations(copies, count):
            enough = sum(one.brings[0][1] for one in some) >= byte
            if enough and not any(set(other) <= set(some) for other in found):
                found.append(some)
    return list(found)


def _told(launch: Launch, scripts: Any, way: Any) -> str:
    """The last steps of a way, the latest last."""
    chain: list[Choice] = []
    while way is not None:
        chain.append(way[0])
        way = way[1]
    places = [0] * len(scripts)
    told: list[str] = []
    for choice in reversed(chain):
        if isinstance(choice, int):
            agent = launch.agents[choice]
            steps = scripts[choice][places[choice]]
            told += [f"{step.kind} of {agent.name} of CTA {agent.cta} at {step.at}" for step in steps]
            places[choice] += 1
        else:
            told += [f"the end of {one}" for one in choice]
    return f"after {len(told)} steps, the last of which were: " + ", ".join(told[-8:])
