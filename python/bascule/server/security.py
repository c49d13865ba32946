"""Certificates and policy of a broker: read at the start, and again on SIGHUP, each independently.

A file that cannot be used makes the start fail. On SIGHUP the previous version stays in use, and the reason is logged.
"""

from datetime import UTC, datetime
from typing import Any

from bascule.config import Settings, TlsSettings, is_loopback
from bascule.engine import Engine
from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.security import Access, read_policy

__all__ = ["Security"]


class Security:
    """TLS and access policy of a broker."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        """Does not read files yet."""
        self._settings = settings
        self._engine = engine
        self.access = Access()

    def load(self) -> None:
        """Read all files. Blocks.

        Raises:
            UsageError: `configuration_invalid`, naming the file, the error and the remedy.
        """
        if self._settings.tls.certificate_file is not None:
            self._load_tls()
        elif not is_loopback(self._settings.broker.host):
            message = "connections are in plain text, and other machines can reach the port: set tls.certificate_file"
            emit(30, "tls", message, host=self._settings.broker.host)
        if self._settings.access.policy_file is not None:
            self._load_policy()

    def reload(self) -> bool:
        """Read all files again. Returns whether all could be used. Blocks."""
        parts = {
            "certificates": self._load_tls if self._settings.tls.certificate_file is not None else None,
            "policy": self._load_policy if self._settings.access.policy_file is not None else None,
        }
        wanted = {name: load for name, load in parts.items() if load is not None}
        if not wanted:
            emit(20, "server", "SIGHUP: nothing to reload, there are neither certificates nor a policy")
        fine = True
        for name, load in wanted.items():
            try:
                load()
            except BrokerError as failure:
                fine = False
                emit(
                    40, "server", f"SIGHUP: the {name} could not be used, the previous version stays in use: {failure}"
                )
        return fine

    def _load_tls(self) -> None:
        loaded = self._engine.load_tls(_tls_document(self._settings.tls))
        expires = datetime.fromtimestamp(loaded["expires_s"], UTC).isoformat()
        emit(20, "tls", "the certificate is in use", subject=loaded["subject"], expires=expires)
        for note in loaded["notes"]:
            emit(30, "tls", note)

    def _load_policy(self) -> None:
        settings = self._settings.access
        if settings.policy_file is None:
            return
        table = read_policy(settings.policy_file, settings.model_file)
        self.access.publish(table, self._engine)
        emit(20, "access", "the policy is in use", file=str(settings.policy_file), clients=len(table.clients))


def _tls_document(tls: TlsSettings) -> dict[str, Any]:
    """The document of `Engine.load_tls` (specs/formats/seam.md)."""
    return {
        "certificate": str(tls.certificate_file),
        "key": str(tls.key_file),
        "allow_tls12": tls.min_version == "1.2",
        "require_client": tls.client_auth == "required",
        "client_ca": None if tls.client_ca_file is None else str(tls.client_ca_file),
    }
