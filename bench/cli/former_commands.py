"""Commands and options of earlier releases: a sentence each on what takes its place, for one release."""

from __future__ import annotations

from collections.abc import Mapping

FORMER: Mapping[str, str] = {
    "--bench-all-examples": "`--bench-all-examples` is the environment variable ROOFBENCH_DEEP=1",
    "--bench-anonymous": "`--bench-anonymous` is gone: drop host, pci_bus, gpu_uuid and serial from a file",
    "--bench-concurrent": "`--bench-concurrent` is a loop with ROOFBENCH_CONCURRENT_GPUS (docs/fleet.md)",
    "--bench-device all": "`--bench-device all` is a shell loop over --bench-device cuda:N (docs/fleet.md)",
    "--bench-regime": "`--bench-regime` is gone: every run keeps the device loaded, as `sustained` did",
    "--bench-tag": "`--bench-tag` is the environment variable ROOFBENCH_TAGS=key=value,key=value",
    "--bench-fresh-ceilings": "`--bench-fresh-ceilings` is gone: every run measures the ceilings it needs",
    "completion": "`completion` is `roofbench --install-completion`; `make setup` puts it into .venv/bin",
    "dev": "`dev schema` is gone: `list FILE` checks; `dev columns` is `python -m bench.store.schema`",
    "one": "`one CASE` is `run CASE --once`",
    "profile": "`profile CASE` is `run CASE --once`, which prints the command for Nsight",
    "plots history": "`plots history` is `plots report`",
    "plots caches": "`plots caches` is gone: `plots draw` shows each cache sweep over its footprint",
    "plots accept": "`plots accept` is `plots report` of runs of fleet/; `bench accept RESULT` judges one",
    "plots achieved": "`plots achieved` is gone: `plots draw` of several devices draws it in compared/",
    "plots buy": "`plots buy` is `plots report`: a page about several devices has what each gains",
    "plots fleet": "`plots fleet` is `plots report`: a page about several units names the slow ones",
    "ab --kernel": "`ab --kernel` is `run --kernel OLD --kernel NEW --bench-visits 3`, in one run",
    "ab --suite": "`ab --suite` is gone: name sweeps or cases, or give --changed",
    "ab --markdown": "`ab --markdown` is gone: what `ab` prints is a block of code for a comment (gate.yml)",
    "--worst": "`plots score --worst` is gone: order the rows of bench.read by predicted over measured time",
    "ceilings": "`ceilings` is `table --role ceiling`",
    "duel": "`duel` is `table --by implementation`",
    "efficiency": "`efficiency` is `table --by implementation`, and `table` has the share of the roof",
    "export": "`export` is gone: pytest-benchmark's own --benchmark-json is what other tools read",
    "first-minutes": "`first-minutes` is gone: begin on a new GPU with `doctor`, then `make bench`",
    "goals": "`goals` is gone: `table --by implementation` has the ratios, `claims` judges what has a bar",
    "claims --expect": "`claims --expect` is gone: compare two outputs of `claims --json` with diff",
    "claims --experiments": "`claims --experiments` is `claims --by experiment`",
    "claims --markdown": "`claims --markdown` is `claims --by claim`",
    "claims --rules": "`claims --rules` is `claims --by rule`",
    "nightly --json": "`nightly --json` is gone: its exit code, its page, and SQL over its rows",
    "compare --again": "`compare --again` is gone: `compare` ends with the `ab` command to go on with",
    "compare --markdown": "`compare --markdown` is gone: `plots report` is a page of several devices",
    "explain --from": "`explain --from` is gone: `predict OPERATOR NAME=VALUES...` learns from other GPUs",
    "list --bench-visits": "`list --bench-visits` is gone: a plan has the visits of its suite, or one",
    "new gpu": "`new gpu` is gone: begin with a copy of another file in bench/device/datasheets",
    "new sweep": "`new sweep` is gone: begin with a copy of another file in sweeps/",
    "predict --cases": "`predict --cases` is gone: `list --on GPU --cases` has the least times",
    "pack": "`pack` is gone: DuckDB reads a folder of result files as one table (docs/queries.md)",
}
"""Name of a command or option that is no more -> what to do instead."""
