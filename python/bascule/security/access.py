"""The access table in use, and the errors of denied calls (liftbridge §9.3, D5)."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from bascule.errors import AccessError
from bascule.security.audit import Audit
from bascule.security.table import AccessTable

__all__ = ["Access"]

SHOWN: Final = 1024
"""Maximum number of characters of a resource in an error, whose text must fit into headers."""


class _Plane(Protocol):
    def publish_access(self, table: Mapping[str, Any] | None) -> None:
        """Use this table from now on."""
        ...


class Access:
    """Checks calls of the control plane. Without a table everything is allowed."""

    def __init__(self) -> None:
        self._table: AccessTable | None = None
        self._audit = Audit()

    @property
    def is_on(self) -> bool:
        """Whether a table is set."""
        return self._table is not None

    def publish(self, table: AccessTable, plane: _Plane) -> None:
        """Use this table from now on, on both planes, also for open calls. After an error nothing has changed."""
        plane.publish_access(table.document())
        self._table = table

    def check(self, client: str | None, action: str, resource: str, peer: str = "") -> None:
        """Return if `client` may do `action` on `resource`; a denial is logged.

        Args:
            client: name of the client; `None` = it has none.
            action: one of `ACTIONS`.
            resource: stream, group or subject of the action.
            peer: `host:port` of the caller, for the log.

        Raises:
            AccessError: `permission_denied`; `unauthenticated` if the client has no name.
        """
        if self._table is None or self.allows(client, action, resource):
            return
        shown = resource[:SHOWN]
        rule = self._table.denial(client, action, resource) if client is not None else "the client shows no name"
        self._audit.note(client, peer, action, shown, rule)
        if client is None:
            raise AccessError("unauthenticated", "api: Failed to retrieve client ID")
        message = f"The client is not authorized to call {action} on resource {shown}"
        raise AccessError("permission_denied", message, {"action": action, "resource": shown})

    def check_denials(self, client: str, action: str, resource: str, peer: str) -> None:
        """Return unless a rule denies it, for clients whose rights are not in the policy. A denial is logged.

        Args:
            client: name of the client.
            action: one of `ACTIONS`.
            resource: stream, group or subject of the action.
            peer: `host:port` of the caller, for the log.

        Raises:
            AccessError: `permission_denied`.
        """
        if self._table is None or not self._table.denies(client, action, resource):
            return
        shown = resource[:SHOWN]
        self._audit.note(client, peer, action, shown, self._table.denial(client, action, resource))
        message = f"The client is not authorized to call {action} on resource {shown}"
        raise AccessError("permission_denied", message, {"action": action, "resource": shown})

    def allows(self, client: str | None, action: str, resource: str) -> bool:
        """Whether `client` may do `action` on `resource`."""
        return self._table is None or (client is not None and self._table.allows(client, action, resource))

    def names(self, client: str, action: str, resource: str) -> bool:
        """Whether a rule allows it by the full name of the resource."""
        return self._table is not None and self._table.names(client, action, resource)

    def denies(self, client: str, action: str, resource: str) -> bool:
        """Whether a rule denies it explicitly."""
        return self._table is not None and self._table.denies(client, action, resource)
