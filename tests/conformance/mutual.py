"""A broker that identifies clients by certificates, and connections as such clients."""

import os
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import bascule
import grpc
import yaml
from bascule.testing import TestBroker, broker

from tests.certificates import Authority, Pair
from tests.conformance.api import Api
from tests.waiting import until

BROKER = "broker.test"
ROOT = "root"


def rule(clients: str | Sequence[str], allow: str | Sequence[str], resources: str | Sequence[str]) -> dict[str, Any]:
    """One rule of a policy."""
    return {"clients": clients, "allow": allow, "resources": resources}


@dataclass
class Mutual:
    """A directory of certificates, a policy, and the broker while it runs. The client `root` may do everything."""

    directory: Path
    authority: Authority
    rules: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    pairs: dict[str, Pair] = field(default_factory=dict[str, Pair])
    running: TestBroker | None = None

    @classmethod
    def at(cls, directory: Path) -> Self:
        """Creates certificate and policy; does not start the broker."""
        mutual = cls(directory, Authority(directory / "ca"))
        mutual.authority.issue(BROKER)
        mutual.write_policy()
        return mutual

    @property
    def policy(self) -> Path:
        return self.directory / "policy.yaml"

    def settings(self, **more: object) -> dict[str, object]:
        """Settings of mutual TLS and the policy."""
        own = self.pair(BROKER)
        return {
            "tls.certificate_file": str(own.cert),
            "tls.key_file": str(own.key),
            "tls.client_auth": "required",
            "tls.client_ca_file": str(self.authority.ca),
            "access.policy_file": str(self.policy),
            **more,
        }

    def pair(self, name: str) -> Pair:
        """The certificate of a client, created on first use."""
        if name not in self.pairs:
            self.pairs[name] = self.authority.issue(name)
        return self.pairs[name]

    def write_policy(self, *rules: dict[str, Any]) -> None:
        """The policy of these rules."""
        self.rules = list(rules)
        new = self.policy.with_suffix(".new")
        new.write_text(yaml.safe_dump({"rules": [rule(ROOT, "*", "*"), *self.rules]}))
        new.replace(self.policy)

    def allow(self, *rules: dict[str, Any]) -> None:
        """Apply these rules; returns when the broker uses them."""
        self.write_policy(*rules)
        self.hangup("the policy is in use")

    def hangup(self, said: str) -> None:
        """Send SIGHUP; returns when the broker has logged this text once more."""
        assert self.running is not None
        running = self.running
        before = running.log.count(said)
        os.kill(running.pid, signal.SIGHUP)
        until(lambda: running.log.count(said) > before, 30)

    def credentials(self, name: str | None) -> Any:
        """Credentials of a client; `None` = a client without a certificate."""
        ca = self.authority.ca.read_bytes()
        if name is None:
            return grpc.ssl_channel_credentials(ca)
        pair = self.pair(name)
        return grpc.ssl_channel_credentials(ca, pair.key.read_bytes(), pair.cert.read_bytes())

    def api(self, name: str | None) -> Api:
        """A connection as a client."""
        assert self.running is not None
        return Api(self.running.address, self.credentials(name))

    def tls(self, name: str | None) -> bascule.Tls:
        """The URL of a client for the SDK."""
        if name is None:
            return bascule.Tls(ca=self.authority.ca)
        pair = self.pair(name)
        return bascule.Tls(ca=self.authority.ca, cert=pair.cert, key=pair.key)


@contextmanager
def mutual_broker(directory: Path, **settings: object) -> Generator[Mutual]:
    """A running broker."""
    mutual = Mutual.at(directory)
    with broker(directory=directory / "broker", settings=mutual.settings(**settings)) as running:
        mutual.running = running
        yield mutual
        assert "panicked" not in running.log
