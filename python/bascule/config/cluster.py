"""Settings of a broker that is one of several."""

from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bascule.config.listening import is_loopback, parse_address
from bascule.config.value_types import FilePath

if TYPE_CHECKING:
    from bascule.config.sections import Settings

__all__ = ["ClusterSettings", "ClusterTlsSettings", "check_cluster"]

SIZES: Final = (3, 5)
"""Numbers of brokers that a cluster may be founded with: of an even number one more may be lost for nothing."""

EXAMPLE: Final = "10.0.0.1:9494"
SNAPSHOT_ENTRIES: Final = 8192


def _check_address(value: object) -> object:
    try:
        host, port = parse_address(str(value))
    except ValueError:
        host, port = "", 0
    if not host or not port:
        raise ValueError(f'not an address that other brokers can dial: write host:port, e.g. "{EXAMPLE}"')
    return str(value)


def _check_listen(value: object) -> object:
    return value if value is None else _check_address(value)


PeerAddress = Annotated[str, BeforeValidator(_check_address)]


class ClusterTlsSettings(BaseModel):
    """TLS between brokers, on both sides. Files are PEM, read at the start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate_file: FilePath | None = Field(
        default=None, description="the broker's certificate, whose common name is its broker.broker_id"
    )
    key_file: FilePath | None = Field(default=None, description="its private key, without a password")
    ca_file: FilePath | None = Field(default=None, description="authorities of the brokers' certificates")

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        files = (self.certificate_file, self.key_file, self.ca_file)
        if any(files) and not all(files):
            raise ValueError(
                "cluster.tls.certificate_file, cluster.tls.key_file and cluster.tls.ca_file go together: set all or"
                " none"
            )
        return self


class ClusterSettings(BaseModel):
    """Several brokers that agree on the metadata, and replicate the records of streams with several replicas."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    peers: dict[str, PeerAddress] = Field(
        default_factory=dict,
        description="address for other brokers of each broker by its broker.broker_id, this one among them, the same on"
        " all; 3 or 5 of them found a cluster; none = a broker alone",
    )
    peer_listen: Annotated[str | None, BeforeValidator(_check_listen)] = Field(
        default=None, description="address to listen on for other brokers; unset = the broker's own in cluster.peers"
    )
    tls: ClusterTlsSettings = Field(
        default=ClusterTlsSettings(), description="TLS between brokers; needed off loopback"
    )
    snapshot_entries: int = Field(
        default=SNAPSHOT_ENTRIES,
        ge=16,
        le=1_000_000,
        description="entries of the metadata log between two snapshots; entries before the last two are removed, and a"
        " broker that missed them is sent a snapshot",
    )

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        if not self.peers and (self.peer_listen is not None or self.tls.certificate_file is not None):
            raise ValueError("cluster.peer_listen and cluster.tls have no effect without cluster.peers: set that too")
        if not self.peers and self.snapshot_entries != SNAPSHOT_ENTRIES:
            raise ValueError("cluster.snapshot_entries has no effect without cluster.peers: set that too")
        if not self.peers:
            return self
        if len(self.peers) not in SIZES:
            raise ValueError(f"cluster.peers names {len(self.peers)} brokers: name 3 or 5, this one among them")
        if len(set(self.peers.values())) != len(self.peers):
            raise ValueError("cluster.peers gives two brokers one address: give each its own")
        addresses = [*self.peers.values(), *([self.peer_listen] if self.peer_listen else [])]
        far = next((item for item in addresses if not is_loopback(parse_address(item)[0])), None)
        if far is not None and self.tls.certificate_file is None:
            raise ValueError(f"{far} is not a loopback address: set cluster.tls, brokers meet there with TLS only")
        return self


def check_cluster(settings: "Settings") -> None:
    """Refuse what is not safe with several brokers yet.

    Raises:
        ValueError: names the setting and the remedy.
    """
    peers = settings.cluster.peers
    if not peers:
        return
    own = settings.broker.broker_id
    if own not in peers:
        shown = "is unset" if own is None else f'is "{own}"'
        raise ValueError(
            f"broker.broker_id {shown}, and cluster.peers names {', '.join(sorted(peers))}: set one of them"
        )
    if settings.iggy.address is not None and settings.iggy.root_password_file is None:
        raise ValueError(
            "iggy.listen with several brokers needs iggy.root_password_file: give all of them the same password of the"
            " first user"
        )
    wrong = {
        "activity.enabled": ("false", settings.activity.enabled),
        "streams.encryption": ("false", settings.streams.encryption),
        "streams.min_isr": ("1", settings.streams.min_isr > 1),
    }
    for key, (remedy, is_wrong) in wrong.items():
        if is_wrong:
            raise ValueError(
                f"{key} is not available with several brokers yet: set it to {remedy}, or leave cluster.peers out"
            )
