"""Rows as arrays, one for each column: claims ask them many small questions, for which tables are slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
"""Places of rows in their columns."""


class Texts:
    """A column of texts, or of other values that are no numbers: each value once, and which each row has."""

    def __init__(self, numbers: Places, distinct: Sequence[Any]) -> None:
        """`numbers`: the place in `distinct` of each row's value; -1 where it is missing."""
        self.numbers, self.distinct = numbers, distinct

    @classmethod
    def of(cls, values: Any) -> Texts:
        """Values, missing if None or NaN."""
        import pandas as pd

        numbers, distinct = pd.factorize(values)
        return cls(numbers, distinct.tolist())

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: Any) -> Texts:
        return Texts(self.numbers[at], self.distinct)

    def told(self, said_of: Callable[[Any], Any], missing: Any = None) -> npt.NDArray[Any]:
        """What is said of the value of each row; `missing` stands for one that is."""
        return np.array([*map(said_of, self.distinct), said_of(missing)])[self.numbers]

    def are(self, value: Any) -> Bools:
        """Whether each row has this value."""
        return self.told(lambda each: each == value)

    def objects(self) -> npt.NDArray[np.object_]:
        """The value of each row; None if it is missing."""
        return np.array([*self.distinct, None], dtype=object)[self.numbers]

    def tolist(self) -> list[Any]:
        """The same as a list."""
        return list(self.objects())


class Columns(Mapping[str, Any]):
    """Columns of one length by their names: arrays of numbers, NaN where one is missing, and `Texts`."""

    def __init__(self, columns: Mapping[str, Any], count: int) -> None:
        """`count`: how many rows they have."""
        self._columns, self.count = columns, count
        self._numbers: dict[str, tuple[Places, int]] = {}

    @classmethod
    def of(cls, table: pd.DataFrame) -> Columns:
        """Those of a table."""
        columns = {
            str(name): values.to_numpy()
            if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf"
            else Texts.of(values)
            for name, values in table.items()
        }
        return cls(columns, len(table))

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """The rows of all of these, one after the other; what one lacks is missing there."""
        import pandas as pd

        if len(parts) == 1:
            return parts[0]
        frames = [
            pd.DataFrame({n: v.objects() if isinstance(v, Texts) else v for n, v in part.items()})
            for part in parts
        ]
        return cls.of(pd.concat(frames, ignore_index=True))

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """How many columns there are."""
        return len(self._columns)

    def at(self, places: Places | Bools) -> Columns:
        """The rows at these places, or for which this is true."""
        count = int(places.sum()) if places.dtype == bool else len(places)
        if places.dtype == bool and count == self.count:
            return self
        return Columns({name: values[places] for name, values in self.items()}, count)

    def changed(self, columns: Mapping[str, Any]) -> Columns:
        """The same rows with these columns too, or instead of their own."""
        return Columns({**self, **columns}, self.count)

    def floats(self, name: str) -> Floats:
        """A column of numbers."""
        return np.asarray(self[name], dtype=np.float64)

    def missing(self, name: str) -> Bools:
        """Whether each row lacks a value in this column."""
        values = self[name]
        return values.numbers < 0 if isinstance(values, Texts) else np.isnan(values)

    def numbers(self, name: str) -> tuple[Places, int]:
        """(a number for the value of each row, equal where that is; one more than the greatest)."""
        if name not in self._numbers:
            values = self[name] if isinstance(self[name], Texts) else Texts.of(self[name])
            self._numbers[name] = values.numbers + 1, len(values.distinct) + 1
        return self._numbers[name]

    def numbered(self, names: Iterable[str], at: Places | None = None) -> Places:
        """The number, for each of the rows at these places, of those that agree with it in all these columns.

        Numbers ascend in the order in which they occur first.
        """
        import pandas as pd

        numbers, most = np.zeros(self.count if at is None else len(at), dtype=np.intp), 1
        for name in names:
            of_column, count = self.numbers(name)
            of_column = of_column if at is None else of_column[at]
            if len(numbers) and (of_column != of_column[0]).any():
                if most * count >= 1 << 62:  # they would not fit
                    numbers, most = pd.factorize(numbers)[0], len(numbers)
                numbers, most = numbers * count + of_column, most * count
        return pd.factorize(numbers)[0]

    def kinds(self, names: Iterable[str]) -> tuple[Places, Places]:
        """(`numbered` of every row; the place of the first row of each number)."""
        kind = self.numbered(names)
        return kind, np.unique(kind, return_index=True)[1]

    def parts(self, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Places]]:
        """(values of these columns, the places of the rows that have them)."""
        kind, first = self.kinds(names)
        for number, values in enumerate(zip(*(self[name][first].tolist() for name in names), strict=True)):
            yield values, np.flatnonzero(kind == number)

    @cached_property
    def parameters(self) -> list[str]:
        """Parameters of these rows that have a column of their own, in the order in which they occur."""
        import pandas as pd

        named = self["parameter_names"]
        texts = (named.distinct[number] for number in pd.unique(named.numbers))
        return [name for name in dict.fromkeys(" ".join(texts).split()) if name in self]
