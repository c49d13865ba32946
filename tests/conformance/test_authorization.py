"""Mutual TLS and authorization (liftbridge §9.1, §9.3, D4, D5), with stubs that know only gRPC."""

import json
import threading
from collections.abc import Callable, Iterator

import bascule
import grpc
import pytest
from bascule._methods import METHODS

from tests.certificates import DAY, Authority
from tests.conformance.api import ALL, EARLIEST, NONE, PERMISSION_DENIED, Api, Failed, failed
from tests.conformance.mutual import ROOT, Mutual, mutual_broker, rule
from tests.conformance.rights import CALLS, action, check_creation, rules_for
from tests.waiting import until


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    settings = {"cursors.partitions": 1, "log.format": "json"}
    with mutual_broker(tmp_path_factory.mktemp("mutual"), **settings) as running:
        yield running


@pytest.fixture
def root(mutual: Mutual) -> Iterator[Api]:
    with mutual.api(ROOT) as it:
        yield it


def denied(action: str, resource: str) -> Callable[[BaseException], bool]:
    return failed("PERMISSION_DENIED", f"The client is not authorized to call {action} on resource {resource}")


def test_each_method_is_denied_without_its_right_and_allowed_with_it(mutual: Mutual, root: Api, stream: str) -> None:
    root.create(stream)
    clients = {method: f"may-{method}" for method in CALLS}
    actions = sorted({action(method) for method in CALLS})
    rules = [rule("may-nothing", actions, "elsewhere")]
    for method in CALLS:
        rules += rules_for(clients[method], method, stream)
    mutual.allow(*rules)
    with mutual.api("may-nothing") as nothing:
        for method, (call, resource) in CALLS.items():
            with pytest.raises(Failed, check=denied(action(method), resource(stream))):
                call(nothing, stream)
    for method, (call, _) in CALLS.items():
        with mutual.api(clients[method]) as api:
            call(api, stream)
            other = "PauseStream" if action(method) != "PauseStream" else "DeleteStream"
            with pytest.raises(Failed, check=denied(other, stream)):
                CALLS[other][0](api, stream)
    assert root.stream(stream).error, "the last call deleted it"


def test_all_methods_are_tested() -> None:
    # PublishAsync has its refusals in its answers; an attempt is aborted and renewed by the owner of its sink alone
    assert CALLS.keys() == METHODS.keys() - {"PublishAsync", "AbortSink", "RenewSink"}


def test_who_may_read_a_stream_may_not_hold_its_records_without_that_right(
    mutual: Mutual, root: Api, stream: str
) -> None:
    root.create(stream)

    def report(api: Api, *, hold: bool) -> list[str]:
        return list(api.admin("ReportQuery", query=f"{stream}-q", streams=[{"name": stream}], hold=hold).unknown)

    mutual.allow(rule("reader", "Subscribe", stream))
    with mutual.api("reader") as reader:
        assert report(reader, hold=False) == [stream]
        with pytest.raises(Failed, check=denied("HoldRetention", stream)):
            report(reader, hold=True)
        mutual.allow(rule("reader", ["Subscribe", "HoldRetention"], stream))
        assert report(reader, hold=True) == [stream]


def test_a_stream_on_a_subject_does_not_bypass_the_rights_on_it(mutual: Mutual, root: Api, stream: str) -> None:
    mine = f"{stream}-mine"
    root.create(stream)
    mutual.allow(rule("shop", ["CreateStream", "Publish", "Subscribe"], f"{mine}*"))
    with mutual.api("shop") as shop:
        for subject in (stream, ">"):
            with pytest.raises(Failed, check=denied("Subscribe", subject)):
                shop.create(mine, subject=subject)
            with pytest.raises(Failed, check=denied("Subscribe", subject)):
                check_creation(shop, mine, subject)
        shop.create(mine)
        assert shop.publish(mine, b"x") == 0
        mutual.allow(
            rule("shop", "CreateStream", f"{mine}*"), rule("shop", ["Subscribe", "PublishToSubject"], f"{stream}.>")
        )
        shop.create(f"{mine}-too", subject=f"{stream}.>")
    assert root.partition(stream).highWatermark == -1


