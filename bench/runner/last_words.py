"""What a dead worker's standard error says of its death, in the few words that fit into a row's reason.

At a fatal signal Python's fault handler (PYTHONFAULTHANDLER) prints `Fatal Python error: ...`, then for each
thread its frames, the innermost first, then a list of modules that is of no use here.
"""

from __future__ import annotations

import re

_FATAL = "Fatal Python error: "
_CURRENT = "Current thread "
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


def last_words(text: str) -> str:
    """What was said last before the fault handler spoke, and where the fault was; empty if nothing was."""
    lines, report = _parts(text)
    # C++ says what it threw before a long list of addresses.
    thrown = [line for line in lines if line.startswith("what():")]
    words = (thrown or lines or [""])[-1]
    words = words if len(words) <= 300 else f"{words[:300]} ..."
    return ", ".join(filter(None, (words, _place(report))))


def place(text: str) -> str:
    """Where the fault handler found the process, `in function (file:line)`; empty if it said nothing."""
    return _place(_parts(text)[1])


def _parts(text: str) -> tuple[list[str], list[str]]:
    """The lines before the fault handler's report, and the report."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    begin = max((at for at, line in enumerate(lines) if line.startswith(_FATAL)), default=len(lines))
    return [line.strip() for line in lines[:begin]], lines[begin:]


def _place(report: list[str]) -> str:
    begin = next((at for at, line in enumerate(report) if line.startswith(_CURRENT)), 0)
    frames = [found for line in report[begin:] if (found := _FRAME.fullmatch(line))]
    if not frames:
        return ""
    # The innermost frame is often inside torch; ours says which kernel it was.
    frame = next((one for one in frames if "/kernels/" in one["file"]), frames[0])
    file = "/".join(frame["file"].split("/")[-3:])
    return f"in {frame['function']} ({file}:{frame['line']})"
