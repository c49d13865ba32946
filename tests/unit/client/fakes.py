"""A native core that does as it is told: no socket, no thread."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from bascule._native import NativeError
from bascule.client import Client
from bascule.client.link import Link


def failure(code: str, text: str = "told to fail", details: str = "{}") -> NativeError:
    return cast("Callable[..., NativeError]", NativeError)(code, text, details)


class FakeBatch:
    """n records whose values are their offsets."""

    def __init__(self, first: int, count: int) -> None:
        self.numbers = list(range(first, first + count))

    def __len__(self) -> int:
        return len(self.numbers)

    def offsets(self) -> list[int]:
        return self.numbers

    def timestamps(self) -> list[int]:
        return [1000 * offset for offset in self.numbers]

    def keys(self) -> list[bytes | None]:
        return [None for _ in self.numbers]

    def values(self) -> list[bytes]:
        return [b"%d" % offset for offset in self.numbers]

    def subjects(self) -> list[str]:
        return ["s" for _ in self.numbers]

    def headers(self) -> list[dict[str, bytes]]:
        return [{} for _ in self.numbers]


Step = FakeBatch | Exception | None


class FakeSubscription:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        self.closed = False

    def next_batch(self, _max_records: int, _timeout_ms: int) -> FakeBatch | None:
        step = self.steps.pop(0) if self.steps else failure("end_of_stream")
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed = True


class FakeNative:
    """Answers from scripts: each call takes the next answer; an exception is raised."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.requests: list[tuple[str, bytes]] = []
        self.published: list[list[bytes]] = []
        self.answers: list[bytes | Exception] = []
        self.acks: list[Exception | None] = []
        self.subscriptions: list[FakeSubscription | Exception] = []
        self.connecting: list[Exception | None] = []
        self.closed = 0
        self.next_offset = 0

    def connect(self, address: str, _options: bytes) -> "FakeNative":
        self.addresses.append(address)
        step = self.connecting.pop(0) if self.connecting else None
        if step is not None:
            raise step
        return self

    def call(self, method: str, request: bytes, _timeout_ms: int) -> bytes:
        self.requests.append((method, request))
        answer = self.answers.pop(0) if self.answers else b""
        if isinstance(answer, Exception):
            raise answer
        return answer

    def publish(self, *arguments: Any) -> list[tuple[int, int]]:
        values: list[bytes] = list(arguments[3])
        step = self.acks.pop(0) if self.acks else None
        if step is not None:
            raise step
        self.published.append(values)
        first, self.next_offset = self.next_offset, self.next_offset + len(values)
        return [(offset, 1) for offset in range(first, first + len(values))]

    def subscribe(self, request: bytes) -> FakeSubscription:
        self.requests.append(("Subscribe", request))
        step = self.subscriptions.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed += 1


def client_of(native: FakeNative, *addresses: str, timeout: float = 2.0) -> Client:
    link = Link(addresses or ("here:1",), {}, cast("Any", native.connect))
    return Client(link, timeout=timeout, reconnect=timeout)
