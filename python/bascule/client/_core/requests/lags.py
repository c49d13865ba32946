"""Requests about lags of `bascule.admin.v1`. No I/O."""

from bascule._admin_pb import message

__all__ = ["fetch_lags", "release_hold"]


def fetch_lags(reader: str, stream: str) -> bytes:
    """A FetchLagsRequest; empty = all."""
    return message("FetchLagsRequest")(reader=reader, stream=stream).SerializeToString()


def release_hold(query: str, namespace: str, stream: str, *, dry_run: bool) -> bytes:
    """A ReleaseHoldRequest."""
    request = message("ReleaseHoldRequest")(query=query, namespace=namespace, stream=stream, dry_run=dry_run)
    return request.SerializeToString()
