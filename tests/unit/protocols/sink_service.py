"""The methods about sinks over a data plane in memory, as a client calls them."""

from dataclasses import dataclass
from typing import Any

import pytest
from bascule._admin_pb import message
from bascule.control import StreamRequest
from bascule.control.archives import Archives
from bascule.control.queries import Queries
from bascule.control.sinks import Sinks
from bascule.metadata import State, StreamKey, StreamSettings
from bascule.metadata.sink_commands import LinkedPartition, LinkSink
from bascule.metadata.sinks import Sink
from bascule.protocols.admin import AdminService, Managed
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.router import AdminRequest, Handler
from bascule.security import Access, Resources, Rule, compile_rules

from tests.unit.control.rig import Rig
from tests.unit.metadata.sink_rig import DIGEST, QUERY, RUN, TOKEN

OPEN: dict[str, Any] = {
    "name": "s", "kind": "stream", "lifetime": "kept", "query_id": QUERY, "run_id": RUN, "streams": ["orders"],
}  # fmt: skip


def opening(**differences: Any) -> dict[str, Any]:
    """An OpenSinkRequest that is accepted, with differences."""
    return {**OPEN, **differences}


@dataclass
class Service:
    """The handlers, called as client `ada` unless another one is named."""

    rig: Rig
    sinks: Sinks
    queries: Queries
    handlers: dict[str, Handler]
    now_s: float = 0.0
    """The clock of the queries."""

    async def ask(self, method: str, client: str | None = "ada", timeout_s: float = 5.0, **fields: Any) -> Any:
        body = message(f"{method}Request")(**fields).SerializeToString()
        request = AdminRequest(f"admin/{method}", body, "127.0.0.1:5", timeout_s, client)
        return message(f"{method}Response").FromString(await self.handlers[f"admin/{method}"](request))

    async def refused(self, method: str, client: str | None = "ada", **fields: Any) -> tuple[Status, str | None, str]:
        """Status, code and sentence."""
        before = self.state.sinks
        with pytest.raises(StatusError) as caught:
            await self.ask(method, client, **fields)
        assert self.state.sinks == before
        return caught.value.status, caught.value.code, caught.value.message

    @property
    def state(self) -> State:
        return self.sinks.state

    def sink(self, namespace: str = "default") -> Sink:
        return self.state.sinks[StreamKey(namespace, "s")]

    def targets(self, *streams: str, namespace: str = "default", rows: int = 10) -> list[dict[str, Any]]:
        return [
            {"stream": name, "partition": number, "incarnation": item.incarnation, "rows": rows, "digest": DIGEST}
            for name in streams or ("orders",)
            for number, item in enumerate(self.state.streams[StreamKey(namespace, name)].partitions)
        ]

    def epoch(self, epoch: int = 0, namespace: str = "", **differences: Any) -> dict[str, Any]:
        """A PublishSinkRequest that is accepted."""
        sink = self.sink(namespace or "default")
        whole = {
            "name": "s",
            "namespace": namespace,
            "id": sink.id,
            "generation": sink.generation,
            "run_id": sink.run_id,
            "epoch": epoch,
            "token": TOKEN,
            "winners": [64, 192],
            "targets": self.targets(namespace=namespace or "default"),
            "input_rows": 20,
            "input_digest": DIGEST,
            "timeout_ms": 20,
        }
        return {**whole, **differences}

    async def link(self, *numbers: int) -> None:
        """Report partitions of the last epoch as linked, the first row of partition n at offset 100 + n."""
        sink = self.sink()
        assert sink.last is not None
        found = [
            item for stream in sink.last.targets for item in stream.partitions if item.number in (numbers or {0, 1})
        ]
        linked = tuple(LinkedPartition(item.incarnation, 100 + item.number) for item in found)
        await self.sinks.link([LinkSink("default", "s", sink.id, sink.last.ordinal, linked)])

    def attempt(self) -> dict[str, Any]:
        """The fields of an AbortSink or RenewSink request about epoch 0."""
        sink = self.sink()
        return {"name": "s", "id": sink.id, "generation": sink.generation, "epoch": 0, "token": TOKEN}


def allowing(*rules: tuple[str, str, str]) -> Access:
    """A policy of rules (client, action, resource) and nothing else."""

    class Plane:
        def publish_access(self, table: Any) -> None:
            pass

    access = Access()
    made = [
        Rule(frozenset({who}), frozenset({what}), Resources(frozenset({where})), True) for who, what, where in rules
    ]
    access.publish(compile_rules(made), Plane())
    return access


async def serving(rig: Rig, *access: tuple[str, str, str]) -> Service:
    """Streams `orders` (two partitions) and `payments`, and `orders` in namespace `other`."""
    for namespace, name, partitions in (("default", "orders", 2), ("default", "payments", 1), ("other", "orders", 1)):
        request = StreamRequest(namespace, name, f"{namespace}.{name}", "", partitions, 1, StreamSettings())
        await rig.controller.create_stream(request, 5.0)
    sinks = Sinks(rig.controller, rig.plane)
    sinks.start()
    policy = allowing(*access) if access else None
    queries = Queries(rig.controller, rig.plane, (3, 2), lambda: service.now_s)
    managed = Managed(sinks, queries, Archives(rig.controller))
    service = Service(rig, sinks, queries, AdminService(managed, StreamSettings(), policy).handlers())
    return service