def test_a_partition_on_the_subject_of_another_stream_needs_the_rights_on_it(
    mutual: Mutual, root: Api, stream: str
) -> None:
    """`pay` with two partitions listens on `pay.1`, like a stream of that name or subject."""
    root.create(f"{stream}.1")
    mutual.allow(rule("shop", ["CreateStream", "Publish", "Subscribe"], stream))
    with mutual.api("shop") as shop:
        for create in (lambda: shop.create(stream, partitions=2), lambda: check_creation(shop, stream, stream, 2)):
            with pytest.raises(Failed, check=denied("Subscribe", f"{stream}.1")):
                create()
        mutual.allow(rule("shop", "CreateStream", stream), rule("shop", "Subscribe", f"{stream}.1"))
        with pytest.raises(Failed, check=denied("Publish", f"{stream}.1")):
            shop.create(stream, partitions=2)
        by_subject = {"partitionBySubject": {"value": True}}
        shop.create(stream, partitions=2, **by_subject)
        root.call("DeleteStream", name=stream)
        shop.create(stream)
        root.call("DeleteStream", name=stream)
        mutual.allow(rule("shop", "CreateStream", stream), rule("shop", ["Subscribe", "Publish"], f"{stream}.1"))
        shop.create(stream, partitions=2)


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [("", False), (".1", False), (".*", False), (".>", False), (".2", True), (".1.1", True), (".one", True)],
)
def test_a_client_denied_one_stream_gets_nothing_of_it(
    mutual: Mutual, root: Api, stream: str, subject: str, *, allowed: bool
) -> None:
    root.create(stream, partitions=2)
    deny = {"clients": "most", "deny": "*", "resources": stream}
    mutual.allow(rule("most", "*", "*"), deny)
    with mutual.api("most") as api:
        names = [f"{stream}-x", *([f"{stream}{subject}"] if subject[-1:].isalnum() else [])]
        for name in names:
            if allowed:
                api.create(name, subject=f"{stream}{subject}")
                continue
            with pytest.raises(Failed, check=denied("Subscribe", stream)):
                api.create(name, subject=f"{stream}{subject}")


def test_a_stream_under_the_wildcard_of_another_needs_the_rights_on_it(mutual: Mutual, root: Api, stream: str) -> None:
    root.create(f"{stream}-all", subject=f"{stream}.*")
    mutual.allow(rule("shop", ["CreateStream", "Publish", "Subscribe"], f"{stream}.*"))
    with mutual.api("shop") as shop:
        with pytest.raises(Failed, check=denied("Subscribe", f"{stream}-all")):
            shop.create(f"{stream}.eu")
        shop.create(f"{stream}.eu.de")


def test_a_policy_that_names_the_subject_keeps_working_beside_a_stream_on_it(
    mutual: Mutual, root: Api, stream: str
) -> None:
    root.create(f"{stream}.eu")
    named = rule("copier", ["Subscribe", "PublishToSubject"], [f"{stream}.eu", f"{stream}.>"])
    mutual.allow(rule("copier", "CreateStream", f"{stream}-*"), named)
    with mutual.api("copier") as api:
        api.create(f"{stream}-one", subject=f"{stream}.eu")
        api.create(f"{stream}-all", subject=f"{stream}.>")
        mutual.allow(
            rule("copier", "CreateStream", f"{stream}-*"), named,
            {"clients": "copier", "deny": "Subscribe", "resources": f"{stream}.eu"},
        )  # fmt: skip
        with pytest.raises(Failed, check=denied("Subscribe", f"{stream}.eu")):
            api.create(f"{stream}-again", subject=f"{stream}.>")


def test_the_right_to_set_a_cursor_suffices_and_no_right_allows_writing_to_the_stream_of_cursors(
    mutual: Mutual, root: Api, stream: str
) -> None:
    root.create(stream)
    mutual.allow(rule("reader", "SetCursor", stream))
    with mutual.api("reader") as api:
        CALLS["SetCursor"][0](api, stream)
    assert root.call("FetchCursor", stream=stream, partition=0, cursorId="c").offset == 1


