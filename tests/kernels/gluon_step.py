"""Whether the warps of a partition go in step where the emulator of Gluon takes for granted that they do.

One thread arrives at a barrier, or starts a copy, for all warps of its partition. So each of them must have
done its reads, writes and waits before: the compiler has to put a barrier of their own in between.
"""

import re

_FOR_ALL = re.compile(r"mbarrier\.arrive|cp\.async\.bulk\.tensor")
_OF_EACH = re.compile(
    r"mbarrier\.try_wait|wgmma\.wait_group|tcgen05\.wait|cp\.async\.bulk\.wait_group"
    r"|\b(?:ld|st|stmatrix)\.(?:[\w:]+\.)*shared"
)
_TOGETHER = re.compile(r"\b(?:bar|barrier)\.(?:warp\.)?sync|barrier\.cluster\.wait")


def out_of_step(ptx: str) -> list[str]:
    """Arrivals and copies that follow, in the order of the text, what some warps may not have done yet."""
    found = []
    pending = ""
    for line in ptx.splitlines():
        if _TOGETHER.search(line):
            pending = ""
        elif _FOR_ALL.search(line):
            if pending:
                found.append(f"{line.strip()[:60]} after {pending} without a barrier of the warps")
        elif each := _OF_EACH.search(line):
            pending = each.group()
    return found
