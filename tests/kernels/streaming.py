"""What a kernel bound by memory promises of its compiled form, and the table that shows it.

Nothing spilled, shared memory within the limit, 16-byte loads and stores where data is aligned, and few
enough instructions for each element that memory, not issue, stays the limit. Needs no GPU; must run without
TRITON_INTERPRET. It says what the compiler made, not that it runs, nor how fast.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build

CAPABILITIES = (70, 80, 90, 100)


@dataclass(frozen=True)
class Variant:
    """One compilation of one kernel, and what is promised of it."""

    name: str
    """As the table shows it: operator, direction, layout, data type, configuration."""
    kernel: Any
    """The jitted function."""
    arguments: Mapping[str, str]
    """Run-time arguments with their Triton types; `tests.kernels.compiled.pointer` names pointers."""
    constants: Mapping[str, Any]
    warps: int
    stages: int = 1
    blocks: int = 1
    """Of a cluster."""
    divisible: tuple[str, ...] = ()
    """Integer arguments that are multiples of 16."""
    wide: bool = True
    """Bulk data moves 16 bytes at a time, and nothing moves 1 or 2 bytes at a time."""
    element: int = 0
    """Elements of one thread in a straight-line kernel; 0 where instructions per element mean nothing."""
    spills: int = 0
    """Most loads and stores of spilled registers, none of them in a loop: executed once, they cost little."""
    most: float | None = None
    """Most SASS instructions for each element on sm_90, where that is promised."""
    least: int = 70
    """Lowest compute capability that has what the kernel needs."""
    capabilities: tuple[int, ...] = field(default=CAPABILITIES)
    promises: tuple[Callable[[Built], list[str]], ...] = ()
    """What this kernel promises beside: each says what is broken, as phrases."""


def compile_one(variant: Variant, capability: int) -> Built:
    """Compile and disassemble; Triton's own errors pass through."""
    return build(
        variant.kernel,
        variant.arguments,
        variant.constants,
        capability,
        warps=variant.warps,
        stages=variant.stages,
        divisible=variant.divisible,
        blocks=variant.blocks,
    )


def per_element(variant: Variant, built: Built) -> float | None:
    """SASS instructions for each element, padding left out; None where that means nothing."""
    count = sum(n for name, n in built.instructions.items() if not name.startswith("NOP"))
    return count / variant.element if variant.element and count else None


def faults(variant: Variant, capability: int, built: Built) -> list[str]:
    """What breaks a promise, as phrases; empty if nothing does."""
    found = []
    if built.spills > variant.spills or built.spills_in_loops or (built.stack_byte and not variant.spills):
        found.append(f"{built.spills} spills, {built.stack_byte} bytes of stack")
    if built.shared_byte > SHARED_LIMIT_BYTE[capability]:
        found.append(f"{built.shared_byte} bytes of shared memory")
    if variant.wide:
        found += _narrow(built)
    count = per_element(variant, built)
    if variant.most is not None and capability == 90:
        if count is None or count > variant.most:
            found.append(f"{count} instructions an element, promised {variant.most}")
    return found + [phrase for promise in variant.promises for phrase in promise(built)]


def _narrow(built: Built) -> list[str]:
    if not built.instructions:
        # Where nothing disassembles, the virtual assembly says it: 4 words of 4 bytes, or 2 of 8.
        missing = [
            what
            for what in ("ld", "st")
            if not re.search(rf"\b{what}\.global\S*\.(v4\.b32|v2\.b64)", built.ptx)
        ]
    else:
        missing = [what for what in ("LDG", "STG") if not _count(built, what, "128")]
    found = [f"no 16-byte {', '.join(missing)}"] if missing else []
    narrow = sum(_count(built, what, size) for what in ("LDG", "STG") for size in ("U8", "S8", "U16", "S16"))
    return found + ([f"{narrow} accesses of 1 or 2 bytes"] if narrow else [])


def _count(built: Built, what: str, size: str) -> int:
    """Instructions such as LDG.E.EF.128: this name, this size, any cache policy between."""
    return sum(
        n for name, n in built.instructions.items() if name.startswith(what) and size in name.split(".")
    )


def everywhere(variants: Iterable[Variant]) -> Iterator[Variant]:
    """Each of them for every architecture that can, as `--all` asks; the tests spread them over these."""
    for variant in variants:
        yield replace(variant, capabilities=tuple(one for one in CAPABILITIES if one >= variant.least))


def main(variants: Iterable[Variant]) -> int:
    """Print the table; the number of faults."""
    jobs = [(variant, capability) for variant in variants for capability in variant.capabilities]
    width = max(len(variant.name) for variant, _ in jobs)
    print(f"{'kernel':{width}}  warps  sm   regs  shared  spill  LDG.128  STG.128  instr/elem")
    bad = 0
    with ThreadPoolExecutor(2) as pool:
        for (variant, capability), built in zip(
            jobs, pool.map(lambda job: compile_one(*job), jobs), strict=True
        ):
            wrong = faults(variant, capability, built)
            bad += len(wrong)
            each = per_element(variant, built)
            loads, stores = (_count(built, what, "128") for what in ("LDG", "STG"))
            print(
                f"{variant.name:{width}}  {variant.warps:5}  {capability:<4} {built.registers:4} "
                f"{built.shared_byte:7} {built.spills:6}  {loads if built.instructions else '?':>7}  "
                f"{stores if built.instructions else '?':>7}  {'' if each is None else f'{each:10.1f}'}"
                f"{'  ' + '; '.join(wrong) if wrong else ''}",
                flush=True,
            )
    print(f"{len(jobs)} compiled, {bad} faults")
    return bad
