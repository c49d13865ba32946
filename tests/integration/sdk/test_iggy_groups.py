"""Consumer groups of the SDK over Iggy's protocol against a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import bascule
import pytest
from bascule import StreamOptions
from bascule.client._core.membership import Assignment
from bascule.errors import AccessError, StateError, UsageError
from bascule.testing import TestBroker, broker

from tests.names import fresh

PASSWORD = "secret"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    settings = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(file), "cursors.partitions": 1}
    with broker(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(serving: TestBroker) -> Iterator[bascule.Client]:
    with bascule.connect(f"iggy://iggy:{PASSWORD}@{serving.iggy_address}") as connected:
        yield connected


@pytest.fixture(scope="module")
def by_token(serving: TestBroker) -> Iterator[bascule.Client]:
    with serving.connect() as admin:
        token = admin.create_iggy_token("iggy", "groups")
    with bascule.connect(f"iggy://{token.replace('/', '%2F').replace('+', '%2B')}@{serving.iggy_address}") as connected:
        yield connected


def topic(client: bascule.Client, partitions: int = 3) -> str:
    """A topic with one record in each partition, its number."""
    name = f"{fresh('groups')}/t"
    client.create_stream(name, options=StreamOptions(partitions=partitions))
    for number in range(partitions):
        client.publish(name, b"%d" % number, partition=number)
    return name


def read_until(consumer: bascule.Consumer, is_enough: Callable[[list[bytes | None]], bool]) -> list[bytes | None]:
    """Values that a consumer reads until they are enough."""
    values = list[bytes | None]()
    for _ in range(200):
        batch = consumer.next_batch(timeout=0.1)
        if batch is not None:
            values.extend(batch.values)
        if is_enough(values):
            return values
    raise AssertionError(f"only {values} were read")


@pytest.mark.parametrize("login", ["client", "by_token"])
def test_members_share_partitions_and_continue_where_the_group_stands(
    login: str, request: pytest.FixtureRequest
) -> None:
    client: bascule.Client = request.getfixturevalue(login)
    name = topic(client)
    changes = list[tuple[str, list[Assignment]]]()
    with client.consumer(
        "billing",
        name,
        on_assigned=lambda places: changes.append(("assigned", [*places])),
        on_revoked=lambda places: changes.append(("revoked", [*places])),
    ) as first:
        assert sorted(filter(None, read_until(first, lambda values: len(values) == 3))) == [b"0", b"1", b"2"]
        assert first.assignment == {Assignment(name, number) for number in range(3)}
        with client.consumer("billing", name) as second:
            read_until(first, lambda _: len(first.assignment) == 2)
            read_until(second, lambda _: len(second.assignment) == 1)
            assert not first.assignment & second.assignment
            for number in range(3):
                client.publish(name, b"later-%d" % number, partition=number)
            seen = read_until(first, lambda values: len(values) == 2) + read_until(second, bool)
            assert sorted(filter(None, seen)) == [b"later-0", b"later-1", b"later-2"]
        read_until(first, lambda _: len(first.assignment) == 3)
    assert [kind for kind, _ in changes] == ["assigned", "revoked", "assigned", "revoked"]
    assert changes[0][1] == sorted(changes[0][1]) == changes[3][1]
    with client.consumer("billing", name) as again:
        read_until(again, lambda _: len(again.assignment) == 3)
        assert again.next_batch(timeout=0.3) is None, "all of it was stored"


def test_positions_are_stored_when_asked_and_not_before(client: bascule.Client) -> None:
    name = topic(client, partitions=1)
    client.publish_many(name, [b"1", b"2"], partition=0)
    with client.consumer("billing", name, commit_interval=None, batch_records=1) as consumer:
        read_until(consumer, lambda values: len(values) == 2)
        consumer.commit()
        assert read_until(consumer, bool) == [b"2"]
    with client.consumer("billing", name, commit_interval=None) as consumer:
        batch = consumer.next_batch(timeout=30)
        assert batch is not None
        assert batch.values == [b"2"]
        consumer.commit(batch)
    with client.consumer("billing", name) as consumer:
        read_until(consumer, lambda _: bool(consumer.assignment))
        assert consumer.next_batch(timeout=0.2) is None


def test_a_group_begins_where_start_says(client: bascule.Client) -> None:
    name = topic(client, partitions=1)
    client.publish(name, b"1", partition=0)
    with client.consumer("new", name, start="new") as consumer:
        read_until(consumer, lambda _: bool(consumer.assignment))
        client.publish(name, b"2", partition=0)
        assert read_until(consumer, bool) == [b"2"]
    with client.consumer("latest", name, start="latest") as consumer:
        assert read_until(consumer, bool) == [b"2"]
    with (
        client.consumer("none", name, start="error") as consumer,
        pytest.raises(StateError, match="has no stored position"),
    ):
        consumer.next_batch(timeout=30)


def test_a_purged_partition_is_read_from_its_new_beginning(client: bascule.Client) -> None:
    name = topic(client, partitions=1)
    client.publish(name, b"1", partition=0)
    with client.consumer("billing", name) as consumer:
        read_until(consumer, lambda values: len(values) == 2)
        client.purge_stream(name)
        with pytest.raises(StateError, match=r"is at offset 2 .* it was purged"):
            read_until(consumer, bool)
        client.publish(name, b"later", partition=0)
        assert read_until(consumer, bool) == [b"later"]


def test_what_the_protocol_lacks_is_refused_by_name(client: bascule.Client) -> None:
    name = topic(client, partitions=1)
    refused = {
        "consumer of consumer": lambda: client.consumer("g", name, consumer="c"),
        "subject of consumer": lambda: client.consumer("g", name, subject="a"),
        "resume of consumer": lambda: client.consumer("g", name, resume=True),
        "auto_offset_reset of consumer": lambda: client.consumer("g", name, auto_offset_reset="earliest"),
    }
    for what, call in refused.items():
        with pytest.raises(UsageError, match=f"^{what} is not available over Iggy's protocol"):
            call()
    with pytest.raises(StateError, match="does not exist"), client.consumer("g", f"{name}x"):
        pass


def test_a_member_needs_the_right_to_see_its_connection(serving: TestBroker, client: bascule.Client) -> None:
    user, name = fresh("u")[-40:], topic(client, partitions=1)
    with serving.connect() as admin:
        admin.create_iggy_user(user, PASSWORD)
    with (
        bascule.connect(f"iggy://{user}:{PASSWORD}@{serving.iggy_address}") as mine,
        pytest.raises(AccessError, match="no right"),
        mine.consumer("g", name),
    ):
        pass


def test_a_member_whose_connection_was_lost_joins_again(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    settings = {
        "iggy.listen": "127.0.0.1:0",
        "iggy.root_password_file": str(tmp_path / "password"),
        "cursors.partitions": 1,
    }
    lost = list[Assignment]()
    with broker(settings=settings) as running:
        url = f"iggy://iggy:{PASSWORD}@{running.iggy_address}"
        with bascule.connect(url, timeout=60, reconnect=60) as client:
            name = topic(client, partitions=1)
            with client.consumer("billing", name, on_lost=lost.extend) as consumer:
                assert read_until(consumer, bool) == [b"0"]
                consumer.commit()
                consumer.core._link._drop()  # type: ignore[attr-defined]  # as a network does
                client.publish(name, b"1", partition=0)
                read_until(consumer, lambda _: bool(lost))
                assert lost == [Assignment(name, 0)]
                read_until(consumer, lambda _: bool(consumer.assignment))
                client.publish(name, b"2", partition=0)
                assert read_until(consumer, lambda values: b"2" in values)[-1] == b"2"


async def test_the_asynchronous_client_does_the_same(serving: TestBroker) -> None:
    async with bascule.connect_async(f"iggy://iggy:{PASSWORD}@{serving.iggy_address}") as client:
        name = f"{fresh('groups')}/t"
        await client.create_stream(name)
        await client.publish(name, b"0")
        async with client.consumer("billing", name) as consumer:
            async for batch in consumer:
                assert batch.values == [b"0"]
                break
