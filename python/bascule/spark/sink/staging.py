"""The task's half of the sink: sends rows as pieces of one attempt; the driver publishes them."""

import json
import threading
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from bascule.spark.connection import flight_client, from_flight
from bascule.spark.sink.calls import Target
from bascule.spark.unreached import unreached

ALIVE_S: Final = 20.0
"""A call that has no rows to send sends an empty batch so often; the broker ends one that is silent for a minute."""


@dataclass(frozen=True)
class Attempt:
    """What the pieces of one task attempt are named by."""

    sink: int
    generation: int
    epoch: int
    token: str
    task: int
    attempt: int


@dataclass
class Stager:
    """Sends rows of one task to the streams that they are for; a call for each stream, opened by its first row.

    Attributes:
        address: of the broker.
        namespace: of the streams.
        attempt: names the pieces; None = rows are appended at once, not staged.
    """

    address: str
    namespace: str
    attempt: Attempt | None
    _puts: "dict[str, _Put]" = field(default_factory=dict[str, "_Put"])

    def send(self, stream: str, batch: Any) -> None:
        """Send a record batch, whose columns are those of DoPut without `stream`.

        Raises:
            BrokerError: the broker refused rows, or is not reachable.
        """
        put = self._puts.get(stream)
        if put is None:
            command: dict[str, Any] = {"namespace": self.namespace, "stream": stream}
            if self.attempt is not None:
                command["stage"] = vars(self.attempt)
            put = self._puts[stream] = _Put(self.address, command, batch.schema)
        put.write(batch)

    def finish(self) -> list[Target]:
        """End all calls; what is stored, by stream and partition. Of rows that were appended at once: nothing.

        Raises:
            BrokerError: a call failed; its pieces are not stored.
        """
        targets: list[Target] = []
        for stream in sorted(self._puts):
            results = self._puts[stream].finish()
            for result in results if self.attempt is not None else ():
                named = (result["partition"], result["incarnation"])
                targets.append(Target(stream, *named, result["rows"], result["digest"]))
        return targets

    def cancel(self) -> None:
        """End all calls, so that nothing of them is stored."""
        for put in self._puts.values():
            put.cancel()


class _Put:
    """One DoPut. Results are read by a thread of its own, as the broker asks for."""

    def __init__(self, address: str, command: dict[str, Any], schema: Any) -> None:
        flight: Any = import_module("pyarrow.flight")
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        self._address = address
        self._schema = schema
        self._results: list[dict[str, Any]] = []
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        try:
            self._writer, self._reader = flight_client(address).do_put(descriptor, schema)
        except Exception as cause:
            raise unreached(from_flight(cause), address) from cause
        self._reading = threading.Thread(target=self._read, name="bascule-put-results", daemon=True)
        self._reading.start()
        self._alive = threading.Thread(target=self._keep_alive, name="bascule-put-alive", daemon=True)
        self._alive.start()

    def write(self, batch: Any) -> None:
        with self._lock:
            try:
                self._writer.write_batch(batch)
            except Exception as cause:
                raise self._cause(cause) from cause

    def finish(self) -> list[dict[str, Any]]:
        self._ended.set()
        with self._lock:
            try:
                self._writer.done_writing()
                self._reading.join()
                self._writer.close()
            except Exception as cause:
                raise self._cause(cause) from cause
        if self._failure is not None:
            raise unreached(from_flight(self._failure), self._address) from self._failure
        return self._results

    def cancel(self) -> None:
        self._ended.set()
        # The call ends with its connection. Should the broker see an end of the rows, it stores pieces that never win.

    def _cause(self, cause: Exception) -> Exception:
        """The broker's reason, which the reading side learns, goes before that of the writing side."""
        self._reading.join(5.0)
        return unreached(from_flight(self._failure or cause), self._address)

    def _read(self) -> None:
        try:
            while (answer := self._reader.read()) is not None:
                self._results.append(json.loads(answer.to_pybytes()))
        except Exception as cause:  # noqa: BLE001 - raised where the call is written or finished
            self._failure = cause

    def _keep_alive(self) -> None:
        pa: Any = import_module("pyarrow")
        empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)
        while not self._ended.wait(ALIVE_S):
            with self._lock:
                try:
                    self._writer.write_batch(empty)
                except Exception:  # noqa: BLE001 - the next write or the end reports why
                    return
