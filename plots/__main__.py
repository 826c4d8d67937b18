"""`python -m plots RESULT... [-o DIR]`: every figure of the files. `... report RESULT...`: one page.

`... score RESULT...`: how far predictions are off. `... site`: an index over the reports of all devices.
"""

from __future__ import annotations

from bench.environment.dependencies import RUNNING, refuse_if_missing

if __name__ == "__main__":
    # Before the first import that could fail. Pages demand what more they need themselves.
    refuse_if_missing(without=RUNNING)

import typer

from bench.cli.application import Commands, run_process
from plots.cli import figures, pages
from plots.cli.score import score


class _Drawing(Commands):
    """Commands of which `draw` is the default, unless the first word is another command or asks for help."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args or args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["draw", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Drawing,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    subcommand_metavar="[draw] RESULT... [-o DIR] | report RESULT... | rules FILE | score RESULT... "
    "| site [RESULT...]",
    help="What result files mean: figures (draw, also without the word), one page about a run, several "
    "devices, nights or units (report), the guides' rules by GPUs (rules), how far predictions are off "
    "(score), an index over the reports of all devices (site). From parquet alone; no GPU is needed. A file "
    "called as one of these words is given as ./draw, ./score ...",
)

for command in (figures.draw, figures.rules, score, pages.report, pages.site):
    app.command()(command)


if __name__ == "__main__":
    run_process(lambda: app(prog_name="python -m plots"))
