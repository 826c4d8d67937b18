"""torch.compile in custom kernels: compiled anew for each problem that is timed; eager mode is an error.

Dynamo keeps eight variants of a function and then runs it uncompiled; checks at awkward sizes used them up.
"""

from __future__ import annotations

import sys

import torch

LIMIT = 64
"""Variants that the checks of one kernel may need: more than any operator has awkward sizes."""
_last: list[str] = []
_usual: list[int] = []
"""The most variants by Dynamo's setting, or by the file's."""


def begin(kernel: str, problem: str) -> None:
    """Forget what was compiled for another kernel or problem; where Dynamo would give up it raises.

    `problem` is empty for checks at many sizes, which may need LIMIT variants.
    """
    if "torch._dynamo" not in sys.modules:
        return
    from torch._dynamo import config
    from torch._dynamo.utils import counters
    from torch._inductor import config as inductor

    inductor.compile_threads = 1  # a pool of processes would run on while something is timed
    if config.recompile_limit != LIMIT:
        _usual[:] = [config.recompile_limit]
    config.recompile_limit = _usual[0] if problem else max(*_usual, LIMIT)
    config.fail_on_recompile_limit_hit = not config.suppress_errors  # Dynamo refuses both
    if _last != [kernel, problem]:
        torch._dynamo.reset()
        counters.clear()
        _last[:] = [kernel, problem]


def end() -> None:
    """Let a file be loaded that has Dynamo pass over errors."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.config.fail_on_recompile_limit_hit = False


def uncompiled() -> str:
    """Why what torch.compile was given ran uncompiled since `begin`; empty if it did not.

    Whoever disables it, or names the backend `eager`, asks for it: then it says nothing.
    """
    if "torch._dynamo" not in sys.modules:
        return ""
    from torch._dynamo import config
    from torch._dynamo.utils import counters

    frames = counters["frames"]
    fell_back = config.suppress_errors and frames["ok"] < frames["total"]
    if not frames["total"] or (frames["ok"] and counters["stats"]["unique_graphs"] and not fell_back):
        return ""
    return "torch.compile could not compile it and ran it in eager mode: with fullgraph=True it says why"
