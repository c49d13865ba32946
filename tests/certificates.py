"""Creates authorities and certificates for tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, as files."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates into a directory. `ca`: its own certificate."""

    def __init__(
        self, directory: Path, name: str = "test authority", *, begins: timedelta = -DAY, ends: timedelta = DAY * 30
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key.public_key(), begins, ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(
        self,
        name: str | Sequence[str],
        *,
        file: str = "",
        begins: timedelta = -DAY,
        ends: timedelta = DAY * 30,
        is_rsa: bool = False,
    ) -> Pair:
        """A certificate for 127.0.0.1 and localhost, as server and as client, with this common name (or these)."""
        key = rsa.generate_private_key(65_537, 2_048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        names = [name] if isinstance(name, str) else list(name)
        builder = _builder(_named(*names), self._name, key.public_key(), begins, ends)
        hosts: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        stem = file or "-".join(names) or "nameless"
        pair = Pair(self._directory / f"{stem}.pem", self._directory / f"{stem}.key")
        pair.cert.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def locked(pair: Pair, password: bytes) -> Path:
    """The same key with a password, in a separate file."""
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    file = pair.key.with_suffix(".locked")
    encryption = serialization.BestAvailableEncryption(password)
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    return file


def _named(*names: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    begins: timedelta,
    ends: timedelta,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
