"""The synchronous and the asynchronous client are one: same methods, same parameters, same documentation."""

import inspect
import typing
from typing import Any

import bascule
import pytest
from bascule import client

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (client.Client, client.AsyncClient),
    (client.Consumer, client.AsyncConsumer),
    (client.Producer, client.AsyncProducer),
    (client.Subscription, client.AsyncSubscription),
]


def public(cls: type[Any]) -> dict[str, Any]:
    members = {name: member for base in reversed(cls.__mro__[:-1]) for name, member in vars(base).items()}
    return {name: member for name, member in members.items() if not name.startswith("_")}


def name_of(annotation: Any) -> str:
    """A return annotation without what differs: `AsyncIterator`, `AsyncProducer`, `asyncio.Future`."""
    name = annotation.__name__ if inspect.isclass(annotation) else str(annotation).strip("'")
    return name.replace("Async", "").replace("asyncio.", "")


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_both_have_the_same_methods_with_the_same_parameters(sync: type[Any], asynchronous: type[Any]) -> None:
    theirs = public(asynchronous)
    for name, member in public(sync).items():
        if not inspect.isfunction(member):
            continue
        mine, other = inspect.signature(member), inspect.signature(theirs.pop(name))
        assert mine.parameters == other.parameters, f"{sync.__name__}.{name}"
        assert name_of(mine.return_annotation) == name_of(other.return_annotation), f"{sync.__name__}.{name}"
    assert not [name for name, member in theirs.items() if inspect.isfunction(member)]


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_whatever_talks_to_the_broker_is_awaited(sync: type[Any], asynchronous: type[Any]) -> None:
    waiting = {name for name, member in public(asynchronous).items() if inspect.iscoroutinefunction(member)}
    plain = {name for name, member in public(asynchronous).items() if inspect.isfunction(member)} - waiting
    assert plain <= {"producer", "subscribe", "consumer", "records", "try_send"}
    assert sync.__doc__


@pytest.mark.parametrize("cls", [cls for pair in PAIRS for cls in pair])
def test_everything_public_is_documented_and_typed(cls: type[Any]) -> None:
    assert cls.__doc__
    for name, member in public(cls).items():
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function):
            assert function.__doc__, f"{cls.__name__}.{name}"
            hints = typing.get_type_hints(function)
            assert "return" in hints
            assert set(inspect.signature(function).parameters) - {"self"} <= set(hints)


def test_an_awaited_method_has_the_documentation_of_the_blocking_one() -> None:
    assert client.AsyncClient.publish.__doc__ == client.Client.publish.__doc__
    assert client.AsyncClient.publish.__doc__ is not None


def test_both_ways_in_take_the_same() -> None:
    assert inspect.signature(client.connect).parameters == inspect.signature(client.connect_async).parameters


@pytest.mark.parametrize("name", bascule.__all__)
def test_every_promised_name_can_be_imported(name: str) -> None:
    assert getattr(bascule, name) is not None


def test_the_exports_are_exactly_the_promised_ones() -> None:
    assert sorted(bascule.__all__) == bascule.__all__
    assert set(bascule.__all__) - {"BrokerError"} == set(client.__all__) - {
        "Ack",
        "Content",
        "GroupStart",
        "Headers",
        "OffsetReset",
        "PartitionChoice",
        "OnAck",
        "OnChange",
        "Start",
        "Stop",
    }
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = bascule.nothing  # pyright: ignore[reportAttributeAccessIssue]
