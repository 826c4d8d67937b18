"""Counted: a problem of imported rows, whose counts are stated together."""

from abc import abstractmethod
from typing import NamedTuple

from bench.spec import Dtypes, Implementation, Problem


def on_gpus(name: str, summary: str, dtypes: Dtypes) -> Implementation:
    """An implementation for GPUs alone; `dtypes` as of every implementation."""
    return Implementation(name, summary, ("cuda",), dtypes)


class Counts(NamedTuple):
    """FLOP, bytes read and written, special functions; `again`: of the bytes read, those read once more."""

    flop: int = 0
    read: int = 0
    written: int = 0
    special_functions: int = 0
    again: int = 0


class Counted(Problem):
    """A problem that says in `counts` and `beyond` all that others say property by property."""

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """What one launch computes, all inputs and all outputs, each once."""

    def beyond(self, implementation: str) -> Counts:
        """What an implementation moves besides: nothing."""
        return Counts()

    @property
    def flop(self) -> int:
        """The number in `counts`."""
        return self.counts.flop

    @property
    def byte_read(self) -> int:
        """The number in `counts`."""
        return self.counts.read

    @property
    def byte_written(self) -> int:
        """The number in `counts`."""
        return self.counts.written

    @property
    def special_functions(self) -> int:
        """The number in `counts`."""
        return self.counts.special_functions

    def byte_moved(self, implementation: str) -> int:
        """`byte`, and what is read and written `beyond` it."""
        beyond = self.beyond(implementation)
        return self.byte + beyond.read + beyond.written

    def byte_again(self, implementation: str) -> int:
        """The number in `beyond`."""
        return self.beyond(implementation).again

    def moved_written(self, implementation: str) -> int:
        """The outputs, and what is written `beyond` them."""
        return self.byte_written + self.beyond(implementation).written
