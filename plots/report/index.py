"""The site: a report of each device, one of all of them together, and an index over these and the rules."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.errors import UserError
from bench.judge.achieved import by_age
from bench.judge.claims import WITH_EFFECT, JudgedClaim
from bench.judge.frame import DeviceRun
from bench.sweep.experiments import LACKING, RULES
from plots.report import cases, claims, devices, implementations, machine, page
from plots.report.section import Results, filled

MOST = 3_000
"""Cases on the page of one device; of more every so many-th problem is shown."""
MARKER = ".roofbench-site"
"""Its presence says that the pages of the folder are those of a site, which the next site may delete."""
OF_ONE = (machine.section, claims.section, cases.section, implementations.section)
OF_ALL = (machine.section, devices.section, claims.section)


def write(results: Results, folder: Path, say: Callable[[str], object]) -> tuple[int, int]:
    """Write the pages into the folder, which is emptied of an earlier site; their bytes and their number.

    UserError if the folder holds files, but none of a site.
    """
    _empty(folder)
    pages: dict[str, str] = {}
    links = []
    names = by_age({run.device: run.datasheet for run in results.runs if run.measured})
    for name in names:
        say(f"page of {name}")
        of_one, times = _of_device(results, name)
        shown = sum(run.measured for run in of_one.runs)
        pages[f"{name}.html"] = page.html(of_one, OF_ONE)
        links.append((f"{name}.html", name, f"{times:,} times{f', {shown:,} shown' * (shown < times)}"))
    if len(names) > 1:
        say("page of all devices")
        pages["compared.html"] = page.html(results, OF_ALL)
        links.insert(0, ("compared.html", "All devices compared", f"{len(names)} devices"))
    judged = [each for _, of in results.judged for each in of]
    pages["index.html"] = filled("index.html.j2", title="roofbench", links=links, rules=_rules(judged))
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")
    return sum(len(text.encode()) for text in pages.values()), len(pages)


def _empty(folder: Path) -> None:
    """Delete the pages of an earlier site and nothing else."""
    marker = folder / MARKER
    if marker.exists():
        for file in folder.glob("*.html"):
            file.unlink()
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: holds files that are no site of ours; give an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("")


def _of_device(results: Results, name: str) -> tuple[Results, int]:
    """The results of one device, thinned to about MOST cases, and how many there are."""
    runs = [run for run in results.runs if run.device == name and run.measured]
    times = sum(run.measured for run in runs)
    shown = {run.key: _thinned(run, -(-times // MOST)) for run in runs}
    judged = [([shown[run.key] for run in of], said) for of, said in results.judged if of[0].key in shown]
    return replace(results, runs=list(shown.values()), judged=judged), times


def _thinned(run: DeviceRun, every: int) -> DeviceRun:
    """The run with the rows of every so many-th problem, the same on every device, and all ceilings."""
    kept = [
        row
        for row in run.rows
        if every == 1 or row.role != "measurement" or zlib.crc32(row.parameters.encode()) % every == 0
    ]
    return replace(run, rows=kept or run.rows[:1])


def _rules(judged: Sequence[JudgedClaim]) -> list[tuple[int, str, str, str]]:
    """(number, what it says, `3 SUPPORTED, 1 UNDECIDED` over all devices, what is missing) of each rule."""
    lines = []
    for number, says in RULES.items():
        speaking = [each for each in judged if number in each.claim.rules]
        counts = Counter(each.verdict for each in speaking)
        words = ", ".join(f"{counts[word]} {word}" for word in WITH_EFFECT if counts[word])
        lacking = f"needs {LACKING[number]}" if number in LACKING else "not in these results"
        lines.append((number, says, words, "" if speaking else lacking))
    return lines
