"""The load of the Liftbridge rig: workers that each use one part of the protocol until their broker is killed.

A worker writes each request to the ledger before it sends it, and the answer afterwards; an error before the kill is
trouble. After the restart, without pending calls, it writes the present state and continues from it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tests.conformance.api import ALL, EARLIEST, LATEST, LEADER, STOP_LATEST, Api, Failed
from tests.torture.liftbridge_ledger import Kind, Ledger

DEADLINE_S: Final = 60.0
IN_FLIGHT: Final = 100
"""Maximum number of unacknowledged messages of an asynchronous publisher."""
KEYS: Final = 16
MADE_TO_GO: Final = {"segmentMaxBytes": {"value": 8192}, "cleanerInterval": {"value": 50}}
RETAINED: Final = 600
AT_LEAST: Final = 300
"""Number of records that retention keeps, and the minimum that must remain: it removes whole segments."""


@dataclass
class Life:
    """One run of the broker. `dying` is set just before the kill."""

    address: str
    ledger: Ledger
    chance: random.Random
    dying: threading.Event = field(default_factory=threading.Event)

    def trouble(self, about: str, text: str) -> None:
        """Record an answer that a running broker must not give."""
        self.ledger.note(Kind.TROUBLE, about, text=text)


class Worker(Protocol):
    """One user of the broker, over all its runs."""

    def work(self, api: Api, life: Life) -> None:
        """Use the broker until it is killed; raises errors of the broker."""
        ...

    def look(self, api: Api, life: Life) -> None:
        """Write the present state to the ledger, without pending calls."""
        ...


def until_killed(worker: Worker, life: Life) -> None:
    """Run the worker; an end before the kill is trouble."""
    name = type(worker).__name__
    try:
        with Api(life.address) as api:
            worker.work(api, life)
    except Failed as failure:
        if not life.dying.is_set():
            life.trouble(name, f"failed while the broker was alive: {failure}")
    except Exception as failure:  # noqa: BLE001 - a separate thread: errors are recorded in the ledger
        life.trouble(name, f"failed: {failure!r}")


@dataclass
class Log:
    """A partition of one incarnation of a stream, and its name in the ledger."""

    stream: str
    partition: int = 0
    policy: str = "keep"
    generation: int = 0

    @property
    def about(self) -> str:
        """Its name in the ledger."""
        return f"log:{self.stream}#{self.generation}/{self.partition}"

    def declare(self, ledger: Ledger) -> None:
        """Declare it in the ledger, before any record is written."""
        least = AT_LEAST if self.policy == "retain" else 0
        ledger.note(Kind.DECLARED, self.about, policy=self.policy, least=least)

    def sent(self, ledger: Ledger, value: str, key: str = "") -> None:
        """Record that a record is about to be sent."""
        ledger.note(Kind.SENT, self.about, value=value, key=key)

    def acked(self, ledger: Ledger, value: str, offset: int) -> None:
        """Record an ack."""
        ledger.note(Kind.ACKED, self.about, value=value, offset=offset)

    def look(self, api: Api, ledger: Ledger) -> None:
        """Read all records."""
        records: list[tuple[int, str, str]] = []
        try:
            reading = api.subscribe(self.stream, DEADLINE_S, partition=self.partition, stopPosition=STOP_LATEST)
        except Failed as empty:
            if str(empty) != "RESOURCE_EXHAUSTED Stream is empty":
                raise
        else:
            found, end = reading.rest()
            if end is None or str(end) != "RESOURCE_EXHAUSTED Stop offset reached":
                ledger.note(Kind.TROUBLE, self.about, text=f"reading everything ended with {end}")
            records = [(item.offset, item.key.decode(), _number(item.value)) for item in found]
        ledger.note(Kind.FOUND, self.about, records=records)


def _number(value: bytes) -> str:
    """The value in the ledger, without padding."""
    return value.partition(b" ")[0].decode()


@dataclass
class Publisher:
    """Publishes to one log, in one of three ways: `unary`, `stream` (PublishAsync) or `subject` (PublishToSubject)."""

    name: str
    log: Log
    way: str
    next_number: int = 0

    def work(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        if self.way == "stream":
            self._stream(api, life)
            return
        while not life.dying.is_set():
            value, fields = self._next(life)
            fields["timeout"] = DEADLINE_S
            if self.way == "unary":
                offset = api.publish(self.log.stream, partition=self.log.partition, **fields)
            else:
                ack = api.call("PublishToSubject", subject=self.log.stream, **fields).ack
                if ack.ackError:
                    life.trouble(self.log.about, f"{value} was refused with {ack.ackError}")
                offset = ack.offset
            self.log.acked(life.ledger, value, offset)

    def look(self, api: Api, life: Life) -> None:
        """Does nothing: the rig reads logs."""

    def _next(self, life: Life) -> tuple[str, dict[str, Any]]:
        """The next record, written to the ledger."""
        value = f"{self.name}:{self.next_number}"
        self.next_number += 1
        key = f"k{life.chance.randrange(KEYS)}" if self.log.policy == "compact" else ""
        self.log.sent(life.ledger, value, key)
        filled = value.encode() + b" " * life.chance.randrange(1, 300)
        return value, {"value": filled, "key": key.encode(), "ackPolicy": life.chance.choice((LEADER, ALL))}

    def _stream(self, api: Api, life: Life) -> None:
        room = threading.Semaphore(IN_FLIGHT)

        def requests() -> Iterator[dict[str, Any]]:
            while not life.dying.is_set():
                if room.acquire(timeout=0.1):
                    value, fields = self._next(life)
                    place = {"stream": self.log.stream, "partition": self.log.partition}
                    yield {**place, **fields, "correlationId": value}

        for answer in api.publishing(requests(), None):
            room.release()
            if answer.HasField("asyncError"):
                life.trouble(self.log.about, f"{answer.correlationId}: {answer.asyncError.message}")
            else:
                self.log.acked(life.ledger, answer.correlationId, answer.ack.offset)


@dataclass
class Reader:
    """Reads the records of one log as they are published."""

    log: Log

    def work(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        reading = api.subscribe(self.log.stream, None, partition=self.log.partition, startPosition=LATEST)
        while True:
            item = reading.next()
            life.ledger.note(Kind.SEEN, self.log.about, value=_number(item.value), offset=item.offset)

    def look(self, api: Api, life: Life) -> None:
        """Does nothing: the rig reads logs."""


@dataclass
class Cursors:
    """Sets and fetches some cursors."""

    stream: str
    ids: tuple[str, ...] = ("one", "two,with,commas", "three")

    def about(self, cursor: str) -> str:
        """Its name in the ledger."""
        return f"register:cursor {self.stream}/0/{cursor}"

    def declare(self, ledger: Ledger) -> None:
        """Declare them in the ledger."""
        for cursor in self.ids:
            ledger.note(Kind.DECLARED, self.about(cursor), value=-1)

    def work(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        while not life.dying.is_set():
            cursor, offset = life.chance.choice(self.ids), life.chance.randrange(1 << 50)
            life.ledger.note(Kind.SENT, self.about(cursor), value=offset)
            api.call("SetCursor", DEADLINE_S, stream=self.stream, cursorId=cursor, offset=offset)
            life.ledger.note(Kind.ACKED, self.about(cursor), value=offset)
            if life.chance.random() < 0.3:
                self._fetch(api, life, cursor)

    def look(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        for cursor in self.ids:
            self._fetch(api, life, cursor)

    def _fetch(self, api: Api, life: Life, cursor: str) -> None:
        found = api.call("FetchCursor", DEADLINE_S, stream=self.stream, cursorId=cursor).offset
        life.ledger.note(Kind.FOUND, self.about(cursor), value=found)


@dataclass
class Groups:
    """Members of one group that join and leave."""

    stream: str
    partitions: int
    group: str
    consumers: tuple[str, ...] = ("a", "b", "c", "d")
    members: list[str] = field(default_factory=list[str])

    @property
    def about(self) -> str:
        """Its name in the ledger."""
        return f"register:group {self.group}"

    def declare(self, ledger: Ledger) -> None:
        """Declare it in the ledger."""
        ledger.note(Kind.DECLARED, self.about, value={"members": []})

    def work(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        while not life.dying.is_set():
            consumer = life.chance.choice(self.consumers)
            if consumer in self.members:
                after = [item for item in self.members if item != consumer]
                life.ledger.note(Kind.SENT, self.about, value={"members": after})
                api.call("LeaveConsumerGroup", DEADLINE_S, groupId=self.group, consumerId=consumer)
                life.ledger.note(Kind.ACKED, self.about, value={"members": after})
            else:
                after = sorted([*self.members, consumer])
                life.ledger.note(Kind.SENT, self.about, value={"members": after})
                ids = {"groupId": self.group, "consumerId": consumer}
                epoch = api.call("JoinConsumerGroup", DEADLINE_S, streams=[self.stream], **ids).epoch
                life.ledger.note(Kind.ACKED, self.about, value={"members": after, "epoch": epoch})
            self.members = after
            if life.chance.random() < 0.3:
                self.look(api, life)

    def look(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        (shown,) = api.call("FetchMetadata", DEADLINE_S, streams=["-"], groups=[self.group]).groupMetadata
        if shown.error:
            self.members = []
            life.ledger.note(Kind.FOUND, self.about, value={"members": []})
            return
        assignments: dict[str, list[int]] = {}
        for consumer in self.consumers:
            fields = {"groupId": self.group, "consumerId": consumer, "epoch": shown.epoch}
            try:
                answer = api.call("FetchConsumerGroupAssignments", DEADLINE_S, **fields)
            except Failed as refusal:
                if str(refusal) != "FAILED_PRECONDITION consumer is not a member of the consumer group":
                    raise
                continue
            assignments[consumer] = [number for item in answer.assignments for number in item.partitions]
        self.members = sorted(assignments)
        found = {"members": self.members, "epoch": shown.epoch, "assignments": assignments}
        life.ledger.note(Kind.FOUND, self.about, value={**found, "partitions": self.partitions})


OPEN: Final[dict[str, Any]] = {"paused": [], "readonly": []}


@dataclass
class Streams:
    """Creates, deletes, pauses, resumes and makes read-only and writable one stream of two partitions."""

    name: str
    state: dict[str, Any] | None = None
    generation: int = -1
    numbers: int = 0

    @property
    def about(self) -> str:
        """Its name in the ledger."""
        return f"register:stream {self.name}"

    def declare(self, ledger: Ledger) -> None:
        """Declare it in the ledger."""
        ledger.note(Kind.DECLARED, self.about, value=None)

    def work(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        while not life.dying.is_set():
            self._step(api, life)
            if life.chance.random() < 0.2:
                self.look(api, life)

    def look(self, api: Api, life: Life) -> None:
        """See `Worker`."""
        shown = api.call("FetchMetadata", DEADLINE_S, streams=[self.name]).streamMetadata[0]
        if shown.error:
            self.state = None
        else:
            numbers = sorted(shown.partitions)
            flags = {flag: [n for n in numbers if getattr(shown.partitions[n], flag)] for flag in OPEN}
            self.state = flags
            if numbers != [0, 1]:
                life.trouble(self.about, f"has partitions {numbers}")
        life.ledger.note(Kind.FOUND, self.about, value=self.state)

    def look_into(self, api: Api, life: Life) -> None:
        """Read its logs, if it exists and is not paused."""
        if self.state is not None:
            for number in (0, 1):
                if number not in self.state["paused"]:
                    self._log(number).look(api, life.ledger)

    def _log(self, number: int) -> Log:
        return Log(self.name, number, generation=self.generation)

    def _step(self, api: Api, life: Life) -> None:
        state = self.state
        if state is None:
            self.generation += 1
            for number in (0, 1):
                self._log(number).declare(life.ledger)
            self._change(api, life, OPEN, "CreateStream", subject=self.name, partitions=2)
        elif life.chance.random() < 0.1:
            self._change(api, life, None, "DeleteStream")
        elif state["readonly"]:
            self._try_to_publish(api, life)
            self._change(api, life, OPEN, "SetStreamReadonly", readonly=False)
        elif state["paused"]:
            # a pause of one partition sets that only that one is resumed; of both, that both are
            self._publish(api, life, state["paused"][0])
        else:
            match life.chance.randrange(4):
                case 0:
                    self._publish(api, life, life.chance.randrange(2))
                case 1:
                    self._change(api, life, {**OPEN, "paused": [1]}, "PauseStream", partitions=[1], resumeAll=False)
                case 2:
                    self._change(api, life, {**OPEN, "paused": [0, 1]}, "PauseStream", resumeAll=True)
                case _:
                    self._change(api, life, {**OPEN, "readonly": [0, 1]}, "SetStreamReadonly", readonly=True)

    def _change(self, api: Api, life: Life, after: dict[str, Any] | None, method: str, **fields: Any) -> None:
        life.ledger.note(Kind.SENT, self.about, value=after)
        api.call(method, DEADLINE_S, name=self.name, **fields)
        life.ledger.note(Kind.ACKED, self.about, value=after)
        self.state = after

    def _publish(self, api: Api, life: Life, number: int) -> None:
        """Publish one record, which resumes paused partitions."""
        log, value = self._log(number), self._next_value()
        life.ledger.note(Kind.SENT, self.about, value=OPEN)
        log.sent(life.ledger, value)
        offset = api.publish(self.name, value.encode(), partition=number, timeout=DEADLINE_S)
        log.acked(life.ledger, value, offset)
        life.ledger.note(Kind.ACKED, self.about, value=OPEN)
        self.state = OPEN

    def _try_to_publish(self, api: Api, life: Life) -> None:
        log, value = self._log(0), self._next_value()
        log.sent(life.ledger, value)
        try:
            offset = api.publish(self.name, value.encode(), timeout=DEADLINE_S)
        except Failed as refusal:
            if str(refusal) != "FAILED_PRECONDITION readonly partition: 0":
                raise
            life.ledger.note(Kind.REFUSED, log.about, value=value)
        else:
            life.trouble(log.about, f"{value} was acked at {offset} while the partition was read-only")

    def _next_value(self) -> str:
        self.numbers += 1
        return f"{self.name}:{self.numbers}"


def first_record(address: str, log: Log) -> None:
    """Read the first record of a log that has records."""
    with Api(address) as api:
        api.subscribe(log.stream, DEADLINE_S, partition=log.partition, startPosition=EARLIEST).next()
