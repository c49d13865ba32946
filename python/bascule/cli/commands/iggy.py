"""`bascule iggy users` and `bascule iggy tokens`: the accounts of Iggy's clients."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

import typer

from bascule._passwords import generated_password
from bascule._text import counted
from bascule._units import parse_duration_ms
from bascule.cli.command_group import Commands
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Yes, as_path
from bascule.cli.prompt import ask
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import time_text
from bascule.client import IggyGrant, IggyToken, IggyUser
from bascule.errors import UsageError

__all__ = ["app"]

app: Final = Commands(help="Manage the users of Iggy's clients and their tokens.")
users: Final = Commands(help="Show, create and delete users of Iggy's clients; set passwords, status and rights.")
tokens: Final = Commands(help="Show, create and delete tokens that log in as a user.")
app.add_typer(users, name="users")
app.add_typer(tokens, name="tokens")


class Status(StrEnum):
    """Whether a user may log in."""

    ACTIVE = "active"
    INACTIVE = "inactive"


User = Annotated[str, typer.Argument(help="Name of the user.")]
Token = Annotated[str, typer.Argument(help="Name of the token, 3 to 30 bytes.")]
Grants = Annotated[
    list[str] | None,
    typer.Option(
        "--grant",
        help="Rights as [STREAM[/TOPIC]:]RIGHT,…, such as read_streams or orders/paid:send_messages; repeatable.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        parser=as_path,
        metavar="PATH",
        help="File with the password, 3 to 100 bytes. [default: generate one and show it]",
    ),
]


@dataclass(frozen=True, slots=True)
class UserRow:
    """One user of `iggy users list`."""

    user: str
    number: int
    """As Iggy's clients see it; 1 = the first user, who may do everything."""
    state: str
    """`active`, or `inactive` = may not log in."""
    grants: tuple[str, ...]
    """Rights everywhere, on a stream, or on a topic."""
    tokens: int

    @classmethod
    def of(cls, user: IggyUser) -> Self:
        """The row of a user."""
        state = "active" if user.is_active else "inactive"
        return cls(user.name, user.number, state, tuple(map(_shown, user.grants)), len(user.tokens))


@dataclass(frozen=True, slots=True)
class UserCreation:
    """A user that was created or (with `--dry-run`) would be."""

    user: str
    number: int | None
    grants: tuple[str, ...]
    password: str | None
    """Generated, and shown only once; `None` = it is in the file."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class UserDeletion:
    """A user that was deleted or (with `--dry-run`) would be."""

    user: str
    tokens: int
    """Tokens that go with it."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class PasswordChange:
    """A password that was set or (with `--dry-run`) would be."""

    user: str
    password: str | None
    """Generated, and shown only once; `None` = it is in the file."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A status that was set or (with `--dry-run`) would be."""

    user: str
    state: str
    """`active`, or `inactive` = may not log in."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class GrantsChange:
    """Rights that were set or (with `--dry-run`) would be."""

    user: str
    grants: tuple[str, ...]
    """All that the user has."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token of `iggy tokens list`."""

    user: str
    token: str
    expires: str | None
    """`None` = never."""

    @classmethod
    def of(cls, user: str, token: IggyToken) -> Self:
        """The row of a token."""
        return cls(user, token.name, time_text(token.expires_ns) if token.expires_ns else None)


@dataclass(frozen=True, slots=True)
class TokenCreation:
    """A token that was created or (with `--dry-run`) would be."""

    user: str
    token: str
    text: str | None
    """What logs in; shown only once."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class TokenDeletion:
    """A token that was deleted or (with `--dry-run`) would be."""

    user: str
    token: str
    dry_run: bool


@users.command("list")
@connected()
def list_users(connection: Connection, output: Output = OutputFormat.TABLE) -> None:
    """List the users of Iggy's clients with their rights.

    Examples:
        bascule iggy users list

        bascule iggy users list --output json
    """
    with connection.open() as client:
        found = client.iggy_users()
    render([UserRow.of(user) for user in found], output)


@users.command("create")
@connected()
def create_user(
    connection: Connection,
    user: Annotated[str, typer.Argument(help="Name of the user, 3 to 50 bytes.")],
    *,
    grant: Grants = None,
    password_file: PasswordFile = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a user of Iggy's clients, without rights unless `--grant` gives some.

    Examples:
        bascule iggy users create billing --grant read_streams,poll_messages

        bascule iggy users create worker --grant default:read_topics --password-file password.txt --dry-run
    """
    grants = [_grant(text) for text in grant or ()]
    password, generated = _password(password_file)
    with connection.open() as client:
        number = client.create_iggy_user(user, password, grants, dry_run=dry_run)
    shown = tuple(map(_shown, grants))
    render(UserCreation(user, number or None, shown, None if dry_run else generated, dry_run), output)


