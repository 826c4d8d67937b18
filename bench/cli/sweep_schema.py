"""`python -m bench.cli.sweep_schema`: write sweeps/schema.json, by which editors complete sweeps.

It is not committed: `make setup` writes it, and so does this after an operator was added.
"""

from __future__ import annotations

import kernels
from bench.sweep.json_schema import schema_text
from bench.sweep.load import SWEEPS

if __name__ == "__main__":
    (SWEEPS / "schema.json").write_text(schema_text([kernels.problem(name) for name in kernels.names()]))
