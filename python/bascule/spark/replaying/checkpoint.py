"""The folder of a replay: what it does, and where each of its epochs ends.

| File | Content |
|---|---|
| `plan.json` | what was asked for, the id that the broker knows the replay by, and the lanes |
| `epochs/<number>.json` | the positions after an epoch, and rows and bytes so far |

A file is created once and never changed. The end of an epoch is written after its rows are staged and before they are
published: an epoch that is published ends where its file says, and one that has no file was not published.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from bascule.errors import StateError
from bascule.lake.own_files import object_of, valid
from bascule.lake.storage import Storage, check_conditional_put
from bascule.spark.replaying.lanes import Lane, Position, from_document, to_document

FORMAT: Final = 1
PLAN: Final = "plan.json"
EPOCHS: Final = "epochs"
_REMEDY: Final = (
    "restore it from a backup; without one, compare the target with the source, and replay what is missing with "
    "another id and checkpoint"
)


@dataclass(frozen=True)
class Plan:
    """What a replay does.

    Attributes:
        asked: what was asked for, by name; the same in each run.
        query_id: a UUID, by which the broker knows the replay.
        lanes: of the source, fixed when the replay was started first.
        rows: in the lanes, as far as it was known then.
        is_new: whether no folder keeps it yet.
    """

    asked: Mapping[str, Any]
    query_id: str
    lanes: tuple[Lane, ...]
    rows: int
    is_new: bool = False


@dataclass(frozen=True)
class Reached:
    """Where an epoch ends: the position of each lane, and rows and bytes of all epochs so far."""

    positions: tuple[Position, ...]
    rows: int
    bytes: int


class Checkpoint:
    """The folder of one replay."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def plan(self, asked: Mapping[str, Any]) -> Plan | None:
        """The plan that is there; None = there is none.

        Raises:
            StateError: it is of another replay: the sentence names the first difference.
            CorruptionError: it is damaged.
        """
        content = self._storage.read(PLAN)
        if content is None:
            return None
        with valid(PLAN, _REMEDY, self._storage.uri):
            document = object_of(content)
            found = document["format"]
        if found != FORMAT:
            raise self._another(f"{PLAN} has format {found}, this version reads {FORMAT}")
        with valid(PLAN, _REMEDY, self._storage.uri):
            there = dict(document["asked"])
            plan = Plan(asked, str(document["query_id"]), from_document(document["lanes"]), int(document["rows"]))
        for name, wanted in asked.items():
            if there.get(name) != wanted:
                before, now = _shown(name, there.get(name)), _shown(name, wanted)
                raise self._another(f"there {_OPTIONS.get(name, name)} is {before}, and now it is {now}")
        return plan

    def new(self, asked: Mapping[str, Any], lanes: Sequence[Lane], rows: int) -> Plan:
        """A plan to begin with; nothing is written.

        Raises:
            StateError: the storage cannot create files exclusively.
        """
        check_conditional_put(self._storage)
        return Plan(asked, str(uuid4()), tuple(lanes), rows, is_new=True)

    def keep(self, plan: Plan) -> None:
        """Write a new plan, once its replay may begin: one that is refused leaves the folder to the next try.

        Raises:
            StateError: another run kept one meanwhile.
        """
        document = {
            "format": FORMAT,
            "asked": dict(plan.asked),
            "query_id": plan.query_id,
            "lanes": to_document(plan.lanes),
            "rows": plan.rows,
        }
        self._storage.anchor()
        if not self._storage.put_if_absent(PLAN, json.dumps(document, sort_keys=True).encode()):
            raise self._busy()

    def last(self) -> int:
        """Number of the last epoch whose end is known; -1 = none is."""
        names = [name.rpartition("/")[2] for name, _ in self._storage.entries(EPOCHS)]
        return max((int(name[:-5]) for name in names if name[:-5].isdigit() and name.endswith(".json")), default=-1)

    def reached(self, epoch: int) -> Reached | None:
        """Where an epoch ends; None = it is not known yet.

        Raises:
            CorruptionError: its file is damaged.
        """
        content = self._storage.read(_name(epoch))
        if content is None:
            return None
        with valid(_name(epoch), _REMEDY, self._storage.uri):
            document = object_of(content)
            positions = tuple(Position(int(part), int(offset)) for part, offset in document["positions"])
            return Reached(positions, int(document["rows"]), int(document["bytes"]))

    def end(self, epoch: int, reached: Reached) -> None:
        """Keep where an epoch ends.

        Raises:
            StateError: another run did so meanwhile.
        """
        document = {
            "positions": [[each.part, each.offset] for each in reached.positions],
            "rows": reached.rows,
            "bytes": reached.bytes,
        }
        if not self._storage.put_if_absent(_name(epoch), json.dumps(document).encode()):
            raise self._busy()

    def _another(self, difference: str) -> StateError:
        text = f"{self._storage.uri} is the checkpoint of another replay: {difference}; use another id and checkpoint"
        return StateError("failed_precondition", text, {"checkpoint": self._storage.uri})

    def _busy(self) -> StateError:
        text = f"another run of the replay works with {self._storage.uri}: end it, then run this one again"
        return StateError("failed_precondition", text, {"checkpoint": self._storage.uri})


def _name(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:09d}.json"


_OPTIONS: Final = {"first": "fromOffset", "end": "toOffset", "since_us": "fromTime", "until_us": "toTime"}
"""The options that set the bounds."""


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "not set"
    if name in {"since_us", "until_us"}:
        return f"{datetime.fromtimestamp(value // 1_000_000, UTC):%Y-%m-%dT%H:%M:%S}.{value % 1_000_000:06d}Z"
    return str(value).lower() if isinstance(value, bool) else repr(value)
