"""`python -m bench`: everything about a run but the run itself, which is `pytest bench/ --benchmark`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from bench.environment.dependencies import AFTERWARDS, ROOT, RUNNING, refuse_if_missing

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # from any folder the packages of this checkout, as from the checkout
    # The doctor is asked before anything runs: it names at once all that running needs.
    refuse_if_missing(without=AFTERWARDS if sys.argv[1:2] == ["doctor"] else (*RUNNING, *AFTERWARDS))

import typer

from bench.accept.command import accept
from bench.cli import imports, result_commands, sweep_commands
from bench.cli.ab import ab
from bench.cli.application import Commands, run_process
from bench.cli.new import new
from bench.cli.run_command import run
from bench.doctor.command import doctor
from bench.fleet.command import fleet
from bench.interop.file_format import formats
from bench.interop.source_file import names
from bench.nightly.command import nightly

app = typer.Typer(
    cls=Commands,
    add_completion=sys.argv[0] == "roofbench",  # a shell completes programs, not `python -m bench`
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=__doc__,
)
importers = typer.Typer(no_args_is_help=True, help="Other people's timings as rows, marked as theirs.")
for tool in ("", *formats()):
    importers.command(tool or "csv")(imports.of_file(tool))
importers.command("all")(imports.import_all)
for source in names():
    importers.command(source)(imports.of_source(source))

PANELS: dict[str, dict[str, Callable[..., Any]]] = {
    "Measure": {"run": run, "list": sweep_commands.list_cases, "nightly": nightly, "doctor": doctor},
    "Compare": {"compare": result_commands.compare, "ab": ab, "fleet": fleet},
    "Judge": {"claims": result_commands.claims, "accept": accept, "table": result_commands.every_case,
              "explain": result_commands.explain},
    "Predict": {"predict": sweep_commands.predict},
}  # fmt: skip
for panel, commands in PANELS.items():
    for word, command in commands.items():
        app.command(word, rich_help_panel=panel)(command)
app.add_typer(importers, name="import", rich_help_panel="Maintain")
app.add_typer(new, name="new", rich_help_panel="Maintain")

if __name__ == "__main__":
    run_process(app)
