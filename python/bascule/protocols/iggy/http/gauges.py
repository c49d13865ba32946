"""Metrics of the HTTP interface, as Iggy's server names them. The broker's own are at `http.listen`."""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["text"]

_GAUGES: Final = {
    "streams": "streams_count",
    "topics": "topics_count",
    "partitions": "partitions_count",
    "segments": "segments_count",
    "messages": "messages_count",
    "clients": "clients_count",
}


def text(stats: Mapping[str, Any], users: int, requests: int) -> str:
    """OpenMetrics. `stats`: as GET /stats shows them."""
    values = {name: stats[key] for name, key in _GAUGES.items()} | {"users": users}
    lines = ["# TYPE http_requests counter", f"http_requests_total {requests}"]
    for name, value in values.items():
        lines += [f"# TYPE {name} gauge", f"{name} {value}"]
    return "\n".join([*lines, "# EOF", ""])
