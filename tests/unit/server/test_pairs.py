"""Checks of a certificate and its key, as in `bascule config check` and at a start."""

from pathlib import Path

import pytest
from bascule.errors import BrokerError
from bascule.server.nats_access import check_pair
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.certificates import Authority, locked


def refusal(certificate: Path, key: Path) -> str:
    with pytest.raises(BrokerError) as raised:
        check_pair("tls", certificate, key)
    assert str(raised.value).startswith(f"tls.certificate_file {certificate} cannot be used: ")
    return str(raised.value)


def test_a_key_of_another_certificate_is_named_in_the_error(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.issue("a"), authority.issue("b")
    check_pair("tls", pair.cert, pair.key)
    said = f"the private key in tls.key_file {other.key} does not belong to its first certificate"
    assert refusal(pair.cert, other.key).endswith(said)
    of_another_kind = rsa.generate_private_key(65537, 2048)
    other.key.write_bytes(
        of_another_kind.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    assert refusal(pair.cert, other.key).endswith(said)


def test_files_that_are_not_a_certificate_and_its_key_are_rejected(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("a")
    for certificate, key in ((pair.cert, pair.cert), (pair.key, pair.key), (pair.cert, locked(pair, b"secret"))):
        assert "are not a certificate and its key in PEM form without a password" in refusal(certificate, key)