def test_a_denied_publisher_cannot_find_out_which_streams_exist(mutual: Mutual, root: Api, stream: str) -> None:
    root.create(stream)
    mutual.allow(rule("somebody", "Publish", "elsewhere"))
    with mutual.api("somebody") as api:
        for name in (stream, f"{stream}-missing"):
            for call in (
                lambda name=name: api.publish(name, b"x"),
                lambda name=name: api.publish(name, b"x", partition=9),
                lambda name=name: api.publish(name, b"x", ackPolicy=7),
            ):
                with pytest.raises(Failed, check=denied("Publish", name)):
                    call()


def test_denied_calls_are_counted_and_logged_with_client_action_address_and_rule(
    mutual: Mutual, root: Api, stream: str
) -> None:
    root.create(stream)
    mutual.allow(
        rule("snoop", "*", "*"), {"clients": "*", "deny": ["Publish", "PauseStream"], "resources": f"{stream}*"}
    )
    assert mutual.running is not None
    running = mutual.running

    def counted() -> int:
        return root.admin("FetchBrokerDetails").statistics["calls_denied"]

    before = counted()
    with mutual.api("snoop") as api:
        for call in (lambda: api.publish(stream, b"x"), lambda: api.call("PauseStream", name=stream)):
            with pytest.raises(Failed) as refused:
                call()
            assert refused.value.code is grpc.StatusCode.PERMISSION_DENIED
        (answer,) = api.publish_async([{"stream": stream, "ackPolicy": ALL}])
        assert answer.asyncError.code == PERMISSION_DENIED
    with mutual.api("other") as api, pytest.raises(Failed):
        api.subscribe(stream)
    assert counted() == before + 4

    def logged(client: str, action: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in running.log.splitlines() if line.startswith("{")]
        return [
            line for line in lines
            if (line.get("client"), line.get("action"), line.get("resource")) == (client, action, stream)
        ]  # fmt: skip

    until(lambda: bool(logged("snoop", "Publish") and logged("snoop", "PauseStream") and logged("other", "Subscribe")))
    for client, method, why in (
        ("snoop", "Publish", f'deny Publish on "{stream}*" for "*"'),
        ("snoop", "PauseStream", f'deny PauseStream on "{stream}*" for "*"'),
        ("other", "Subscribe", "no rule allows it"),
    ):
        (line, *_) = logged(client, method)
        assert line["rule"] == why
        assert str(line["peer"]).startswith("127.0.0.1:")
        assert line["level"] == "warning"


def test_a_flood_of_denied_calls_is_counted_and_does_not_flood_the_log(mutual: Mutual, root: Api, stream: str) -> None:
    mutual.allow()
    assert mutual.running is not None
    before = root.admin("FetchBrokerDetails").statistics["calls_denied"]
    with mutual.api("flooder") as api:
        for _ in range(300):
            with pytest.raises(Failed):
                api.publish(stream, b"x")
    after = root.admin("FetchBrokerDetails").statistics["calls_denied"]
    assert after - before == 300
    lines = [line for line in mutual.running.log.splitlines() if "flooder" in line]
    assert 1 <= len(lines) <= 5


def test_a_denied_asynchronous_publish_gets_its_own_error_and_stores_nothing(
    mutual: Mutual, root: Api, stream: str
) -> None:
    other = f"{stream}-other"
    root.create(stream)
    root.create(other)
    mutual.allow(rule("writer", "Publish", stream))
    requests = [
        {"stream": name, "value": name.encode(), "ackPolicy": ALL, "correlationId": f"{index}"}
        for index, name in enumerate([stream, other, stream, "no-such"])
    ]
    with mutual.api("writer") as api:
        answers = {item.correlationId or item.ack.correlationId: item for item in api.publish_async(requests)}
    assert [answers[str(index)].ack.offset for index in (0, 2)] == [0, 1]
    for index, name in ((1, other), (3, "no-such")):
        refused = answers[str(index)].asyncError
        assert refused.code == PERMISSION_DENIED
        assert refused.message == f"The client is not authorized to call Publish on resource {name}"
    assert root.partition(other).highWatermark == -1


