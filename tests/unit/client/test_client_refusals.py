"""Errors of publishes over a fake native core: each names the value, the bound and the remedy."""

import pytest
from bascule import _admin_pb
from bascule._liftbridge_pb import message
from bascule.errors import BrokerError

from tests.unit.client.fakes import FakeNative, client_of, failure

DETAILS: bytes = _admin_pb.message("FetchStreamDetailsResponse")(
    in_effect={"max_record_bytes": 1000}
).SerializeToString()
LARGE = '{"index": 0, "acknowledged": 0, "bytes": 2013}'
TOO_MANY = "grpc: received message larger than max (1048590 vs. 1048576)"
SIZES = '{"message_bytes": 1048590, "limit": 1048576}'
NO_REPLICAS = "failed to append: not enough in-sync replicas: there are 1, min ISR is 2"


def refused(native: FakeNative, expected_offset: int | None = None) -> BrokerError:
    with pytest.raises(BrokerError) as raised:
        client_of(native).publish("s", b"v", partition=0, expected_offset=expected_offset)
    return raised.value


@pytest.mark.parametrize(
    ("answer", "bound"),
    [(DETAILS, ", which accepts 1000"), (None, "")],
)
def test_a_record_that_is_too_large_names_its_size_and_the_limit(answer: bytes | None, bound: str) -> None:
    native = FakeNative()
    native.acks = [failure("too_large", "message exceeds max replication size", LARGE)]
    native.answers = [answer or failure("permission_denied")]
    found = refused(native)
    assert str(found) == (
        f'a record of 2013 bytes, envelope included, is too large for stream "s"{bound}: '
        "bascule stream edit s --max-record-bytes raises the limit"
    )
    assert found.details["limit" if bound else "bytes"] == (1000 if bound else 2013)


def test_a_message_above_the_brokers_limit_names_the_setting() -> None:
    native = FakeNative()
    native.acks = [failure("too_large", TOO_MANY, SIZES)]
    text = "a message of 1048590 bytes is too large: the broker accepts 1048576 (its setting limits.message_bytes)"
    assert str(refused(native)) == text
    native.answers = [failure("too_large", TOO_MANY, SIZES)]
    with pytest.raises(BrokerError, match=r"limits\.message_bytes"):
        client_of(native).publish_to_subject("s", b"v")


@pytest.mark.parametrize(("known", "said"), [(True, ", which is 12"), (False, "")])
def test_a_wrong_expected_offset_names_the_next_offset(known: bool, said: str) -> None:
    native = FakeNative()
    native.acks = [failure("incorrect_offset", "incorrect expected offset")]
    response = message("FetchPartitionMetadataResponse")()
    response.metadata.newestOffset = 11
    native.answers = [response.SerializeToString() if known else failure("unimplemented")]
    found = refused(native, 7)
    assert str(found).startswith(f'expected_offset 7 is not the next offset of partition 0 of stream "s"{said}: read')
    assert found.details["next_offset"] == (12 if known else None)


@pytest.mark.parametrize(
    ("code", "text", "details", "said"),
    [
        ("readonly", "readonly partition: 0", "", "partition 0 of .* bascule stream readonly s --off"),
        (
            "not_enough_replicas",
            NO_REPLICAS,
            '{"in_sync": 1, "min_isr": 2}',
            "there are 1, min ISR is 2: bascule stream edit s --min-isr requires fewer",
        ),
        ("encryption_key_missing", "encryption failed on partition", "", "configure its master key in encryption.keys"),
    ],
)
def test_errors_of_a_stream_have_the_remedy(code: str, text: str, details: str, said: str) -> None:
    native = FakeNative()
    native.acks = [failure(code, text, details)]
    with pytest.raises(BrokerError, match=f'stream "s" .*{said}' if code != "readonly" else said) as raised:
        client_of(native).publish("s", b"v")
    assert raised.value.code == code


def test_a_readers_error_for_a_missing_key_is_unchanged() -> None:
    native = FakeNative()
    text = 'batch at or after offset 0 cannot be decrypted: its master key "one" is not configured'
    native.subscriptions = [failure("encryption_key_missing", text, '{"start": 0}')]
    with pytest.raises(BrokerError, match=r"^batch at or after offset 0") as raised:
        client_of(native).subscribe("s").open()
    assert raised.value.code == "encryption_key_missing"
