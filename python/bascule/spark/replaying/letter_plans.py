"""What a re-drive has counted when it began. It is kept in the plan: a later run needs it, and by then retention may
have removed the letters.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from bascule.spark.replaying.checkpoint import PLAN, Checkpoint

COUNTED: Final = "counted"
"""Its name among what was asked for; it is not compared."""


@dataclass(frozen=True)
class Counted:
    """The chosen letters.

    Attributes:
        streams: that those name which are driven again, in order.
        cut: those that have only a part of their record.
        malformed: those whose headers cannot be read.
    """

    streams: tuple[str, ...]
    cut: int = 0
    malformed: int = 0

    @property
    def left_out(self) -> list[str]:
        """The letters that are not driven again, as sentences."""
        found = ((self.cut, "have only a part of their record"), (self.malformed, "are malformed"))
        return [f"{count} of the letters: they {why}" for count, why in found if count]

    def to_document(self) -> dict[str, Any]:
        """As JSON."""
        return {"streams": list(self.streams), "cut": self.cut, "malformed": self.malformed}


class LetterCheckpoint(Checkpoint):
    """The folder of one re-drive."""

    def counted(self) -> Counted | None:
        """What the plan says of the letters; None = there is no plan, or it does not say it."""
        content = self._storage.read(PLAN)
        document = None if content is None else json.loads(content)["asked"].get(COUNTED)
        if document is None:
            return None
        return Counted(tuple(document["streams"]), int(document["cut"]), int(document["malformed"]))
