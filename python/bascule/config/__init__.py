"""Settings of a broker: one model, from flag, then environment, then file, then default.

Sources, strongest first: keyword arguments (flags), environment variables (`BASCULE_…`, `__` between levels), a YAML
file, defaults. Unknown keys are rejected with the nearest known one. Files use human units ("30s", "64MiB"); code gets
integers with unit suffixes. The resolved document is immutable.
"""

from bascule.config.contradictions import contradictions
from bascule.config.keys import expand, known_keys, leaves, nearest
from bascule.config.listening import is_loopback
from bascule.config.nats_urls import UrlCredentials, url_credentials
from bascule.config.sections import (
    ENVIRONMENT_KEY,
    ENVIRONMENT_KEY_ID,
    SECRETS,
    AccessSettings,
    ActivitySettings,
    BrokerSettings,
    ClusterSettings,
    ClusterTlsSettings,
    CursorSettings,
    EncryptionSettings,
    GroupSettings,
    HttpSettings,
    IggySettings,
    LimitSettings,
    LogSettings,
    MetricsSettings,
    NatsSettings,
    NatsTlsSettings,
    ScrubSettings,
    Settings,
    StreamDefaults,
    TlsSettings,
)
from bascule.config.showing import document, file_document
from bascule.config.sources import Layer, Resolved, combine, load, read_yaml, resolve, scalar

__all__ = [
    "ENVIRONMENT_KEY",
    "ENVIRONMENT_KEY_ID",
    "SECRETS",
    "AccessSettings",
    "ActivitySettings",
    "BrokerSettings",
    "ClusterSettings",
    "ClusterTlsSettings",
    "CursorSettings",
    "EncryptionSettings",
    "GroupSettings",
    "HttpSettings",
    "IggySettings",
    "Layer",
    "LimitSettings",
    "LogSettings",
    "MetricsSettings",
    "NatsSettings",
    "NatsTlsSettings",
    "Resolved",
    "ScrubSettings",
    "Settings",
    "StreamDefaults",
    "TlsSettings",
    "UrlCredentials",
    "combine",
    "contradictions",
    "document",
    "expand",
    "file_document",
    "is_loopback",
    "known_keys",
    "leaves",
    "load",
    "nearest",
    "read_yaml",
    "resolve",
    "scalar",
    "url_credentials",
]
