"""The table in use, and what clients are told that it denies (specification §9.3, deviation D5)."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from bascule.errors import AccessError
from bascule.security.table import AccessTable

__all__ = ["Access"]

SHOWN: Final = 1024
"""Characters of a resource that a refusal shows: its text has to fit into headers."""


class _Plane(Protocol):
    def publish_access(self, table: Mapping[str, Any] | None) -> None:
        """Decide by this table from now on."""
        ...


class Access:
    """Decides for the control plane. Without a table everything is allowed."""

    def __init__(self) -> None:
        self._table: AccessTable | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is a table."""
        return self._table is not None

    def publish(self, table: AccessTable, plane: _Plane) -> None:
        """Use this table from now on, on both planes; open calls see it too. After a failure nothing has changed."""
        plane.publish_access(table.document())
        self._table = table

    def check(self, client: str | None, action: str, resource: str) -> None:
        """Return when `client` may do `action` to `resource`. `None` = it has no name.

        Raises:
            AccessError: `permission_denied`; `unauthenticated` when it has no name.
        """
        if self._table is None:
            return
        if client is None:
            raise AccessError("unauthenticated", "api: Failed to retrieve client ID")
        if not self._table.allows(client, action, resource):
            shown = resource[:SHOWN]
            message = f"The client is not authorized to call {action} on resource {shown}"
            raise AccessError("permission_denied", message, {"action": action, "resource": shown})
