"""What the hardware promises about order: barriers, asynchronous operations, and the faults against them.

A machine without data. It knows who may go on, what is under way, what each piece of memory was last written
by, and it raises a Fault, one sentence, at the first step that the hardware does not order. The emulator
(gluon_emulator.py) drives it with a kernel that runs, the walk (gluon_walk.py) with one that ran, through
every order that is possible.

**Barriers** are those of the hardware: a count of arrivals, a count of bytes, one bit of phase. `wait(phase)`
goes on while the current phase's bit is another, so a barrier that runs ahead by two phases is not noticed,
as it would not be on a device.

**Asynchronous operations** are under way from when they are issued until some later moment. Copies into
shared memory and out of it end in any order; matrix products of one issuer end in the order of their issue,
as do tcgen05 copies and commits among them. While one is under way, what it writes must be neither read nor
written by another, and what it reads not written.

**Register writes to shared memory** reach asynchronous operations only after the writer's
`fence_async_shared`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Ident = tuple[int, int]
"""An operation: its agent, and its number among that agent's steps."""
MOST_BYTE = 2**20 - 1
"""Most bytes that a barrier can expect (PTX ISA, "tx-count of mbarrier object")."""
IN_ORDER = ("wgmma", "tcgen05")
"""The engines that end what one agent issues in the order of its issue."""


class Fault(AssertionError):
    """The kernel relies on an order that the hardware does not promise."""


@dataclass(frozen=True)
class Region:
    """A box of one block's memory."""

    memory: str
    cta: int
    shared: bool
    """Shared memory, where a fence is needed between register writes and asynchronous operations."""
    box: tuple[tuple[int, int], ...]
    """First and past-the-last index of each dimension."""

    def __str__(self) -> str:
        inside = ", ".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in self.box)
        return f"{self.memory}[{inside}] of CTA {self.cta}"


class Space:
    """The regions and barriers of a launch by number, and which regions overlap."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.barriers: list[tuple[str, int]] = []
        """Name, and the block whose memory holds it."""
        self.agents: list[tuple[str, int]] = []
        """Name, and the block that it is part of."""
        self.overlaps: list[set[int]] = []
        self.inside: list[set[int]] = []
        """For each region those that lie wholly in it."""
        self._numbers: dict[Any, int] = {}

    def region(self, region: Region) -> int:
        """Its number."""
        if region not in self._numbers:
            number = self._numbers[region] = len(self.regions)
            self.regions.append(region)
            self.overlaps.append(set())
            self.inside.append(set())
            for other, known in enumerate(self.regions):
                if (known.memory, known.cta) != (region.memory, region.cta):
                    continue
                pairs = list(zip(region.box, known.box, strict=True))
                if all(a < d and c < b for (a, b), (c, d) in pairs):
                    self.overlaps[number].add(other)
                    self.overlaps[other].add(number)
                if all(a <= c and d <= b for (a, b), (c, d) in pairs):
                    self.inside[number].add(other)
                if all(c <= a and b <= d for (a, b), (c, d) in pairs):
                    self.inside[other].add(number)
        return self._numbers[region]

    def barrier(self, name: str, cta: int) -> int:
        """Its number."""
        key = ("barrier", name, cta)
        if key not in self._numbers:
            self._numbers[key] = len(self.barriers)
            self.barriers.append((name, cta))
        return self._numbers[key]

    def agent(self, name: str, cta: int) -> int:
        """A new one's number."""
        self.agents.append((name, cta))
        return len(self.agents) - 1

    def called(self, barrier: int) -> str:
        """A barrier, for a sentence."""
        name, cta = self.barriers[barrier]
        return f"barrier {name} of CTA {cta}"


@dataclass(frozen=True)
class Step:
    """One synchronising call of an agent."""

    kind: str
    """init, wait, arrive, expect, read, write, fence, issue, drain, cluster_arrive, cluster_wait, fork, join
    or end."""
    barrier: int = -1
    amount: int = 0
    """Of arrivals (init, arrive), of bytes (expect), the phase (wait), how often every block must have
    arrived (cluster_wait)."""
    regions: tuple[int, ...] = ()
    issued: Async | None = None
    after: tuple[Ident, ...] = ()
    """The operations that a drain waits for."""
    agents: tuple[int, ...] = ()
    """Whom a fork starts and a join awaits."""
    ident: Ident = (-1, -1)
    """Of a read or a write."""
    at: str = field(default="", compare=False)
    """File and line of the kernel."""


@dataclass(frozen=True)
class Async:
    """One operation that goes on after its issue."""

    ident: Ident
    engine: str
    """load, store, wgmma or tcgen05."""
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    arrives: tuple[int, ...] = ()
    """Barriers at which its end arrives once."""
    brings: tuple[tuple[int, int], ...] = ()
    """Barriers that its end brings so many bytes to."""
    effect: Callable[[], None] = field(default=lambda: None, compare=False)
    """What it does to the data, at its end."""
    at: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"the {self.engine} issued at {self.at}"


