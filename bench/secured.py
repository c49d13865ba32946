"""The cost of TLS and authorization: the same load in plain text, over mutual TLS, and with a policy."""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tests.certificates import Authority  # noqa: E402 (the folder of the tests is not an installed package)

CLIENT = "bench"
RULES = 1000
"""Number of rules and clients of the policy: a table of realistic size."""


class Secured:
    """Certificates and a policy in a folder."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.own = self.authority.issue("broker")
        self.client = self.authority.issue(CLIENT)
        others = [
            {"clients": [f"client-{number}"], "allow": ["Publish", "Subscribe"], "resources": [f"stream-{number}"]}
            for number in range(RULES)
        ]
        policy = {"rules": [*others, {"clients": [CLIENT], "allow": "*", "resources": "*"}]}
        self.policy = folder / "policy.yaml"
        self.policy.write_text(json.dumps(policy))

    def settings(self, *, policy: bool) -> dict[str, Any]:
        """Settings of the broker."""
        tls = {
            "certificate_file": str(self.own.cert),
            "key_file": str(self.own.key),
            "client_auth": "required",
            "client_ca_file": str(self.authority.ca),
        }
        return {"tls": tls, **({"access": {"policy_file": str(self.policy)}} if policy else {})}

    def load(self) -> dict[str, str]:
        """Arguments of the driver."""
        return {"tls_ca": str(self.authority.ca), "tls_cert": str(self.client.cert), "tls_key": str(self.client.key)}

    def url(self, address: str) -> str:
        """URL for `bascule.connect`."""
        return f"bascules://{address}?ca={self.authority.ca}&cert={self.client.cert}&key={self.client.key}"