@users.command("delete")
@connected()
def delete_user(
    connection: Connection,
    user: User,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete a user of Iggy's clients. Its sessions end. Asks first, unless `--yes`.

    Examples:
        bascule iggy users delete billing --dry-run

        bascule iggy users delete billing --yes
    """
    with connection.open() as client:
        client.delete_iggy_user(user, dry_run=True)
        count = len(client.iggy_user(user).tokens)
        if not dry_run:
            question = f"Delete user {user} and {counted(count, 'token')}?"
            ask(question, name=user, connection=connection, yes=yes)
            client.delete_iggy_user(user)
    render(UserDeletion(user, count, dry_run), output)


@users.command("password")
@connected()
def set_password(
    connection: Connection,
    user: User,
    *,
    password_file: PasswordFile = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Give a user of Iggy's clients another password. Sessions and tokens stay.

    Examples:
        bascule iggy users password billing --dry-run

        bascule iggy users password billing --password-file password.txt
    """
    password, generated = _password(password_file)
    with connection.open() as client:
        client.set_iggy_password(user, password, dry_run=dry_run)
    render(PasswordChange(user, None if dry_run else generated, dry_run), output)


@users.command("status")
@connected()
def set_status(
    connection: Connection,
    user: User,
    status: Annotated[Status, typer.Argument(help="Whether the user may log in.")],
    *,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Allow or forbid a user of Iggy's clients to log in. The sessions of one who may not end.

    Examples:
        bascule iggy users status billing inactive

        bascule iggy users status billing active --dry-run
    """
    with connection.open() as client:
        client.set_iggy_status(user, status is Status.ACTIVE, dry_run=dry_run)
    render(StatusChange(user, status.value, dry_run), output)


@users.command("permissions")
@connected()
def set_permissions(
    connection: Connection,
    user: User,
    *,
    grant: Grants = None,
    none: Annotated[bool, typer.Option("--none", help="Take all rights away.")] = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Replace all rights of a user of Iggy's clients. Open sessions have them at their next command.

    Examples:
        bascule iggy users permissions billing --grant read_streams,poll_messages

        bascule iggy users permissions billing --none --dry-run
    """
    if none == bool(grant):
        raise UsageError("invalid_argument", "name the rights with --grant, or take all away with --none")
    grants = [_grant(text) for text in grant or ()]
    with connection.open() as client:
        client.set_iggy_grants(user, grants, dry_run=dry_run)
    render(GrantsChange(user, tuple(map(_shown, grants)), dry_run), output)


@tokens.command("list")
@connected()
def list_tokens(connection: Connection, user: User, output: Output = OutputFormat.TABLE) -> None:
    """List the tokens of a user that have not expired.

    Examples:
        bascule iggy tokens list billing

        bascule iggy tokens list billing --output json
    """
    with connection.open() as client:
        found = client.iggy_user(user)
    render([TokenRow.of(user, token) for token in found.tokens], output)


@tokens.command("create")
@connected()
def create_token(
    connection: Connection,
    user: User,
    token: Token,
    *,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", help="Time until it expires, such as 12h or 30d. [default: never]")
    ] = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a token that logs in as a user, and show it once.

    Examples:
        bascule iggy tokens create billing nightly --expires-in 30d

        bascule iggy tokens create billing reports --dry-run
    """
    expires_in_ms = _duration_ms(expires_in) if expires_in is not None else 0
    with connection.open() as client:
        text = client.create_iggy_token(user, token, expires_in_ms=expires_in_ms, dry_run=dry_run)
    render(TokenCreation(user, token, text or None, dry_run), output)


@tokens.command("delete")
@connected()
def delete_token(
    connection: Connection,
    user: User,
    token: Token,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete a token of a user. Sessions that it began stay. Asks first, unless `--yes`.

    Examples:
        bascule iggy tokens delete billing nightly --dry-run

        bascule iggy tokens delete billing nightly --yes
    """
    with connection.open() as client:
        client.delete_iggy_token(user, token, dry_run=True)
        if not dry_run:
            ask(f"Delete token {token} of user {user}?", name=token, connection=connection, yes=yes)
            client.delete_iggy_token(user, token)
    render(TokenDeletion(user, token, dry_run), output)


def _grant(text: str) -> IggyGrant:
    """A grant out of `[STREAM[/TOPIC]:]RIGHT,…`. Names of streams may have colons, rights have none."""
    place, colon, rights = text.rpartition(":")
    stream, slash, topic = place.partition("/")
    names = tuple(rights.split(","))
    if not all(names) or (colon and not stream) or (slash and not topic):
        raise UsageError("invalid_argument", f"--grant {text!r}: it must be [STREAM[/TOPIC]:]RIGHT,…")
    return IggyGrant(names, stream, topic)


def _shown(grant: IggyGrant) -> str:
    place = "/".join(part for part in (grant.stream, grant.topic) if part)
    rights = ",".join(grant.rights)
    return f"{place}:{rights}" if place else rights


def _password(file: Path | None) -> tuple[str, str | None]:
    """The password in the file; or a generated one, twice."""
    if file is None:
        password = generated_password()
        return password, password
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n"), None
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError("invalid_argument", f"--password-file {file} cannot be read: {failure}") from failure


def _duration_ms(text: str) -> int:
    try:
        found = parse_duration_ms(text)
    except ValueError as failure:
        raise UsageError("invalid_argument", f"--expires-in {text!r}: {failure}") from None
    if not isinstance(found, int) or found <= 0:
        raise UsageError("invalid_argument", f"--expires-in {text!r}: it must be a time above 0, such as 12h or 30d")
    return found
