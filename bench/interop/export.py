"""The formats by name, and what becomes of one: text on standard output, a file, or a folder of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.errors import UserError, write_text
from bench.interop import export_github, export_otava, export_pytorch
from bench.interop.export_points import Results, latest

ONE_FILE = {"github-action-benchmark": export_github.text, "pytorch": export_pytorch.text}
"""Formats of one time a series: name -> what makes its text."""
OTAVA = "otava"
"""The format of many nights: a folder."""
NAMES = (*ONE_FILE, OTAVA)


def exported(
    form: str,
    results: Sequence[Path],
    output: Path | None,
    left_out: Callable[[str], object],
    remark: Callable[[str], object],
) -> Iterator[str]:
    """Write these results in a format; yields what belongs on standard output: the text, or the files' names.

    `left_out` is told of each file that cannot be read, `remark` what was not exported. UserError
    is raised before anything is written.
    """
    if form not in NAMES:
        raise UserError(f"export {form}: no such format; there is {', '.join(NAMES)}")
    if form == OTAVA and output is None:
        raise UserError("export otava: makes a file for each implementation: give a folder by -o DIR")
    found = Results(results, left_out)
    if form == OTAVA and output is not None:
        files, more = export_otava.files(found.points(), str(output))
        targets = {output / name: text for name, text in files.items()}
    else:
        points, more = latest(found.points())
        text = ONE_FILE[form](points)
        targets = {output: text} if output is not None else {}
    for sentence in (*found.said(), *more):
        remark(sentence)
    if not targets:
        yield text
    for path, content in targets.items():
        write_text(path, content)
        yield f"{path}\n"
