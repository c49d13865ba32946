"""Groups the rows of a record batch by the values of columns, without a loop over rows."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any


def grouped(batch: Any, columns: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The rows of `batch` for each combination of values in `columns`, in the order of the batch.

    Args:
        batch: a record batch.
        columns: arrays with a value for each row; strings, binaries, numbers, dates or booleans.

    Yields:
        The values, one for each column, and their rows: at least one. A batch with one combination is passed on as it
        is; of an empty batch there is nothing.
    """
    if not batch.num_rows:
        return
    pc: Any = import_module("pyarrow.compute")
    codes, combinations = _codes(columns)
    for code, values in enumerate(combinations):
        yield values, batch if codes is None else batch.filter(pc.equal(codes, code))


def _codes(columns: Sequence[Any]) -> tuple[Any, list[tuple[Any, ...]]]:
    """The number of each row's combination, and the combinations; None instead of numbers when there is only one."""
    np: Any = import_module("numpy")
    codes: Any = None
    combinations: list[tuple[Any, ...]] = [()]
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        values: list[Any] = encoded.dictionary.to_pylist()
        if len(values) == 1:
            combinations = [(*combination, values[0]) for combination in combinations]
            continue
        here = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        mixed = here if codes is None else codes * len(values) + here
        used, codes = np.unique(mixed, return_inverse=True)
        combinations = [(*combinations[each // len(values)], values[each % len(values)]) for each in used.tolist()]
    return (None if codes is None else import_module("pyarrow").array(codes)), combinations
