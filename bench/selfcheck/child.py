"""The process of one group: answers each request with the next finding, then with {"end": true}.

    {"group": MODULE:FUNCTION, "device": "cpu" or "cuda", "parent": {...}}  -> {"end": false}, imported
    {"do": "next"}                                                          -> a finding, or {"end": true}

Started by bench.runner.worker_process.Worker, so it has the environment that the worker of a run has, and the
parent outlives whatever happens here. Findings made before a hang or a crash have been sent by then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from bench.device.detect import detect
from bench.selfcheck.finding import Finding, guarded
from bench.worker.lifeline import answers_only, die_with

BROKEN = (
    "Read the traceback in the file that --json writes; if it blames no package, it is a bug of roofbench."
)


def findings(request: dict[str, Any]) -> Iterator[Finding]:
    """The findings of a group; an exception, also in its import, becomes a finding."""

    def look() -> Iterator[Finding]:
        yield from resolve_name(request["group"])(detect(request["device"]), request["parent"])

    return guarded("unfinished", BROKEN, look)


def main() -> None:
    """Answer requests until the input ends."""
    answers = answers_only()
    die_with(json.loads(sys.argv[1])["parent"])
    results: Iterator[Finding] = iter(())
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"end": False}
        if "group" in request:
            results = findings(request)
            with suppress(Exception):  # raised again, and then a finding
                resolve_name(request["group"])
        else:
            finding = next(results, None)
            answer = {"end": True} if finding is None else finding.json()
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
