"""Schema ids that a registry did not know when an epoch was written first.

Registries learn ids: a record that was a dead letter in the first attempt at an epoch could be a row in the next one,
so that a target which has the first attempt would refuse the second. Therefore the ids that are unknown are noted in
the checkpoint before anything of the epoch is written, and remain unknown when the epoch is repeated.

`<checkpoint>/bascule-unknown-schemas/<epoch>.json`: by part (`key`, `value`), by the frame of its bytes in hexadecimal
digits, the error that its records have. Only the newest epoch with such ids has a file.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from bascule.pipeline.decode.columns import PARTS, error_name, raw_name
from bascule.pipeline.decode.failures import ERROR_DDL, UNKNOWN_SCHEMA_ID
from bascule.pipeline.decode.framing import HEADER_BYTES
from bascule.spark.checkpoint_copies import local_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FOLDER", "UnknownSchemas"]

FOLDER: Final = "bascule-unknown-schemas"
Noted = dict[str, dict[str, dict[str, Any]]]
"""Error by part and frame."""


class UnknownSchemas:
    """The ids of one query.

    Args:
        checkpoint: of the query; None, or one that is not in this machine's file system: nothing is noted, and a
            target that has the first attempt at an epoch refuses another one.
    """

    def __init__(self, checkpoint: str | None) -> None:
        folder = local_path(checkpoint) if checkpoint else None
        self._folder = None if folder is None else folder / FOLDER

    def as_before(self, batch: "DataFrame", epoch: int) -> "DataFrame":
        """The rows of an epoch, of which those have an error that had one because of their id in an earlier attempt.

        Args:
            batch: rows of the decoding stage.
            epoch: its number.
        """
        for part, errors in self._noted(epoch).items():
            batch = _with_errors(batch, part, errors)
        return batch

    def noted(self, batch: "DataFrame", epoch: int) -> "DataFrame":
        """The rows of an epoch, after its unknown ids were noted; before anything of it is written.

        Args:
            batch: rows of `as_before`.
            epoch: its number.

        Returns:
            `batch`, but all rows with such an id have the error. A task that asked the registry later may know the id.

        Raises:
            OSError: the checkpoint cannot be written.
        """
        if self._folder is None:
            return batch
        found: Noted = {}
        for part in PARTS[:2]:
            if error_name(part) in batch.columns:
                found |= {part: errors} if (errors := _unknown(batch, part)) else {}
        if not found:
            return batch
        if found != self._noted(epoch):
            self._write(self._folder, epoch, json.dumps(found, sort_keys=True))
        return self.as_before(batch, epoch)

    def _noted(self, epoch: int) -> Noted:
        if self._folder is None:
            return {}
        try:
            return cast("Noted", json.loads((self._folder / f"{epoch}.json").read_text()))
        except FileNotFoundError:
            return {}

    @staticmethod
    def _write(folder: Path, epoch: int, text: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{epoch}.json"
        with part.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / f"{epoch}.json")
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
        for earlier in folder.glob("[0-9]*.json"):
            if int(earlier.stem) < epoch:
                earlier.unlink(missing_ok=True)


def _frame_of(part: str) -> "Column":
    """The first bytes of a part, which name the schema, in hexadecimal digits."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    return F.hex(F.substring(F.col(raw_name(part)), 1, HEADER_BYTES))


def _unknown(batch: "DataFrame", part: str) -> dict[str, dict[str, Any]]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    error = F.col(error_name(part))
    rows = batch.where(error["class"] == UNKNOWN_SCHEMA_ID).select(_frame_of(part).alias("frame"), error.alias("error"))
    return {row["frame"]: row["error"].asDict() for row in rows.distinct().collect()}


def _with_errors(batch: "DataFrame", part: str, errors: dict[str, dict[str, Any]]) -> "DataFrame":
    """The rows with the error that is noted for the frame of a part."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    noted = F.from_json(F.lit(json.dumps(errors)), f"map<string, {ERROR_DDL}>")
    name = error_name(part)
    return batch.withColumn(name, F.coalesce(F.try_element_at(noted, _frame_of(part)), F.col(name)))
