"""The site: a report of each device, and one of all of them together that links to these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.errors import UserError
from bench.judge.achieved import by_age
from plots.report import cases, claims, devices, machine, page
from plots.report.section import Results, Section, filled

MARKER = ".roofbench-site"
"""Its presence says that the pages of the folder are those of a site, which the next site may delete."""
OF_ONE = (machine.section, claims.section, cases.section)
OF_ALL = (devices.section, claims.section, machine.section)


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
        runs = [run for run in results.runs if run.device == name and run.measured]
        judged = [(of, said) for of, said in results.judged if of[0].device == name]
        pages[f"{name}.html"] = page.html(replace(results, runs=runs, judged=judged), OF_ONE)
        links.append((f"{name}.html", name, f"{sum(run.measured for run in runs):,} times"))
    say("page of all devices")
    each = Section("Each device", "pages", filled("index.html.j2", links=links))
    pages["index.html"] = page.of(page.title(results), [each, *page.made(results, OF_ALL)])
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