def test_an_ack_is_not_sent_to_a_denied_subject(mutual: Mutual, root: Api, stream: str) -> None:
    victim = f"{stream}.victim"
    root.create(stream)
    root.create(victim)
    mutual.allow(rule("writer", "Publish", stream), rule("writer", "PublishToSubject", f"{stream}.x"))
    with mutual.api("writer") as api:
        with pytest.raises(Failed, check=denied("PublishToSubject", victim)):
            api.publish(stream, b"x", ackInbox=victim)
        with pytest.raises(Failed, check=denied("PublishToSubject", victim)):
            api.call("PublishToSubject", subject=f"{stream}.x", value=b"x", ackInbox=victim, ackPolicy=NONE)
        assert api.publish(stream, b"x", ackInbox="_INBOX.mine") == 0
    assert root.partition(victim).highWatermark == -1


def test_a_denied_subscription_resumes_nothing(mutual: Mutual, root: Api, stream: str) -> None:
    root.create(stream)
    root.call("PauseStream", name=stream)
    mutual.allow(rule("reader", "Subscribe", "elsewhere"))
    with mutual.api("reader") as api, pytest.raises(Failed, check=denied("Subscribe", stream)):
        api.subscribe(stream, resume=True)
    assert root.stream(stream).partitions[0].paused


def test_a_revoked_right_ends_open_calls(mutual: Mutual, root: Api, stream: str) -> None:
    root.create(stream)
    mutual.allow(rule("reader", "Subscribe", stream), rule("writer", "Publish", stream))
    with mutual.api("reader") as api, mutual.api("writer") as writer:
        reading = api.subscribe(stream, timeout=120)
        assert writer.publish(stream, b"seen") == 0
        assert reading.next().value == b"seen"
        mutual.allow(rule("writer", "Publish", stream))
        found, end = reading.rest()
        assert (found, str(end)) == (
            [], f"PERMISSION_DENIED The client is not authorized to call Subscribe on resource {stream}"
        )  # fmt: skip
        assert writer.publish(stream, b"more") == 1


def test_a_client_with_read_rights_only_cannot_end_a_group_reader(mutual: Mutual, root: Api, stream: str) -> None:
    root.create(stream)
    group = f"g-{stream}"
    needed = ("FetchConsumerGroupAssignments", group)
    reader, member = (rule(client, "Subscribe", stream) for client in ("reader", "member"))
    mutual.allow(reader, member, rule("member", *needed))
    with mutual.api("reader") as intruder, mutual.api("member") as api:
        reading = api.subscribe(stream, timeout=120, consumer={"groupId": group, "consumerId": "me", "groupEpoch": 1})
        taken = {"groupId": group, "consumerId": "other", "groupEpoch": 2**64 - 1}
        for reverse in (False, True):
            with pytest.raises(Failed, check=denied(*needed)):
                intruder.subscribe(stream, consumer=taken, startPosition=EARLIEST, reverse=reverse)
        root.publish(stream, b"x")
        assert reading.next().value == b"x", "the member continues"
        assert intruder.read(stream)[0].value == b"x", "reading for oneself takes nothing from anybody"
        mutual.allow(reader, member)
        with pytest.raises(Failed, check=denied(*needed)):
            reading.next()


def test_the_documented_rights_suffice_for_a_group_consumer(mutual: Mutual, root: Api, stream: str) -> None:
    root.create(stream)
    root.publish(stream, b"x")
    group = f"g-{stream}"
    calls = ["JoinConsumerGroup", "LeaveConsumerGroup", "FetchConsumerGroupAssignments"]
    mutual.allow(
        rule("member", calls, group),
        rule("member", ["Subscribe", "SetCursor", "FetchCursor"], stream),
        rule("member", "FetchMetadata", "*"),
    )
    assert mutual.running is not None
    with bascule.connect(mutual.running.url, tls=mutual.tls("member")) as client:
        with client.consumer(group, stream) as consumer:
            assert next(consumer.records()).value == b"x"
        assert client.fetch_cursor(f"__group:{group}", stream) == 0


