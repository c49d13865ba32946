"""Publishes through a broker that does not lead: the leader stores them as if they had come to it."""

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import bascule
import grpc.aio
import pyarrow as pa
import pytest
import yaml
from bascule._liftbridge_pb import message
from pyarrow import flight

from tests.certificates import Authority
from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until
from tests.integration.cluster.test_failover import led_in_sync, shown_leader
from tests.integration.cluster.test_replicate import ALL, LEADER, created, publish
from tests.integration.server.process import LIMIT_S, Process, call

NONE = 2
STREAM = "orders"
NOT_COMPARED = ("offset", "timestamp")
"""Differ from record to record."""


async def read(life: Process, stream: str, start: int, count: int) -> list[Any]:
    """Deliveries from the leader, as they are sent."""
    request: Any = message("SubscribeRequest")
    response: Any = message("Message")
    async with life.channel() as channel:
        stub = channel.unary_stream(
            "/proto.API/Subscribe",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        reading = stub(request(stream=stream, startPosition=1, startOffset=start), timeout=LIMIT_S)
        await reading.read()  # it has begun
        return [await reading.read() for _ in range(count)]


def through_all(leader: str) -> list[str]:
    """The leader, then the others."""
    return [leader, *(name for name in NAMES if name != leader)]


async def counted(life: Process, outcome: str) -> int:
    """`bascule_forwarded_total` of a broker."""
    host, _, port = life.addresses["http_address"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    (line,) = [line for line in text.splitlines() if line.startswith(f'bascule_forwarded_total{{outcome="{outcome}"}}')]
    return int(line.split()[-1])


async def test_records_of_every_shape_are_stored_alike_through_every_broker(tmp_path: Path) -> None:
    header: Any = message("Header")
    shapes: list[dict[str, Any]] = [
        {"value": b"plain"},
        {"value": b"", "key": b"key", "headers": {"name": b"\xff\x00"}},
        {"nullValue": True, "key": b"gone"},
        {"value": b"v", "headerList": [header(name=b"n", value=b"1"), header(name=b"n", value=b"2")]},
        {"value": b"v", "subject": "orders.eu", "originTime": 1_700_000_000_000_000_000},
        {"value": bytes(900_000)},
    ]
    async with cluster(tmp_path, http__listen="127.0.0.1:0") as brokers:
        leader = await created(brokers, STREAM)
        names = through_all(leader)
        acks = [
            (await brokers.call(name, "Publish", stream=STREAM, ackPolicy=ALL, correlationId="c", **shape)).ack
            for name in names
            for shape in shapes
        ]
        assert [ack.offset for ack in acks] == list(range(1, 3 * len(shapes) + 1))
        for field in ("stream", "partitionSubject", "msgSubject", "correlationId", "ackPolicy"):
            assert len({getattr(ack, field) for ack in acks}) == 1, field
        found = await read(brokers.running[leader], STREAM, 1, len(acks))
        for record in found:
            for field in NOT_COMPARED:
                record.ClearField(field)
        by_leader, first, second = (found[at : at + len(shapes)] for at in range(0, len(found), len(shapes)))
        assert by_leader == first == second
        forwarded = [await counted(brokers.running[name], "committed") for name in names]
        assert forwarded == [0, len(shapes), len(shapes)]


async def test_one_call_keeps_its_order_and_each_record_its_own_answer(tmp_path: Path) -> None:
    count = 3_000
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, STREAM)
        next_offset = 1
        for name in through_all(leader):
            for policy in (LEADER, ALL):
                values = [b"%d" % number for number in range(count)]
                answers = await publish(brokers.running[name], STREAM, values, policy)
                assert [answer.correlationId for answer in answers] == [str(number) for number in range(count)]
                offsets = [answer.ack.offset for answer in answers]
                assert offsets == list(range(next_offset, next_offset + count)), name
                next_offset += count
        other = next(name for name in NAMES if name != leader)
        async with brokers.running[other].channel() as channel:
            for number in range(200):  # neither of them waits for an ack
                await call(channel, "Publish", stream=STREAM, value=b"%d" % number, ackPolicy=NONE)
        found = await read(brokers.running[leader], STREAM, next_offset - 1, 201)
        assert [record.value for record in found] == [b"%d" % (count - 1), *(b"%d" % n for n in range(200))]


async def test_what_the_leader_refuses_is_answered_alike_through_every_broker(tmp_path: Path) -> None:
    checked = {"optimisticConcurrencyControl": {"value": True}}
    async with cluster(tmp_path, streams__max_record_bytes=100_000) as brokers:
        leader = await brokers.created("b1", STREAM, factor=3, **checked)
        await brokers.seen(STREAM)
        for name in NAMES:  # it leads, and every broker knows

            async def is_taken(name: str = name) -> bool:
                return await refusal(brokers, name, value=b"x", expectedOffset=-1, ackPolicy=LEADER) is None

            await until(is_taken)
        cases: list[dict[str, Any]] = [
            {"value": bytes(100_001), "expectedOffset": -1, "ackPolicy": LEADER},
            {"value": b"x", "expectedOffset": 100, "ackPolicy": ALL},
            {"value": b"x", "expectedOffset": -1, "ackPolicy": NONE},
            {"value": b"x", "partition": 1, "ackPolicy": LEADER},
            {"value": b"x", "subject": "a.*", "ackPolicy": LEADER},
        ]
        for fields in cases:
            said = [await refusal(brokers, name, **fields) for name in through_all(leader)]
            assert said[0] is not None
            assert said[0] == said[1] == said[2]
        # Two records of a call that are refused one by one.
        for name in NAMES:
            answers = await publish(brokers.running[name], STREAM, [b"a" * 100_001, b"b", b"c" * 100_001], LEADER)
            kinds = [(answer.correlationId, answer.asyncError.message) for answer in answers]
            too_large = "message exceeds max replication size"
            # Without an expected offset of −1 the second one expects 0.
            assert kinds == [("0", too_large), ("1", "incorrect expected offset"), ("2", too_large)]
        await brokers.call(leader, "SetStreamReadonly", name=STREAM, readonly=True)

        async def is_readonly() -> bool:
            said = [await refusal(brokers, name, value=b"x", expectedOffset=-1, ackPolicy=ALL) for name in NAMES]
            return said == [(grpc.StatusCode.FAILED_PRECONDITION, "readonly partition: 0")] * 3

        await until(is_readonly)


async def refusal(brokers: Brokers, name: str, **fields: Any) -> tuple[grpc.StatusCode, str | None] | None:
    """Why a broker refuses a record; `None` = it does not."""
    try:
        await brokers.call(name, "Publish", stream=STREAM, **fields)
    except grpc.aio.AioRpcError as failure:
        return failure.code(), failure.details()
    return None


async def test_rows_go_to_the_leader_through_every_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, STREAM)
        names = through_all(leader)
        for place, name in enumerate(names):
            batch = pa.record_batch(
                {"key": pa.array([b"k", None]), "value": pa.array([name.encode(), None], pa.binary())}
            )
            results = await asyncio.to_thread(put, brokers.running[name], batch, 3)
            offsets = [1 + 6 * place + 2 * number for number in range(3)]
            assert [result["base_offset"] for result in results] == offsets, name
        found = await read(brokers.running[leader], STREAM, 1, 18)
        expected = [value for name in names for _ in range(3) for value in ((b"k", name.encode()), (b"", b""))]
        assert [(record.key, record.value) for record in found] == expected


