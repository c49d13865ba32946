"""Clients of Iggy in a cluster: any broker takes any of them, and what others lead is handed to them."""

import asyncio
import struct
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bascule.protocols.iggy.fields import identifier, short_text

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, RefusedError, connected
from tests.conformance.test_iggy_apache import client_directory
from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until
from tests.integration.cluster.test_failover import STREAM, led_in_sync, stored
from tests.integration.cluster.test_positions import CURSORS, ready
from tests.integration.cluster.test_replicate import created

PASSWORD = "a password of the test"
ENOUGH = 40
"""Messages that each client has sent and read before and after the kill."""
RELEASES = {"iggy-py 0.4.0": 1, "apache-iggy 0.9.0": 0}
"""What each calls the first partition."""
PLACE = ("orders", "paid")


def settings(directory: Path) -> dict[str, Any]:
    """Of all brokers."""
    file = directory / "password"
    file.write_text(PASSWORD)
    return {"iggy__listen": "127.0.0.1:0", "iggy__root_password_file": str(file), "cursors__partitions": 2}


def address(brokers: Brokers, name: str) -> str:
    return str(brokers.running[name].addresses["iggy_address"])


class Client:
    """A published client in its process.

    Attributes:
        acked: values in the order in which they were acknowledged.
        failed: values whose sending failed at least once, and was repeated by the client's program.
        read: values in the order in which they were read.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.acked: list[str] = []
        self.failed: dict[str, str] = {}
        self.read: list[str] = []
        self.others: list[str] = []
        self._following = asyncio.create_task(self._follow())

    @staticmethod
    async def start(release: str, address: str) -> "Client":
        library, version = release.split()
        directory = await asyncio.to_thread(client_directory, version) if library == "apache-iggy" else ""
        arguments = [str(directory), str(RELEASES[release]), address, PASSWORD, release.replace(" ", "-")]
        program = str(Path(__file__).with_name("iggy_client.py"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, program, *arguments, "default", STREAM,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        return Client(process)

    async def grows(self, by: int) -> None:
        """Wait until it has sent and read so many more."""
        acked, read = len(self.acked) + by, len(self.read) + by

        async def is_enough() -> bool:
            return self._following.done() or (len(self.acked) >= acked and len(self.read) >= read)

        await until(is_enough)
        assert not self._following.done(), (self.others[-5:], self.failed)

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), 30)
        await self._following

    async def _follow(self) -> None:
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode().rstrip():
            match line.split(" ", 2):
                case ["acked", value]:
                    self.acked.append(value)
                case ["read", value]:
                    self.read.append(value)
                case ["failed", value, text]:
                    self.failed[value] = text
                case _:
                    self.others.append(line)


async def test_published_clients_continue_through_another_broker_when_the_leader_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("iggy_py", reason="iggy-py 0.4.0 has wheels for CPython 3.11 only")
    async with cluster(tmp_path, **settings(tmp_path)) as brokers:
        await created(brokers, STREAM)
        leader = await led_in_sync(brokers)
        await ready(brokers, CURSORS)
        other = next(name for name in NAMES if name != leader)
        clients = [await Client.start(release, address(brokers, other)) for release in RELEASES]
        await asyncio.gather(*(client.grows(ENOUGH) for client in clients))
        await brokers.kill(leader)
        await asyncio.gather(*(client.grows(ENOUGH) for client in clients))
        acked = [list(client.acked) for client in clients]

        async def are_read() -> bool:
            return all(item <= {*client.read} for item in [{*values} for values in acked] for client in clients)

        await until(are_read)
        await asyncio.gather(*(client.end() for client in clients))
        found = [value.decode() for value in (await stored(brokers, other)).values()]
    for client, values in zip(clients, acked, strict=True):
        lost = set(values) - set(found)
        assert not lost, f"{len(lost)} of {len(values)} acknowledged messages are lost; {client.failed}"
        twice = {value for value in values if found.count(value) > 1} - set(client.failed)
        assert not twice, "sent once, and stored twice"


def known(raw: Raw, stream: str) -> bool:
    return raw.good(iggy.GET_TOPIC, iggy.path(stream, "paid")) != b""


async def topic(brokers: Brokers, raws: dict[str, Raw], partitions: int = 1) -> None:
    """Topic `paid` of stream `orders` with three replicas, made at the first broker and known to all."""
    first = raws[NAMES[0]]
    first.good(iggy.CREATE_STREAM, struct.pack("<I", 0) + short_text("orders"))
    fields = struct.pack("<IIBQQB", 0, partitions, 1, 0, 0, 3)
    first.good(iggy.CREATE_TOPIC, identifier("orders") + fields + short_text("paid"))
    for raw in raws.values():

        async def is_known(raw: Raw = raw) -> bool:
            return known(raw, "orders")

        await until(is_known)
    await ready(brokers, CURSORS)


def logged_in(stack: ExitStack, brokers: Brokers) -> dict[str, Raw]:
    """A connection to each broker."""
    return {name: stack.enter_context(connected(address(brokers, name), PASSWORD)) for name in brokers.running}


async def test_any_broker_takes_commands_sends_polls_and_positions(tmp_path: Path) -> None:
    async with cluster(tmp_path, **settings(tmp_path)) as brokers:
        with ExitStack() as stack:
            raws = logged_in(stack, brokers)
            await topic(brokers, raws)
            for number, raw in enumerate(raws.values()):
                raw.send(PLACE, iggy.to_partition(1), [b"%d" % number])
            for raw in raws.values():
                assert raw.poll(PLACE).payloads == [b"0", b"1", b"2"]
                assert raw.poll(PLACE, iggy.LAST, count=2).payloads == [b"1", b"2"]
                assert raw.poll(PLACE, iggy.OFFSET, 1, count=1).payloads == [b"1"]
                assert raw.poll(PLACE, iggy.TIMESTAMP, 0, count=1).payloads == [b"0"]
                raw.good(iggy.FLUSH, iggy.path(*PLACE) + struct.pack("<IB", 1, 1))
            b1, b2, b3 = raws.values()
            b1.store(PLACE, 1)
            assert [raw.stored(PLACE) for raw in raws.values()] == [(2, 1)] * 3
            assert b2.poll(PLACE, iggy.NEXT, commit=True).payloads == [b"2"]
            assert b3.poll(PLACE, iggy.NEXT).payloads == []
            with pytest.raises(RefusedError, match="4100"):
                b3.store(PLACE, 3)
            b3.good(iggy.DELETE_OFFSET, iggy.owner(PLACE, 1, 1))
            assert [raw.stored(PLACE) for raw in raws.values()] == [None] * 3
            with pytest.raises(RefusedError, match="3021"):
                b1.good(iggy.DELETE_OFFSET, iggy.owner(PLACE, 1, 1))


async def test_members_at_several_brokers_share_a_group_and_a_lost_broker_leaves_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, **settings(tmp_path)) as brokers:
        with ExitStack() as stack:
            raws = logged_in(stack, brokers)
            await topic(brokers, raws, partitions=3)
            raws["b1"].create_group(PLACE, "billing")
            for partition in (1, 2, 3):
                raws["b1"].send(PLACE, iggy.to_partition(partition), [b"%d" % partition])
            for raw in raws.values():

                async def has_joined(raw: Raw = raw) -> bool:
                    return raw.ask(iggy.JOIN_GROUP, iggy.path(*PLACE, "billing"))[0] == 0

                await until(has_joined)

            async def has_members(count: int) -> bool:
                shown = [raws[name].good(iggy.GET_GROUP, iggy.path(*PLACE, "billing")) for name in brokers.running]
                return all(struct.unpack_from("<I", item, 8) == (count,) for item in shown)

            await until(lambda: has_members(3))
            seen = {name: polled(raw) for name, raw in raws.items()}
            assert sorted(seen.values()) == [b"1", b"2", b"3"], "each reads its own"
            await brokers.kill("b3")
            rest = {name: raw for name, raw in raws.items() if name != "b3"}
            await until(lambda: has_members(2))
            for raw in rest.values():
                assert all(polled(raw) == b"" for _ in range(3)), "what was read is stored"
            for partition in (1, 2, 3):
                rest["b1"].send(PLACE, iggy.to_partition(partition), [b"later-%d" % partition])
            later = [polled(raw) for _ in range(3) for raw in rest.values()]
            assert sorted(value for value in later if value) == [b"later-1", b"later-2", b"later-3"]
            rest["b1"].good(iggy.LEAVE_GROUP, iggy.path(*PLACE, "billing"))
            await until(lambda: has_members(1))


def polled(raw: Raw) -> bytes:
    """What a member reads next, and has stored; empty = nothing."""
    return b"".join(raw.poll(PLACE, iggy.NEXT, kind=2, consumer="billing", commit=True).payloads)


async def test_what_a_cluster_does_not_offer_yet_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, **settings(tmp_path)) as brokers:
        with ExitStack() as stack:
            raws = logged_in(stack, brokers)
            await topic(brokers, raws)
            with pytest.raises(RefusedError, match="status 5"):
                raws["b2"].good(204, identifier("orders") + short_text("others"))
