"""The program `roofbench` of `make setup`: its commands in any folder, and the Tab key by typer's script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.environment import search_path

ROOT = Path(__file__).parents[1]


def environment(folder: Path) -> dict[str, str]:
    """What a shell has once the environment of `make setup` is active, with this folder before it."""
    (program := folder / "roofbench").write_text(search_path.program(sys.executable))
    program.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{folder}:{ROOT}"}
    return os.environ | paths


def test_a_shell_completes_commands_without_torch_in_any_folder(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch is imported')\n")
    for words, completed, place in (("roofbench new o", "operator", "2"), ("roofbench acc", "accept", "1")):
        asked = {"_ROOFBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
        shell = environment(tmp_path) | asked
        done = subprocess.run("roofbench", cwd=tmp_path, env=shell, capture_output=True, text=True)
        assert done.stdout.split() == [completed], done.stderr
