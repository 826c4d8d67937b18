"""Puts this checkout at the end of the search path of the Python that runs this, and a program beside it.

    .venv/bin/python -m bench.environment.search_path

`make setup` does, for its own environment: `.venv/bin/python -m bench` then works from any folder, and
`.venv/bin/roofbench` is the same by a name of its own, which a shell can complete. Installing the project
would do more: its `kernels` would overwrite Hugging Face's package of that name. At the end of the path it
hides nothing.
"""

import shlex
import sys
import sysconfig
from pathlib import Path

PROGRAM = """#!/bin/sh
exec {python} -c 'import runpy, sys
sys.argv[0] = "roofbench"
runpy.run_module("bench", run_name="__main__")' "$@"
"""


def program(python: str) -> str:
    """The text of the program `roofbench`, which this Python runs."""
    return PROGRAM.format(python=shlex.quote(python))


if __name__ == "__main__":
    checkout = Path(__file__).parents[2]
    Path(sysconfig.get_path("purelib"), "roofbench.pth").write_text(f"{checkout}\n")
    roofbench = Path(sysconfig.get_path("scripts"), "roofbench")
    roofbench.write_text(program(sys.executable))
    roofbench.chmod(0o755)
