"""What the compiled programs of Gluon kernels have in common to read: loops, pieces of D, barriers."""

import re
from collections import Counter

from tests.kernels.compiled import Built
from tests.kernels.listing import Line

_EVENTS = {
    "wait": r"cp\.async\.bulk\.wait_group\.read\s+(\d+)",
    "barrier": r"bar\.sync",
    "write": r"stmatrix|st\.shared",
    "fence": r"fence\.proxy\.async\.shared::cta",
    "store": r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta",
    "commit": r"cp\.async\.bulk\.commit_group",
}
"""What happens to a piece of D, as PTX."""

_FOR_ALL = re.compile(r"mbarrier\.arrive|cp\.async\.bulk\.tensor")
_OF_EACH = re.compile(
    r"mbarrier\.try_wait|wgmma\.wait_group|tcgen05\.wait|cp\.async\.bulk\.wait_group"
    r"|\b(?:ld|st|stmatrix)\.(?:[\w:]+\.)*shared"
)
_TOGETHER = re.compile(r"\b(?:bar|barrier)\.(?:warp\.)?sync|barrier\.cluster\.wait")


def innermost(program: list[Line]) -> list[list[Line]]:
    """The instructions of each loop that has no other loop within."""
    spans = [(line.target, line.address) for line in program if line.target is not None]
    loops = {(first, last) for first, last in spans if first < last}
    inner = [
        one
        for one in loops
        if not any(other != one and one[0] <= other[0] and other[1] <= one[1] for other in loops)
    ]
    return [[line for line in program if first <= line.address <= last] for first, last in sorted(inner)]


def order_faults(ptx: str, pieces: int, *, waits: bool = True) -> list[str]:
    """Whether not so many pieces leave in this order: wait for the buffer, write, fence, store, commit.

    All warps meet after the wait and after the fence. `waits` is False where pieces wait for something else.
    """
    events = [
        name for line in ptx.splitlines() for name, pattern in _EVENTS.items() if re.search(pattern, line)
    ]
    text = " ".join(events)
    begin = "wait (?:barrier )+" if waits else ""
    complete = len(re.findall(rf"{begin}(?:write )+fence (?:barrier )+store commit", text))
    in_order = complete == text.count("store") == pieces
    return [] if in_order else [f"{complete} of {pieces} pieces leave in order"]


def wait_faults(ptx: str, expected: Counter[int]) -> list[str]:
    """Whether copies out are not waited for as often as expected until so many of them are left."""
    waits = Counter(int(left) for left in re.findall(_EVENTS["wait"], ptx))
    return [] if waits == expected else [f"waits for copies {dict(waits)}, not {dict(expected)}"]


def barrier_faults(
    ptx: str, barriers: Counter[int], byte: Counter[int], *, arrivals: int, commits: int, waits: int
) -> list[str]:
    """Whether these are not its barriers, by how many arrivals complete them, the bytes that are expected at
    them, and how often the program arrives, commits and waits."""

    def numbers(pattern: str) -> Counter[int]:
        return Counter(int(number) for number in re.findall(pattern, ptx))

    counts = {
        "barriers": (numbers(r"mbarrier\.init\.\S+\s+\[[^]]+\],\s*(\d+)"), barriers),
        "bytes": (numbers(r"mbarrier\.arrive\.expect_tx\.\S+\s+\w+,\s*\[[^]]+\],\s*(\d+)"), byte),
        "arrivals": (len(re.findall(r"mbarrier\.arrive\.shared", ptx)), arrivals),
        "commits": (len(re.findall(r"tcgen05\.commit", ptx)), commits),
        "waits": (len(re.findall(r"mbarrier\.try_wait", ptx)), waits),
    }
    return [f"{name} {count}, not {wanted}" for name, (count, wanted) in counts.items() if count != wanted]


def out_of_step(built: Built) -> list[str]:
    """Arrivals and copies that follow, in the order of the text, what some warps may not have done yet.

    One thread arrives at a barrier, or starts a copy, for all warps of its partition, and the emulator of
    Gluon takes for granted that they go in step. So each of them must have done its reads, writes and waits
    before: the compiler has to put a barrier of their own in between.
    """
    faults = []
    pending = ""
    for line in built.ptx.splitlines():
        if _TOGETHER.search(line):
            pending = ""
        elif _FOR_ALL.search(line):
            if pending:
                faults.append(f"{line.strip()[:60]} after {pending} without a barrier of the warps")
        elif each := _OF_EACH.search(line):
            pending = each.group()
    return faults
