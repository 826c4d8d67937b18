"""Groups of the doctor that break, each in its own way; a test names the way in `parent`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from bench.device.detect import Device
from bench.selfcheck.finding import Finding, passed


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    yield passed("before", f"A finding on a {device.kind}.", pid=os.getpid())
    print("what a library prints is no answer")
    if parent["act"] == "hang":
        while True:
            pass
    if parent["act"] == "abort":
        os.abort()
    if parent["act"] == "raise":
        try:
            raise KeyError("the inner cause")
        except KeyError as error:
            raise RuntimeError("the outer one") from error
    yield passed("after", "Another finding.", infinite=float("inf"))
