"""What a kernel bound by memory promises of its compiled form.

Nothing spilled, shared memory within the limit, 16-byte loads and stores where data is aligned, and few
enough instructions for each element that memory, not issue, stays the limit.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from tests.kernels.compiled import Built, Family, build, resource_faults

CAPABILITIES = (70, 80, 90, 100)


@dataclass(frozen=True)
class Variant:
    """One kernel in one configuration, and what is promised of it."""

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
    capabilities: tuple[int, ...] = CAPABILITIES
    slow: bool = False
    """As `compiled.Family` has it."""
    promises: tuple[Callable[[Built], list[str]], ...] = ()
    """What this kernel promises beside: each says what is broken, as phrases."""


class On(NamedTuple):
    """A variant on one architecture."""

    variant: Variant
    capability: int

    def __str__(self) -> str:
        return self.variant.name

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        variant = self.variant
        return build(
            variant.kernel,
            variant.arguments,
            variant.constants,
            self.capability,
            warps=variant.warps,
            stages=variant.stages,
            divisible=variant.divisible,
            blocks=variant.blocks,
        )

    def faults(self, built: Built) -> list[str]:
        variant = self.variant
        few = variant.spills and built.spills <= variant.spills
        found = resource_faults(built, self.capability, parked_byte=built.stack_byte if few else 0)
        if variant.wide:
            found += _narrow(built)
        count = per_element(variant, built)
        if variant.most is not None and self.capability == 90:
            if count is None or count > variant.most:
                found.append(f"{count} instructions an element, promised {variant.most}")
        return found + [phrase for promise in variant.promises for phrase in promise(built)]

    def counts(self, built: Built) -> str:
        each = per_element(self.variant, built)
        loads, stores = (_count(built, what, "128") if built.program else "?" for what in ("LDG", "STG"))
        return f"{loads:>3} LDG.128 {stores:>3} STG.128" + (f" {each:6.1f} an element" if each else "")


def family(
    variants: Callable[[], Iterable[Variant]], every: Callable[[], Iterable[Variant]] | None = None
) -> Family:
    """These variants, and with --all `every`, or the same."""
    return Family(
        lambda: _expanded(variants()),
        lambda: _expanded((every or variants)()),
        attrgetter("variant.slow"),
    )


def _expanded(variants: Iterable[Variant]) -> Iterator[On]:
    return (On(variant, capability) for variant in variants for capability in variant.capabilities)


def everywhere(variants: Iterable[Variant]) -> Iterator[Variant]:
    """Each of them for every architecture that has what it needs."""
    for variant in variants:
        yield replace(variant, capabilities=tuple(one for one in CAPABILITIES if one >= variant.least))


def per_element(variant: Variant, built: Built) -> float | None:
    """SASS instructions for each element, padding left out; None where that means nothing."""
    count = sum(n for name, n in built.instructions.items() if not name.startswith("NOP"))
    return count / variant.element if variant.element and count else None


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