class Machine:
    """The state of one launch's cluster, and the rules by which it changes."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.life: dict[int, int] = {}
        """Per agent 1 while it runs, 2 once it ended."""
        self.barriers: dict[int, tuple[int, int, int, int]] = {}
        """Arrivals of a phase, those still missing, bytes still missing, phase bit."""
        self.flying: dict[Ident, Async] = {}
        self.dirty: dict[int, int] = {}
        """Regions written by registers and not fenced yet, and by whom."""
        self.content: dict[int, Ident] = {}
        """What each region was last written by."""
        self.arrived: dict[int, int] = {}
        """How often each block arrived at the cluster's barrier."""
        self.saw: dict[Ident, frozenset[tuple[int, Ident]]] = {}
        """What each operation read: regions and by what they had been written. Not part of the state."""

    def copy(self) -> Machine:
        """Another in the same state, which shares only what does not change."""
        twin = Machine.__new__(Machine)
        twin.space, twin.saw = self.space, self.saw
        twin.life, twin.barriers, twin.flying = dict(self.life), dict(self.barriers), dict(self.flying)
        twin.dirty, twin.content, twin.arrived = dict(self.dirty), dict(self.content), dict(self.arrived)
        return twin

    def key(self) -> Any:
        """Equal for equal states, hashable."""
        parts = (self.life, self.barriers, self.flying, self.dirty, self.content, self.arrived)
        return tuple(frozenset(part.items() if part is not self.flying else part) for part in parts)

    # What can happen next.

    def blocked(self, agent: int, step: Step) -> str:
        """What this agent waits for before this step, "" if it can go on."""
        if step.kind == "wait":
            count, missing, byte, phase = self._barrier(step.barrier, step.at)
            if phase == step.amount:
                return (
                    f"phase {step.amount} of {self.space.called(step.barrier)}, "
                    f"which misses {missing} of {count} arrivals and {byte} bytes"
                )
        if step.kind == "drain":
            late = [self.flying[one] for one in step.after if one in self.flying]
            return f"the end of {late[0]}" if late else ""
        if step.kind == "cluster_wait" and min(self.arrived.values()) < step.amount:
            return "the cluster's barrier"
        if step.kind == "join" and any(self.life.get(one) != 2 for one in step.agents):
            return "the other partitions"
        return ""

    def ready(self) -> list[Async]:
        """The operations under way of which any may be the next to end."""
        first: dict[tuple[int, str], Ident] = {}
        for ident, one in self.flying.items():
            if one.engine in IN_ORDER:
                queue = (ident[0], one.engine)
                first[queue] = min(first.get(queue, ident), ident)
        return [
            one
            for ident, one in self.flying.items()
            if one.engine not in IN_ORDER or first[ident[0], one.engine] == ident
        ]

    # What happens.

    def apply(self, agent: int, step: Step) -> None:
        """This agent's step, which is not blocked."""
        getattr(self, f"_{step.kind}")(agent, step)

    def end(self, one: Async) -> None:
        """The end of an operation under way, which is ready."""
        del self.flying[one.ident]
        self._saw(one.ident, one.reads)
        for region in one.writes:
            self._written(region, one.ident)
        for barrier in one.arrives:
            self._change(barrier, f"the end of {one}", arrivals=1)
        for barrier, byte in one.brings:
            self._change(barrier, f"the end of {one}", byte=-byte)

    def _init(self, agent: int, step: Step) -> None:
        if step.barrier in self.barriers:
            raise Fault(f"{step.at}: {self.space.called(step.barrier)} is initialised twice")
        self.barriers[step.barrier] = (step.amount, step.amount, 0, 0)

    def _wait(self, agent: int, step: Step) -> None:
        pass

    _drain = _cluster_wait = _join = _wait

    def _arrive(self, agent: int, step: Step) -> None:
        self._change(step.barrier, step.at, arrivals=step.amount)

    def _expect(self, agent: int, step: Step) -> None:
        _, _, byte, _ = self._barrier(step.barrier, step.at)
        if byte + step.amount > MOST_BYTE:
            raise Fault(
                f"{step.at}: {self.space.called(step.barrier)} cannot expect {byte + step.amount} bytes"
            )
        self._change(step.barrier, step.at, arrivals=1, byte=step.amount)

    def _read(self, agent: int, step: Step) -> None:
        self._may_read((agent, -1), "", step.regions, step.at)
        self._saw(step.ident, step.regions)

    def _write(self, agent: int, step: Step) -> None:
        self._may_write((agent, -1), "", step.regions, step.at)
        for region in step.regions:
            self._written(region, step.ident)
            if self.space.regions[region].shared:
                self.dirty[region] = agent

    def _fence(self, agent: int, step: Step) -> None:
        self.dirty = {region: by for region, by in self.dirty.items() if by != agent}

    def _issue(self, agent: int, step: Step) -> None:
        one = step.issued
        assert one is not None
        self._may_read(one.ident, one.engine, one.reads, step.at)
        self._may_write(one.ident, one.engine, one.writes, step.at)
        for region in (*one.reads, *one.writes):
            for other in self.space.overlaps[region] & self.dirty.keys():
                raise Fault(
                    f"{step.at}: the {one.engine} uses {self.space.regions[other]}, which registers wrote"
                    f" without a fence_async_shared since"
                )
        for barrier in (*one.arrives, *(barrier for barrier, _ in one.brings)):
            self._barrier(barrier, step.at)
        self.flying[one.ident] = one

    def _cluster_arrive(self, agent: int, step: Step) -> None:
        self.arrived[self.space.agents[agent][1]] += 1

    def _fork(self, agent: int, step: Step) -> None:
        for one in step.agents:
            self.life[one] = 1

    def _end(self, agent: int, step: Step) -> None:
        self.life[agent] = 2
        name, cta = self.space.agents[agent]
        for one in self.flying.values():
            if one.ident[0] == agent and one.engine in ("wgmma", "store"):
                raise Fault(f"{name} of CTA {cta} ends before {one} has: it was never waited for")
        if any(self.life.get(at) == 1 for at, of in enumerate(self.space.agents) if of[1] == cta):
            return
        for one in self.flying.values():
            if any(where == cta for where in self._places(one)):
                raise Fault(f"CTA {cta} ends before {one} has, which uses its memory")
        for barrier, (_, _, byte, _) in self.barriers.items():
            if byte and self.space.barriers[barrier][1] == cta:
                raise Fault(
                    f"at its end {self.space.called(barrier)} misses {byte} bytes that it was to expect"
                )

    # The rules.

    def _barrier(self, barrier: int, at: str) -> tuple[int, int, int, int]:
        self._alive(self.space.barriers[barrier][1], at)
        if barrier not in self.barriers:
            raise Fault(f"{at}: {self.space.called(barrier)} was not initialised")
        return self.barriers[barrier]

    def _alive(self, cta: int, at: str) -> None:
        lives = [self.life.get(agent) for agent, (_, of) in enumerate(self.space.agents) if of == cta]
        if all(life == 2 for life in lives):
            raise Fault(f"{at}: uses memory of CTA {cta}, which has ended")

    def _places(self, one: Async) -> set[int]:
        barriers = (*one.arrives, *(barrier for barrier, _ in one.brings))
        return {self.space.regions[region].cta for region in (*one.reads, *one.writes)} | {
            self.space.barriers[barrier][1] for barrier in barriers
        }

    def _change(self, barrier: int, at: str, arrivals: int = 0, byte: int = 0) -> None:
        """So many arrivals, and so many bytes more to expect; the next phase, if nothing is missing."""
        count, missing, expected, phase = self._barrier(barrier, at)
        if missing < arrivals:
            raise Fault(f"{at}: more than {count} arrivals in one phase at {self.space.called(barrier)}")
        missing, expected = missing - arrivals, expected + byte
        if missing == 0 and expected < 0:
            more = f"{-expected} more bytes came than {self.space.called(barrier)} was to expect"
            raise Fault(f"{at}: {more}")
        if missing == expected == 0:
            missing, phase = count, 1 - phase
        self.barriers[barrier] = (count, missing, expected, phase)

    def _may_read(self, ident: Ident, engine: str, regions: tuple[int, ...], at: str) -> None:
        for region in regions:
            overlapping = self.space.overlaps[region]
            self._alive(self.space.regions[region].cta, at)
            late = [one for one in self.flying.values() if not overlapping.isdisjoint(one.writes)]
            for one in late:
                if not self._ordered(ident, engine, one):
                    raise Fault(f"{at}: reads {self.space.regions[region]} while {one} may still write it")
            if not late and not overlapping & self.content.keys():
                raise Fault(f"{at}: reads {self.space.regions[region]}, which was never written")

    def _may_write(self, ident: Ident, engine: str, regions: tuple[int, ...], at: str) -> None:
        for region in regions:
            overlapping = self.space.overlaps[region]
            self._alive(self.space.regions[region].cta, at)
            for one in self.flying.values():
                if self._ordered(ident, engine, one):
                    continue
                for verb, used in (("read", one.reads), ("write", one.writes)):
                    if not overlapping.isdisjoint(used):
                        raise Fault(
                            f"{at}: writes {self.space.regions[region]} while {one} may still {verb} it"
                        )

    @staticmethod
    def _ordered(ident: Ident, engine: str, earlier: Async) -> bool:
        """Whether the hardware itself runs this after that."""
        return engine in IN_ORDER and (engine, ident[0]) == (earlier.engine, earlier.ident[0])

    def _written(self, region: int, by: Ident) -> None:
        for other in self.space.inside[region] & self.content.keys():
            del self.content[other]
        self.content[region] = by

    def _saw(self, ident: Ident, regions: tuple[int, ...]) -> None:
        """Every order must show an operation the same content: the one that the first run showed it."""
        seen = frozenset(
            (other, self.content[other])
            for region in regions
            for other in self.space.overlaps[region] & self.content.keys()
        )
        if self.saw.setdefault(ident, seen) != seen:
            agent, cta = self.space.agents[ident[0]]
            where = ", ".join(str(self.space.regions[region]) for region in regions)
            raise Fault(
                f"step {ident[1]} of {agent} of CTA {cta} finds in {where} what another write left there than"
                f" in another order of events"
            )