def test_rights_change_under_load_without_lost_or_unauthorized_publishes(
    mutual: Mutual, root: Api, stream: str
) -> None:
    root.create(stream)
    outcomes: list[tuple[bytes, bool]] = []
    others: list[Failed] = []
    stop = threading.Event()

    def publish() -> None:
        with mutual.api("loader") as api:
            for number in range(100_000):
                if stop.is_set():
                    return
                value = b"%d" % number
                try:
                    api.publish(stream, value)
                    outcomes.append((value, True))
                except Failed as refused:
                    if refused.code is not grpc.StatusCode.PERMISSION_DENIED:
                        others.append(refused)
                    outcomes.append((value, False))

    may = rule("loader", "Publish", stream)
    mutual.allow(may)
    worker = threading.Thread(target=publish)
    worker.start()
    try:
        for allowed in (True, False, True, False, True):
            mutual.allow(*([may] if allowed else []))
            begun = len(outcomes)
            # Calls decided before the change may still be in flight; then only one answer remains.
            until(lambda begun=begun, allowed=allowed: any(took is allowed for _, took in outcomes[begun:]), 30)
    finally:
        stop.set()
        worker.join(30)
    assert not worker.is_alive()
    assert not others
    stored = [message.value for message in root.read(stream)]
    assert stored == [value for value, took in outcomes if took]
    assert not all(took for _, took in outcomes)


def test_a_client_without_a_valid_certificate_cannot_connect(mutual: Mutual, root: Api) -> None:
    stranger = Authority(mutual.directory / "stranger").issue(ROOT)
    expired = mutual.authority.issue(ROOT, file="expired", begins=-3 * DAY, ends=-DAY)
    assert mutual.running is not None
    ca = mutual.authority.ca.read_bytes()
    shown = [(None, None), *((pair.key.read_bytes(), pair.cert.read_bytes()) for pair in (stranger, expired))]
    for key, cert in shown:
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        with Api(mutual.running.address, credentials) as api, pytest.raises(Failed) as end:
            api.stream("x")
        assert end.value.code is grpc.StatusCode.UNAVAILABLE
    with Api(mutual.running.address) as plain, pytest.raises(Failed) as end:
        plain.stream("x")
    assert end.value.code is grpc.StatusCode.UNAVAILABLE
    assert root.stream("x").error, "other clients are served"


def test_a_certificate_without_a_name_has_no_rights(mutual: Mutual, stream: str) -> None:
    mutual.pairs["nobody"] = mutual.authority.issue([], file="nobody")
    mutual.allow(rule("*", "*", "*"))
    text = "api: Failed to retrieve client ID"
    with mutual.api("nobody") as api:
        for call in (lambda: api.create(stream), lambda: api.subscribe(stream)):
            with pytest.raises(Failed, check=failed("UNAUTHENTICATED", text)):
                call()
        (answer,) = api.publish_async([{"stream": stream, "ackPolicy": ALL}])
    assert (answer.asyncError.code, answer.asyncError.message) == (PERMISSION_DENIED, text)


def test_the_last_of_several_common_names_counts(mutual: Mutual, root: Api, stream: str) -> None:
    mutual.pairs["both"] = mutual.authority.issue(["first", "last"])
    mutual.allow(rule("last", "CreateStream", stream), rule("first", "DeleteStream", stream))
    with mutual.api("both") as api:
        api.create(stream)
        with pytest.raises(Failed, check=denied("DeleteStream", stream)):
            api.call("DeleteStream", name=stream)
    assert not root.stream(stream).error


def test_health_answers_every_connected_client(mutual: Mutual) -> None:
    mutual.allow()
    with mutual.api("somebody") as api:
        assert api.raw("/grpc.health.v1.Health/Check", b"\x0a\x09proto.API") == b"\x08\x01"
