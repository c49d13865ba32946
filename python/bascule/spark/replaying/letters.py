"""Dead letters in a stream, taken apart: the record as it was, and the headers that say where it is from.

A job and the sink write a letter as the record, with headers `bascule.dlq.…` behind its own, of which
`bascule.dlq.stream` is the first. A letter may be one of another letter: only the last headers belong to it. Nothing
here loops over rows, unless a header is not text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib import import_module
from typing import Any, Final

from bascule.pipeline.dead_letters import DLQ_PREFIX

FIRST: Final = f"{DLQ_PREFIX}stream"
REDRIVE_PREFIX: Final = "bascule.redrive."
"""Headers of a record that was driven again: the id, and stream, partition and offset of the letter."""
CUT: Final = ("value_bytes", "headers_left_out", "key_bytes")
"""Headers of a letter that the sink has cut, because the record was too large for the stream of dead letters."""
OF_THE_RECORD: Final = ("stream", "subject", "reply", "id")
"""Headers of a letter without which its record cannot be written as it was."""


@dataclass(frozen=True)
class Letters:
    """The letters of one record batch.

    Attributes:
        headers: Arrow list array of struct<key, value>, one list for each record; no list is null.
    """

    headers: Any

    @cached_property
    def _flat(self) -> Any:
        return self.headers.flatten()

    @cached_property
    def _parents(self) -> Any:
        pc: Any = import_module("pyarrow.compute")
        return pc.list_parent_indices(self.headers).to_numpy(zero_copy_only=False)

    @cached_property
    def _keys(self) -> Any:
        pc: Any = import_module("pyarrow.compute")
        return pc.struct_field(self._flat, "key")

    @cached_property
    def _starts(self) -> Any:
        """Of each record the number of the entry in which its provenance begins; -1 = the record has none."""
        np: Any = import_module("numpy")
        found = self._where(FIRST)
        starts = np.full(len(self.headers), -1, dtype=np.int64)
        np.maximum.at(starts, self._parents[found], found)
        return starts

    def _where(self, name: str) -> Any:
        """Numbers of the entries with a name."""
        pc: Any = import_module("pyarrow.compute")
        same = pc.fill_null(pc.equal(self._keys, name), False)
        return pc.indices_nonzero(same).to_numpy(zero_copy_only=False).astype("int64")

    @property
    def are_letters(self) -> Any:
        """Which records are letters: an Arrow array of booleans."""
        pa: Any = import_module("pyarrow")
        return pa.array(self._starts >= 0)

    def said(self, name: str) -> Any:
        """The text of a header of provenance: an Arrow array of strings, null where a letter has none, or no text."""
        return _texts(self._values(name))

    @cached_property
    def flaws(self) -> list[tuple[str, Any]]:
        """Why letters cannot be driven again: sentences, each with the letters, as an Arrow array of booleans."""
        pc: Any = import_module("pyarrow.compute")
        found: list[tuple[str, Any]] = []
        for name in OF_THE_RECORD:
            values = self._values(name)
            is_other = pc.and_(pc.is_valid(values), pc.is_null(_texts(values)))
            found.append((f"its header {DLQ_PREFIX}{name} is not UTF-8", is_other))
        is_hexadecimal = pc.match_substring_regex(self.said("id"), "^([0-9a-fA-F]{2})*$")
        sentence = f"its header {DLQ_PREFIX}id is not a hexadecimal number of whole bytes"
        found.append((sentence, pc.invert(pc.fill_null(is_hexadecimal, True))))
        return found

    @property
    def are_malformed(self) -> Any:
        """Which letters have one of the flaws: an Arrow array of booleans."""
        pc: Any = import_module("pyarrow.compute")
        return reduce(pc.or_, (mask for _, mask in self.flaws))

    def _values(self, name: str) -> Any:
        """The content of a header of provenance: an Arrow array of bytes, null where a letter has none."""
        np: Any = import_module("numpy")
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        found = self._where(f"{DLQ_PREFIX}{name}")
        starts = self._starts[self._parents[found]]
        found = found[(starts >= 0) & (found >= starts)]
        place = np.zeros(len(self.headers), dtype=np.int64)
        there = np.zeros(len(self.headers), dtype=bool)
        place[self._parents[found]], there[self._parents[found]] = found, True
        return pc.struct_field(self._flat, "value").take(pa.array(place, mask=~there))

    def records(self, added: Mapping[str, Any]) -> Any:
        """The headers of the records themselves, with others behind them.

        Args:
            added: by name, each an Arrow array with a value for each record.
        """
        np: Any = import_module("numpy")
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        again = pc.fill_null(pc.starts_with(self._keys, REDRIVE_PREFIX), False).to_numpy(zero_copy_only=False)
        numbers, count = np.arange(len(self._flat)), len(self.headers)
        own = np.flatnonzero((numbers < self._starts[self._parents]) & ~again)
        counts = np.bincount(self._parents[own], minlength=count)
        entries = [self._flat.take(pa.array(own))]
        rows = [self._parents[own]]
        for name, values in added.items():
            keys = pa.repeat(pa.scalar(name), count)
            entries.append(pa.StructArray.from_arrays([keys, values.cast(pa.binary())], fields=list(self._flat.type)))
            rows.append(np.arange(count))
        order = np.argsort(np.concatenate(rows), kind="stable")
        ends = np.cumsum(counts + len(added))
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.concat_arrays(entries).take(pa.array(order)))


def _texts(values: Any) -> Any:
    """Bytes as text; null where they are not UTF-8."""
    pa: Any = import_module("pyarrow")
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # does not say which ones
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
