"""Commands and options of earlier releases: a sentence each on what takes its place, for one release."""

from __future__ import annotations

from collections.abc import Mapping

FORMER: Mapping[str, str] = {
    "--bench-shard": "`--bench-shard` is gone: give each run sweeps of its own, as --bench-sweep gemm",
    "--new-device": "`import csv --new-device` is gone: a name that is nearly a known one is remarked on",
    "plots accept": "`plots accept` is `plots report` of runs of fleet/; `bench accept RESULT` judges one",
    "plots achieved": "`plots achieved` is gone: `plots draw` of several devices draws it in compared/",
    "plots buy": "`plots buy` is `plots report`: a page about several devices has what each gains",
    "plots fleet": "`plots fleet` is `plots report`: a page about several units names the slow ones",
    "ab --kernel": "`ab --kernel` is `run --kernel OLD --kernel NEW`, in one run",
    "ab --suite": "`ab --suite` is gone: name sweeps or cases, or give --changed",
    "ab --markdown": "`ab --markdown` is gone: what `ab` prints is a block of code for a comment (gate.yml)",
    "--worst": "`plots score --worst` is gone: order the rows of bench.read by predicted over measured time",
    "doctor --json": "`doctor --json` is gone: a check that breaks shows its traceback",
    "claims --expect": "`claims --expect` is gone: compare two outputs of `claims --json` with diff",
    "import --sample": "`import --sample` is gone: import all of it, and keep the cases of an earlier sample",
    "import agreement": "`import agreement` is gone: what it found stands in results/reference/verdicts.md",
    "nightly --json": "`nightly --json` is gone: its exit code, its page, and SQL over its rows",
    "compare --markdown": "`compare --markdown` is gone: `plots report` is a page of several devices",
}
"""Name of a command or option that is no more -> what to do instead."""
