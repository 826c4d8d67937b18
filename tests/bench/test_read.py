"""The table for other tools, and docs/reading.ipynb, with nothing installed but what it says it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pyarrow as pa

from bench.device.datasheet import find_datasheet
from bench.environment.dependencies import IMPORT_NAMES
from bench.judge.read_runs import load
from bench.read import read_frame

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
FILES = [REFERENCE / "tour", REFERENCE / "engines" / "nvidia-l40s"]
PAGE = ROOT / "docs" / "reading.ipynb"
DERIVED = ("rate_per_s", "intensity", "predicted_s", "datasheet_s", "of_roof", "bound_by", "flags", "suspect")


def test_the_table_has_the_columns_that_commands_derive_and_those_that_are_stored() -> None:
    rows = read_frame([str(path) for path in FILES])
    by_commands = pd.concat([run.frame for run in load(FILES, find_datasheet)], ignore_index=True)
    assert rows["of_roof"].notna().any() and rows["source"].notna().any()
    pd.testing.assert_frame_equal(rows[list(DERIVED)], by_commands[list(DERIVED)])
    stored = read_frame(FILES, derived=False)
    assert len(stored) == len(rows) and set(stored.columns) <= set(rows.columns) - set(DERIVED)
    assert pa.Table.from_pandas(rows).num_rows == len(rows)  # as Polars takes it


WITHOUT = """
import json, sys
from pathlib import Path
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name in sys.argv[2].split(","):
            raise ModuleNotFoundError(f"{name} is imported", name=name)
sys.meta_path.insert(0, Refusing())
names = {}
for cell in json.loads(Path(sys.argv[1]).read_text("utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)
print(*(len(names[name]) for name in ("rows", "close", "doubted", "spread")))
"""


def test_the_notebook_runs_with_the_packages_of_its_group_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    every, group = project["project"]["dependencies"], project["dependency-groups"]["read"]
    assert set(group) < set(every)
    extras = project["project"]["optional-dependencies"]
    every = [*every, *(line for name in ("page", "predict", "import", "nightly") for line in extras[name])]
    others = [line.split(";")[0].split(">")[0] for line in every if line not in group]
    refused = ",".join(IMPORT_NAMES.get(name, name.replace("-", "_")) for name in others)
    assert {"torch", "typer", "matplotlib", "sklearn"} <= set(refused.split(","))
    words = [sys.executable, "-c", WITHOUT, str(PAGE), refused]
    done = subprocess.run(words, cwd=PAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows, close, doubted, spread = map(int, done.stdout.split())
    assert rows > doubted > 0 and close >= 4 and spread >= 4


def test_the_notebook_holds_no_outputs() -> None:
    cells = json.loads(PAGE.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
