"""`python -m plots RESULT... [-o DIR]`: every figure of every run in these files, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bench.datasheet import DeviceError, find_datasheet
from bench.store import StoreError
from plots import duel, quantization, roofline, style, sweep
from plots.frame import PlotError, Run, load
from plots.page import Page
from plots.section import sections

SWEEPS = Path(__file__).resolve().parent.parent / "sweeps"
"""Where the checkout keeps the sweeps, for what they want drawn."""
FIGURES = Path("figures")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT...", help="Parquet files, or folders of them.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Folder for the figures; figures/<device>/<run> if left out. Several runs get "
            "<device>/<run> below it, each its own.",
        ),
    ] = None,
) -> None:
    """Draw every figure of these results, from parquet alone. No GPU is needed."""
    try:
        runs = load(results, find_datasheet, lambda said: typer.echo(f"left out: {said}", err=True))
        for run in runs:
            alone = to is not None and len(runs) == 1
            folder = (to or FIGURES) if alone else (to or FIGURES) / run.device / run.run_id
            if not run.measured:
                typer.echo(f"{run.device} {run.run_id}: no row has a time; nothing drawn", err=True)
                continue
            drawn = save(run, folder, SWEEPS)
            rows = f"{run.measured} of {len(run.rows)} rows measured"
            typer.echo(f"{folder}: {len(drawn) // 2} figures, PNG and SVG ({rows})")
    except (StoreError, PlotError, DeviceError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    except OSError as error:
        typer.echo(f"{error.filename}: figures cannot be written here: {error.strerror}", err=True)
        raise typer.Exit(2) from error


def save(run: Run, folder: Path, sweeps: Path) -> list[Path]:
    """Write every figure of a run below a folder; their paths, PNG and SVG in turn."""
    paths: list[Path] = []
    with style.look():
        for stem, page in pages(run, sweeps):
            paths += page.save(folder / stem)
    return paths


def pages(run: Run, sweeps: Path) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of every figure: the rooflines, the duels, then the sweeps by name."""
    for name, page in roofline.draw(run):
        yield f"roofline-{name}", page
    for name, page in duel.draw(run):
        yield f"duel-{name}", page
    once = run.rows[run.rows["visit"] == 0]
    for path, rows in once.groupby("sweep", sort=True):
        wanted = sections(rows, str(path), sweeps)
        for i, section in enumerate(wanted):
            which = f"-{i + 1}" if len(wanted) > 1 else ""
            if section.kind == "quantization":
                for number, page in enumerate(quantization.draw(run, rows, section.x), 1):
                    yield f"{path}{which}-quantization{_leaf(number)}", page
                continue
            for quantity in sweep.QUANTITIES:
                for number, page in enumerate(sweep.draw(run, rows, section, quantity), 1):
                    yield f"{path}{which}-{quantity}{_leaf(number)}", page


def _leaf(number: int) -> str:
    return f"-{number}" if number > 1 else ""


if __name__ == "__main__":
    app(prog_name="python -m plots")
