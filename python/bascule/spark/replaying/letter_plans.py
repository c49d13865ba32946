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
        streams: that they name, in order.
    """

    streams: tuple[str, ...]

    def to_document(self) -> dict[str, Any]:
        """As JSON."""
        return {"streams": list(self.streams)}


class LetterCheckpoint(Checkpoint):
    """The folder of one re-drive."""

    def counted(self) -> Counted | None:
        """What the plan says of the letters; None = there is no plan, or it does not say it."""
        content = self._storage.read(PLAN)
        document = None if content is None else json.loads(content)["asked"].get(COUNTED)
        return None if document is None else Counted(tuple(document["streams"]))