def put(life: Process, batch: pa.RecordBatch, times: int) -> list[dict[str, Any]]:
    """Send a record batch several times over one call; the results."""
    with flight.connect(f"grpc://{life.addresses['address']}") as client:
        writer, reader = client.do_put(flight.FlightDescriptor.for_path(STREAM), batch.schema)
        results: list[dict[str, Any]] = []
        for _ in range(times):
            writer.write_batch(batch)
        writer.done_writing()
        while (result := reader.read()) is not None:
            results.append(json.loads(result.to_pybytes()))
        writer.close()
    return results


async def test_the_leader_checks_the_clients_right_by_its_own_policy(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    client = authority.issue("alice")
    brokers = Brokers(tmp_path)

    def policy(name: str, *allowed: str) -> str:
        rules = [{"clients": "alice", "allow": list(allowed), "resources": "*"}]
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"rules": rules}))
        return str(path)

    everything = ["CreateStream", "FetchMetadata", "Publish", "Subscribe"]
    try:
        for name in NAMES:
            pair = authority.issue(name)
            brokers.running[name] = await brokers.launch(
                name,
                tls__certificate_file=str(pair.cert),
                tls__key_file=str(pair.key),
                tls__client_auth="required",
                tls__client_ca_file=str(authority.ca),
                access__policy_file=policy(name, *everything),
            )
        await brokers.ready()
        credentials = grpc.ssl_channel_credentials(
            authority.ca.read_bytes(), client.key.read_bytes(), client.cert.read_bytes()
        )
        async with AsyncExitStack() as stack:
            channels = {
                name: await stack.enter_async_context(grpc.aio.secure_channel(life.addresses["address"], credentials))
                for name, life in brokers.running.items()
            }

            async def is_stored(name: str) -> bool:
                try:
                    await call(channels[name], "Publish", stream=STREAM, value=b"v", ackPolicy=ALL)
                except grpc.aio.AioRpcError as failure:
                    if failure.code() == grpc.StatusCode.PERMISSION_DENIED:
                        raise
                    return False
                return True

            async def is_created() -> bool:
                try:
                    await call(channels["b1"], "CreateStream", name=STREAM, subject=STREAM, replicationFactor=3)
                except grpc.aio.AioRpcError as failure:
                    return "already exists" in str(failure.details())
                return True

            await until(is_created)
            for name in NAMES:
                await until(lambda name=name: is_stored(name))
            answer = await call(channels["b1"], "FetchMetadata", streams=[STREAM])
            leader = str(answer.streamMetadata[0].partitions[0].leader)
            policy(leader, "FetchMetadata")
            before = brokers.heard(leader, "the policy is in use")
            brokers.running[leader].process.send_signal(signal.SIGHUP)
            await brokers.said(leader, "the policy is in use", before)
            other = next(name for name in NAMES if name != leader)
            with pytest.raises(grpc.aio.AioRpcError) as denied:
                await call(channels[other], "Publish", stream=STREAM, value=b"v", ackPolicy=ALL)
            assert denied.value.code() == grpc.StatusCode.PERMISSION_DENIED
            assert "not authorized to call Publish on resource orders" in str(denied.value.details())
    finally:
        await brokers.stop()


