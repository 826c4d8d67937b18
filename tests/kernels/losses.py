"""What our kernels lost to the libraries by what the compiled code says, before and after it was mended.

    python -m tests.kernels.losses                           every loss, before and now
    python -m tests.kernels.losses softmax batchnorm         some of them
    python -m tests.kernels.losses --ref COMMIT softmax      before: what that commit's kernels compile to

A loss `softmax` is a module of this folder, `softmax_losses.py`, whose function `losses` gives its rows. For
each row the table shows registers, spills and shared memory; global loads as count x bytes (`bulk`: by TMA);
bytes in flight on one multiprocessor; instructions an element; passes over memory. Exit code 1 if a kernel of
this checkout cannot be compiled. Needs no GPU; must run without TRITON_INTERPRET. It says what the compiler
made, not that it runs, nor how fast.

With --ref this folder's modules are run on the kernels of that commit: what a row asks for and they do not
have is said in its line. Without, `before` is there only where the old form still is, in this checkout.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.kernels.compiled import Built
from tests.kernels.listing import Line
from tests.kernels.streaming import Variant, compile_one, per_element

ROOT = Path(__file__).parents[2]
LOAD_BYTE = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
"""Of a load from global memory by a part of its name; 4 if it has none of them."""


@dataclass(frozen=True)
class Form:
    """One kernel in one configuration."""

    kernel: str
    """Its module and function: `two_pass_nhwc.statistics`."""
    configuration: str
    build: Callable[[], Built] | None
    """Compiles it; None where there is nothing to compile and `note` says it all."""
    instructions: Callable[[Built], float | None] | None = None
    """SASS instructions for each element; `in_loop` and `streaming.per_element` count them."""
    in_flight: Callable[[Built], float | None] | None = None
    """Bytes of loads under way on one multiprocessor (in_flight.py)."""
    passes: float | None = None
    """How often each byte that must be moved crosses memory: by the operator's own count of bytes."""
    note: Callable[[Built | None], str] | None = None
    """What else the compiled code says, in a few words."""


@dataclass(frozen=True)
class Row:
    """Something computed on one architecture, as it is now and as it was."""

    what: str
    """`statistics, NHWC bfloat16, sm_90`."""
    now: Callable[[], Form]
    """Imports from kernels/ what it needs: an old commit may not have it."""
    before: Callable[[], Form] | None = None
    """The form that it replaces, if there still is one. With --ref it, and else `now`, is what the commit is
    asked for."""


@dataclass(frozen=True)
class Facts:
    """One line of the table."""

    what: str
    side: str
    kernel: str = ""
    numbers: tuple[str, ...] = ()
    """As in COLUMNS."""
    note: str = ""
    failure: str = ""


COLUMNS = ("regs", "spills", "shared", "loads", "in flight", "instr/elem", "passes")
WIDTHS = (4, 6, 7, 14, 9, 10, 6)


def of_variant(
    variant: Variant, capability: int, *, passes: float | None = None, **more: Callable[..., Any]
) -> Form:
    """The form of a kernel limited by memory, as its operator's table of compilations has it."""
    return Form(
        kernel=_name(variant.kernel),
        configuration=variant.name,
        build=lambda: compile_one(variant, capability),
        instructions=more.pop("instructions", lambda built: per_element(variant, built)),
        passes=passes,
        **more,
    )


def _name(kernel: Any) -> str:
    return f"{kernel.fn.__module__.removeprefix('kernels.')}.{kernel.fn.__name__}"


def in_loop(built: Built, elements: float) -> float | None:
    """SASS instructions of the longest innermost loop for each of a thread's `elements` of one turn of it.

    None if there is no loop. Both ways of a branch inside the loop are counted. Where some loops copy
    asynchronously, the others, over partial results, do not count.
    """
    every = loops(built)
    inner = [one for one in every if not any(set(other) < set(one) for other in every)]
    copying = [one for one in inner if any(line.name.startswith("LDGSTS") for line in one)]
    inner = copying or inner
    counts = [sum(not line.name.startswith("NOP") for line in one) for one in inner]
    return max(counts) / elements if counts else None


def loops(built: Built) -> list[list[Line]]:
    """The instructions of each loop, those of loops inside it included.

    From past a program's end waits that take longer lead back into it: those are no loops of their own.
    """
    ends = [(line.target, line.address) for line in built.program if line.target is not None]
    bodies = [
        [line for line in built.program if start <= line.address <= end] for start, end in ends if start < end
    ]
    return [body for body in bodies if not any(line.name == "EXIT" for line in body)]


def loads(built: Built) -> str:
    """Global loads as `count x bytes` of a thread, widest first, and bulk copies: `8x16 1x2`, `bulk`."""
    widths: Counter[int] = Counter()
    for name, count in built.instructions.items():
        if name.startswith(("LDG.", "LDGSTS.")):
            parts = name.split(".")
            widths[next((LOAD_BYTE[part] for part in parts if part in LOAD_BYTE), 4)] += count
    found = [f"{count}x{byte}" for byte, count in sorted(widths.items(), reverse=True)]
    return " ".join((["bulk"] if built.count("UTMALDG", "UBLKCP") else []) + found) or "none"


def names() -> list[str]:
    """The losses that there are modules of."""
    found = (path.stem.removesuffix("_losses") for path in Path(__file__).parent.glob("*_losses.py"))
    return sorted(name.replace("_", "-") for name in found)


