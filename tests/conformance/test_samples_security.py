"""Security configurations of Liftbridge: TLS, client certificates, model and policy, NATS with TLS and a password,
encryption at rest.
"""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import signal
from pathlib import Path
from typing import Any

import grpc
import nats
import pytest

from tests.certificates import Authority, Pair
from tests.conformance.api import Api, Failed, failed, values
from tests.conformance.samples import ALONE, LIMIT_S, LISTEN, Running, liftbridge, said_by
from tests.integration.server.test_nats_access import CERTIFICATES, THEIR_TLS, nats_server, trusting
from tests.policies import EXACT_MODEL
from tests.waiting import until

POLICY = "p, alice, *, FetchMetadata\np, alice, s, CreateStream\np, alice, s, Publish\np, bob, s, Subscribe\n"


def credentials(authority: Authority, pair: Pair | None) -> Any:
    ca = authority.ca.read_bytes()
    if pair is None:
        return grpc.ssl_channel_credentials(ca)
    return grpc.ssl_channel_credentials(ca, pair.key.read_bytes(), pair.cert.read_bytes())


def hang_up(broker: Running, said: str) -> None:
    """Send SIGHUP; returns when the broker has logged this text once more."""
    before = len(broker.events(said))
    broker.process.send_signal(signal.SIGHUP)
    until(lambda: len(broker.events(said)) > before, LIMIT_S)


def test_certificates_model_and_policy_are_applied(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("broker")
    alice, bob = (credentials(authority, authority.issue(name)) for name in ("alice", "bob"))
    (tmp_path / "model.conf").write_text(EXACT_MODEL)
    policy = tmp_path / "policy.csv"
    policy.write_text(POLICY)
    text = f"""{ALONE}
tls:
  cert: {own.cert}
  key: {own.key}
  client.auth: {{enabled: true, ca: {authority.ca}}}
  client.authz: {{enabled: true, model: {tmp_path / "model.conf"}, policy: {policy}}}
"""
    with liftbridge(tmp_path, text, credentials=alice) as broker:
        with Api(broker.address, alice) as api, Api(broker.address, bob) as other:
            api.create("s")
            api.publish("s", b"x")
            denied = "The client is not authorized to call {} on resource s"
            with pytest.raises(Failed, check=failed("PERMISSION_DENIED", denied.format("Subscribe"))):
                api.subscribe("s")
            with pytest.raises(Failed, check=failed("PERMISSION_DENIED", denied.format("Publish"))):
                other.publish("s", b"y")
            assert other.subscribe("s").next().value == b"x"
            policy.write_text(f"{POLICY}p, bob, s, Publish\n")
            hang_up(broker, "the policy is in use")
            assert other.publish("s", b"y") == 1
        for stranger in (credentials(authority, None), None):
            with Api(broker.address, stranger) as nobody, pytest.raises(Failed, match="UNAVAILABLE"):
                nobody.call("FetchMetadata")


def test_tls_alone_accepts_all_clients_and_flags_equal_keys(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("broker")
    anybody = credentials(authority, None)
    flags = ("--tls-cert", str(own.cert), "-tls-key", str(own.key))
    with (
        liftbridge(tmp_path, ALONE, *flags, credentials=anybody) as broker,
        Api(broker.address, anybody) as api,
    ):
        api.create("s")
        assert api.publish("s", b"x") == 0


async def test_nats_with_tls_certificates_and_a_password(tmp_path: Path) -> None:
    theirs = f"tls {{ {THEIR_TLS}, verify: true }}\nauthorization: {{ user: u, password: p }}"
    async with nats_server(tmp_path, theirs) as address:
        files = f"cert: {CERTIFICATES}/client.pem, key: {CERTIFICATES}/client.key, ca: {CERTIFICATES}/ca.pem"
        text = f"{LISTEN}nats: {{servers: ['nats://{address}'], user: u, password: p, tls: {{{files}}}}}\n"
        with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
            api.create("s")
            until(lambda: bool(broker.events("connected to NATS")), LIMIT_S)
            client = await nats.connect(f"tls://{address}", tls=trusting(certificate=True), user="u", password="p")
            while api.partition("s").highWatermark < 0:  # it may still be subscribing
                await client.publish("s", b"plain")
                await client.flush()
            await client.close()
            assert values(api.read("s"))[0] == b"plain"


def test_encryption_of_all_streams_needs_the_variable_and_leaves_no_value_on_disk(tmp_path: Path) -> None:
    text = f"{ALONE}streams.encryption: true\n"
    secret, value = "0123456789abcdef0123456789abcdef", b"planted value of a record"
    variables = {"LIFTBRIDGE_ENCRYPTION_KEY": secret}
    with liftbridge(tmp_path, text, variables=variables) as broker, Api(broker.address) as api:
        api.create("s")
        api.publish("s", value)
        assert values(api.read("s")) == [value]
    on_disk = b"".join(file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file())
    assert on_disk
    assert value not in on_disk
    assert secret.encode() not in on_disk
    with (
        liftbridge(tmp_path, text) as broker,
        Api(broker.address) as api,
        pytest.raises(Failed, match=r"FAILED_PRECONDITION .*invalid AES key size 0"),
    ):
        api.create("t")


def test_a_missing_certificate_fails_the_start(tmp_path: Path) -> None:
    code, words = said_by(tmp_path, f"{ALONE}tls: {{cert: {tmp_path}/no.pem, key: {tmp_path}/no.key}}\n")
    assert code == 2
    assert "no.pem" in words