async def test_publishes_wait_for_the_next_leader_and_a_producer_stores_every_record_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        leader = await led_in_sync(brokers)
        other = next(name for name in NAMES if name != leader)
        url = f"liftbridge://{brokers.running[other].addresses['address']}"
        sent: list[bytes] = []

        def produce(client: bascule.Client, stop: asyncio.Event) -> None:
            with client.producer(STREAM, ack="all", batch_records=50, timeout=60) as producer:
                while not stop.is_set():
                    for _ in range(100):
                        sent.append(b"%d" % len(sent))
                        producer.send(sent[-1])
                    producer.flush()

        stop = asyncio.Event()
        with bascule.connect(url, timeout=60) as client:
            producing = asyncio.create_task(asyncio.to_thread(produce, client, stop))

            async def grows(by: int) -> None:
                enough = len(sent) + by

                async def is_enough() -> bool:
                    return producing.done() or len(sent) >= enough

                await until(is_enough)

            await grows(1_000)
            await brokers.kill(leader)
            await grows(1_000)
            stop.set()
            await producing
            assert client.reconnects == 0, "the broker that it asks handed everything on"
        assert await shown_leader(brokers) != leader
        found = await read(brokers.running[await shown_leader(brokers)], STREAM, 1, len(sent))
        assert [record.value for record in found] == sent


async def test_a_record_without_an_answer_is_not_repeated_and_later_ones_go_to_the_next_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        leader = await led_in_sync(brokers)
        other = next(name for name in NAMES if name != leader)
        answer = await brokers.call(other, "Publish", stream=STREAM, value=b"before", ackPolicy=ALL)
        brokers.running[leader].process.send_signal(signal.SIGSTOP)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await brokers.call(other, "Publish", stream=STREAM, value=b"lost", ackPolicy=ALL)
        assert "the outcome is unknown" in str(unknown.value.details())
        assert unknown.value.code() == grpc.StatusCode.INTERNAL
        later = await brokers.call(other, "Publish", stream=STREAM, value=b"later", ackPolicy=ALL)
        assert later.ack.offset > answer.ack.offset
        brokers.running[leader].process.send_signal(signal.SIGCONT)
        await brokers.reached(other, **dict.fromkeys(NAMES, "live"))
        leader = await led_in_sync(brokers)
        found = await read(brokers.running[leader], STREAM, answer.ack.offset, 2)
        assert [record.value for record in found] == [b"before", b"later"]


async def test_without_a_leader_a_publish_is_refused_in_time_and_says_that_nothing_was_stored(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await brokers.created("b1", STREAM)
        await brokers.seen(STREAM)
        other = next(name for name in NAMES if name != leader)

        async def is_stored() -> bool:
            return await refusal(brokers, other, value=b"v", ackPolicy=LEADER) is None

        await until(is_stored)
        await brokers.kill(leader)
        async with brokers.running[other].channel() as channel:
            request = message("PublishRequest")(stream=STREAM, value=b"v", ackPolicy=NONE)
            stub: Any = channel.unary_unary("/proto.API/Publish")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub(request.SerializeToString())
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        await brokers.start(leader)
        await until(is_stored)