def rows(name: str) -> list[Row]:
    """Of this loss."""
    found: Iterator[Row] = importlib.import_module(f"tests.kernels.{name.replace('-', '_')}_losses").losses()
    return list(found)


def facts(row: Row, side: str, asked: Callable[[], Form]) -> Facts:
    """What the compiler makes of a form; if anything is missing, what."""
    # Whatever an old commit lacks, a module, an argument, a field, is said and is no end of the table.
    try:
        form = asked()
        built = form.build() if form.build else None
        return Facts(
            row.what,
            side,
            f"{form.kernel} {form.configuration}".strip(),
            _numbers(form, built),
            form.note(built) if form.note else "",
        )
    except Exception as error:
        return Facts(row.what, side, failure=_said(error))


def _said(error: Exception) -> str:
    """An error's first line, without the place of a file in parentheses."""
    return re.sub(r" \(/[^)]*\)$", "", f"{type(error).__name__}: {error}".splitlines()[0])


def _numbers(form: Form, built: Built | None) -> tuple[str, ...]:
    passes = "" if form.passes is None else f"{form.passes:.2f}"
    if built is None:
        return ("",) * (len(COLUMNS) - 1) + (passes,)
    flight = form.in_flight(built) if form.in_flight else None
    each = form.instructions(built) if form.instructions else None
    return (
        str(built.registers),
        str(built.spills),
        str(built.shared_byte),
        loads(built),
        "" if flight is None else f"{flight:.0f}",
        "" if each is None else f"{each:.1f}",
        passes,
    )


def present(name: str) -> list[Facts]:
    """Of this checkout: `now`, and `before` where the old form still is, row by row."""
    asked = []
    for row in rows(name):
        if row.before:
            asked.append((row, "before", row.before))
        asked.append((row, "now", row.now))
    return _compiled(asked)


def past(name: str) -> list[Facts]:
    """One line a row: what these kernels, another commit's, have in the place of the row's `now`."""
    try:
        found = rows(name)
    except Exception as error:
        return [Facts("*", "before", failure=_said(error))]
    return _compiled([(row, "before", row.before or row.now) for row in found])


def _compiled(asked: Sequence[tuple[Row, str, Callable[[], Form]]]) -> list[Facts]:
    # Forms one after the other: of a module that cannot be imported two threads say different things.
    formed = [(row, side, _formed(form)) for row, side, form in asked]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda one: facts(*one), formed))


def _formed(asked: Callable[[], Form]) -> Callable[[], Form]:
    """What gives the form, or raises what asking for it raised."""
    try:
        form = asked()
    except Exception as error:
        return functools.partial(_raise, error)
    return lambda: form


def _raise(error: Exception) -> Form:
    raise error


def at_commit(ref: str, asked: Sequence[str]) -> dict[str, list[Facts]]:
    """`past` of these losses, by a process of its own on the kernels of a commit. Raises UserError."""
    from bench.cli.ab import checked_out, commit_of

    where = f"--ref {ref}"
    with checked_out(commit_of(ref, where), where) as folder:
        # Its own tests would not know what to ask; only kernels/ and bench/ are to be old.
        shutil.rmtree(folder / "tests", ignore_errors=True)
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        done = subprocess.run(
            [sys.executable, "-m", "tests.kernels.losses", "--past", *asked],
            cwd=folder,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    found = json.loads(done.stdout)
    return {name: [Facts(**one) for one in listed] for name, listed in found.items()}


def beside(now: Sequence[Facts], then: Sequence[Facts]) -> list[Facts]:
    """The lines of this checkout with those of another commit in the place of its own `before`."""
    if [one.what for one in then] == ["*"]:
        then = [Facts(one.what, "before", failure=then[0].failure) for one in now if one.side == "now"]
    then_of = {one.what: one for one in then}
    lines = []
    for one in now:
        if one.side == "now":
            unknown = Facts(one.what, "before", failure="its candidates are others")
            lines += [then_of.get(one.what, unknown), one]
    return lines


def show(name: str, listed: Sequence[Facts]) -> None:
    """Print the lines of one loss."""
    width = max((len(one.kernel) for one in listed), default=0)
    heads = "  ".join(f"{head:>{wide}}" for head, wide in zip(COLUMNS, WIDTHS, strict=True))
    print(f"{name}\n  {'':8} {'':{width}}  {heads}")
    what = None
    for one in listed:
        if one.what != what:
            what = one.what
            print(f"  {what}")
        if one.failure:
            print(f"    {one.side:6} not there: {one.failure}")
            continue
        numbers = "  ".join(f"{number:>{wide}}" for number, wide in zip(one.numbers, WIDTHS, strict=True))
        print(f"    {one.side:6} {one.kernel:{width}}  {numbers}  {one.note}".rstrip(), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Print the tables; how many forms of this checkout cannot be compiled."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kernels.losses", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; default: all")
    parser.add_argument("--ref", metavar="COMMIT", help="take `before` from this commit's kernels")
    parser.add_argument("--past", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in names()]
    if unknown:
        parser.error(f"no loss is called {', '.join(unknown)}; there are {', '.join(names())}")
    asked = given.names or names()
    if given.past:
        json.dump({name: [asdict(one) for one in past(name)] for name in asked}, sys.stdout)
        return 0
    then = at_commit(given.ref, asked) if given.ref else {}
    missing = 0
    for name in asked:
        now = present(name)
        missing += sum(bool(one.failure) for one in now)
        show(name, beside(now, then[name]) if given.ref else now)
    return missing


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
