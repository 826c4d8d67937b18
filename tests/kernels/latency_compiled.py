"""What the pointer chase promises of its compiled form.

Nothing spilled, no shared memory, and in every loop each load has its address from the load before, so that
none can begin earlier.
"""

import re
from collections.abc import Iterator

from kernels.latency.chasing import chase
from tests.kernels.compiled import Built
from tests.kernels.listing import Line, written
from tests.kernels.streaming import Variant, family


def variants() -> Iterator[Variant]:
    """The only one."""
    pointers = dict.fromkeys(("table_pointer", "begin_pointer", "end_pointer"), "*i32")
    yield Variant(
        name="chase",
        kernel=chase,
        arguments={**pointers, "steps": "i32"},
        constants={},
        warps=1,
        wide=False,
        promises=(broken,),
    )


def broken(built: Built) -> list[str]:
    """What breaks a promise that the streaming kernels do not give; empty if nothing does."""
    found = [f"{built.shared_byte} bytes of shared memory"] if built.shared_byte else []
    if built.program:
        loops = [loop for loop in bodies(built.program) if any(loads(line) for line in loop)]
        if not loops:
            found.append("no loop of loads")
        found += [f"{count} loads that need not wait" for loop in loops if (count := independent(loop))]
    return found


def loads(line: Line) -> bool:
    """Whether it loads from global memory."""
    return line.name.startswith("LDG")


def bodies(program: list[Line]) -> list[list[Line]]:
    """The instructions of each loop, from the target of a branch backwards to the branch."""
    back = [(line.target, line.address) for line in program if line.target is not None]
    return [[line for line in program if begin <= line.address < end] for begin, end in back if begin < end]


def independent(loop: list[Line]) -> int:
    """Loads of two turns of a loop whose address does not come from the load just before."""
    origin: dict[int, int] = {}
    latest, count = -1, 0
    for place, line in enumerate(loop * 2):
        results = written(line)
        _, _, rest = line.operands.partition(",")
        sources = {int(number) for number in re.findall(r"\bR(\d+)", rest)}
        if loads(line):
            wide = {int(number) + 1 for number in re.findall(r"\bR(\d+)\.64", rest)}
            count += latest >= 0 and any(origin.get(source) != latest for source in sources | wide)
            latest = place
            origin |= dict.fromkeys(results, place)
        else:
            from_loads = [origin[source] for source in sources if source in origin]
            origin |= dict.fromkeys(results, max(from_loads, default=-1))
    return count


FAMILY = family(variants)
