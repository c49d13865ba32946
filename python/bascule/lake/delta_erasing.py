"""Erases records from a Delta table, by deltalake's deletion of rows.

The log of a table keeps the predicate of a deletion as text. So rows are deleted by their offsets, and the log never
has the key. Queries append meanwhile: deltalake puts the deletion behind an append of other offsets.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain, islice
from typing import Any, Final

from bascule.errors import CorruptionError
from bascule.failpoints import failpoint
from bascule.lake.delta import ANY_ERASED, ERASED, DeltaTarget, erased_by, import_deltalake, source_name
from bascule.lake.matching import KeyFilter, Match
from bascule.lake.ranges import Erased, Source
from bascule.lake.records import INCARNATION

MOST_OFFSETS: Final = 4_096
"""Offsets in one predicate: deltalake 1.6 ends the process at about 30,000."""
_RETRIES: Final = 15
"""How often deltalake puts a deletion behind commits that do not concern it."""


def erase(
    target: DeltaTarget, handle: Any, wanted: KeyFilter, matches: Sequence[Match]
) -> Mapping[Source, Erased] | None:
    """See `LakeTable.erase`. One commit erases up to `MOST_OFFSETS` records of one source."""
    deltalake, transaction = import_deltalake(), import_module("deltalake.transaction")
    source = min(chain.from_iterable(match.offsets for match in matches))
    every = chain.from_iterable(match.offsets.get(source, ()) for match in matches)
    offsets = list(islice(every, MOST_OFFSETS))
    erased = Erased(len(offsets), min(offsets), max(offsets) + 1)
    before = erased_by(handle, source)
    total = erased if before is None else before + erased
    name = source_name(source)
    numbers = dict(zip(ERASED, (total.rows, total.first, total.end), strict=True))
    transactions = {ANY_ERASED: 1, **{f"bascule/{each}/{name}": value for each, value in numbers.items()}}
    properties = transaction.CommitProperties(
        custom_metadata={"bascule": {"erased": {str(source): erased.rows}}},
        max_commit_retries=_RETRIES,
        app_transactions=[deltalake.Transaction(each, value) for each, value in transactions.items()],
    )
    failpoint("erase.before_commit")
    try:
        figures = handle.delete(
            _predicate(wanted, source, offsets, handle),
            writer_properties=target.writer_properties(),
            commit_properties=properties,
        )
    except deltalake.exceptions.CommitFailedError:
        return None
    failpoint("erase.after_commit")
    version = handle.version()
    target.finish()
    if figures["num_deleted_rows"] != len(offsets):
        raise CorruptionError(
            "damaged",
            f"{target.uri}: version {version} deletes {figures['num_deleted_rows']} rows of {source}, and "
            f"{len(offsets)} were to be erased: an offset is there twice, because another program has written to the "
            "table. Compare it with the version before",
            {"table": target.uri, "version": version},
        )
    return {source: erased}


def _predicate(wanted: KeyFilter, source: Source, offsets: Sequence[int], table: Any) -> str:
    """SQL of DataFusion for rows of one source by their offsets."""
    stream = wanted.stream.replace("'", "''")
    parts = [f"\"stream\" = '{stream}'", f'"partition" = {source.partition}']
    if INCARNATION in {field.name for field in table.schema().fields}:
        parts.append(f'"{INCARNATION}" = {source.incarnation}')
    parts.append(f'"offset" IN ({", ".join(map(str, offsets))})')
    return " AND ".join(parts)
