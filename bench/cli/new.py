"""`python -m bench new operator NAME`: files that pass all tests, and what to fill in."""

from __future__ import annotations

import keyword
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from bench import spec
from bench.cli.application import show
from bench.environment.dependencies import ROOT, demand
from bench.errors import UserError, write_text

NAME = "[a-z][a-z0-9]*(_[a-z0-9]+)*"

new = typer.Typer(no_args_is_help=True)


@new.callback()
def _new() -> None:
    """Files for a new operator, and what to fill in there."""


@new.command()
def operator(name: Annotated[str, typer.Argument(help="Folder in kernels/, such as rmsnorm.")]) -> None:
    """Write an operator that runs and is right, and a sweep that measures it."""
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if not re.fullmatch(NAME, name):
        raise UserError(f"new operator {name}: give lower-case letters, digits and _, such as rms_norm")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or hasattr(spec, class_name):
        raise UserError(f"new operator {name}: Python or bench/spec.py has this name already; give another")
    folder, sweeps = ROOT / "kernels" / name, ROOT / "sweeps" / name
    for path in (folder, folder.with_suffix(".py"), sweeps):
        if path.exists():
            raise UserError(f"new operator {name}: {path.relative_to(ROOT)} exists; give another name")
    files = {
        "operator_package.py.j2": folder / "__init__.py",
        "operator_problem.py.j2": folder / "problem.py",
        "operator.py.j2": folder / "operator.py",
        "operator_sweep.yaml.j2": sweeps / "rows.yaml",
    }
    demand("new", "jinja2")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True)
    facts = {"name": name, "class": class_name, "title": name.replace("_", " ").capitalize()}
    for template, path in files.items():
        write_text(path, environment.get_template(template).render(facts))
        show([f"written: {os.path.relpath(path)}"])
    run = f"run:     python -m bench run {name} rows=256..16384 length=1024 dtype=float32"
    check = f"check:   pytest bench -k {name}; pytest tests/kernels/test_every_operator.py -k {name}"
    show(["fill in what they mark with `Fill in:`", run, check])
