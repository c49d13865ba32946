"""Checks the files that settings name, without a broker: certificates, keys, policies, secrets."""

import base64
import binascii
from pathlib import Path

from bascule.config import Settings, TlsSettings
from bascule.security import read_policy
from bascule.server.nats_access import check_authorities, check_pair, nats_settings, read_setting, unusable

__all__ = ["check_files"]

MASTER_KEY_BYTES = (16, 32)


def check_files(settings: Settings) -> None:
    """Read and check all files, as at a start. Blocks.

    Raises:
        UsageError: `configuration_invalid`, naming the setting or the policy, the file and the remedy.
    """
    _check_tls(settings.tls)
    if settings.access.policy_file is not None:
        read_policy(settings.access.policy_file, settings.access.model_file)
    nats = settings.nats
    nats_settings(nats, list(nats.servers), 0, is_own=nats.standalone)
    if nats.config is not None:
        read_setting("nats.config", nats.config)
    for name, file in settings.encryption.keys.items():
        _check_master_key(f"encryption.keys.{name}", file)


def _check_tls(tls: TlsSettings) -> None:
    if tls.certificate_file is not None and tls.key_file is not None:
        check_pair("tls", tls.certificate_file, tls.key_file)
    if tls.client_ca_file is not None:
        check_authorities("tls.client_ca_file", tls.client_ca_file)


def _check_master_key(setting: str, file: Path) -> None:
    text = read_setting(setting, file)
    try:
        key = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in MASTER_KEY_BYTES:
        raise unusable(setting, file, "it must contain 16 or 32 bytes in base64 and nothing else")
