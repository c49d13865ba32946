"""Declares the options of a Spark format: name, type, range, default, meaning, version.

The source, the sink and the archive each declare one `OptionSet`. It refuses options that it does not know, and
`docs/reference/spark-options.md` is generated from it (`make fix`). Spark passes options as text, with names in lower
case. Imports nothing heavy, because Spark imports this module in each planner.

>>> LONG_POLL = number("longPollMs", "how long an idle micro-batch waits at the broker", default="500", most=60_000)
>>> SOURCE = OptionSet("source", "Reads streams.", (LONG_POLL,))
>>> SOURCE.read({"longpollms": "100"}).value(LONG_POLL)
100
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack

from bascule._units import parse_bytes, parse_duration_ms
from bascule.errors import UsageError
from bascule.spark.spelling import named
from bascule.spark.usage import nearest, usage

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Kind = Literal["batch", "stream"]
Only = Literal["", "batch", "stream"]

FIRST_VERSION: Final = "0.1"
MOST: Final = 2**62
"""Maximum of a number without another one."""
PEM: Final = "-----BEGIN"
"""With this begins a certificate or key as text."""
CATALOG_PREFIX: Final = "option."
CATALOG_PROPERTIES: Final = frozenset(
    {"path", "provider", "location", "owner", "comment", "collation", "external", "is_managed_location", "table_type"}
)
"""Options that Spark's catalog adds to those of a table, in lower case; ignored."""


@dataclass(frozen=True, kw_only=True)
class Option(Generic[T_co]):
    """One option.

    Attributes:
        name: as users write it; its case is ignored.
        kind: the type, as the options page prints it.
        meaning: what the option does, in one line without a full stop.
        parse: converts the text, which is stripped and never empty. Raises ValueError with what the value must be, as
            `it must be a number at least 1`, or a `UsageError` with the whole sentence.
        default: the default as a user would write it; None = the option is not set unless it is given.
        unset: what applies if it is neither given nor has a default, as the options page prints it.
        range: allowed values, as the options page prints them; empty = every value of the type.
        only: `batch` or `stream` if the option applies to that kind of query alone.
        since: the version that introduced it.
    """

    name: str
    kind: str
    meaning: str
    parse: Callable[[str], T_co]
    default: str | None = None
    unset: str = "unset"
    range: str = ""
    only: Only = ""
    since: str = FIRST_VERSION

    def read(self, text: str) -> T_co:
        """The value of `text`.

        Raises:
            UsageError: names the option, the value, and what it must be.
        """
        stripped = text.strip()
        if not stripped:
            raise usage(f"{named(self.name)} is empty", option=self.name)
        try:
            return self.parse(stripped)
        except UsageError:
            raise
        except ValueError as cause:
            raise usage(f"{named(self.name)} is {text!r}: {cause}", option=self.name) from None


class Given:
    """Options that were given and are all known. Values are checked when they are read."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def has(self, option: Option[Any]) -> bool:
        """Whether the option was given; its default does not count."""
        return option.name.lower() in self._values

    def get(self, option: Option[T]) -> T | None:
        """The value given, else the default, else None.

        Raises:
            UsageError: the value is outside its range.
        """
        text = self._values.get(option.name.lower(), option.default)
        return None if text is None else option.read(text)

    def value(self, option: Option[T]) -> T:
        """The value given, else the default.

        Raises:
            UsageError: the value is outside its range, or there is none and no default.
        """
        found = self.get(option)
        if found is None:
            raise usage(f"{named(option.name)} is missing: {option.meaning}", option=option.name)
        return found


def _no_advice(_name: str) -> str | None:
    return None


@dataclass(frozen=True)
class OptionSet:
    """All options of one format.

    Attributes:
        name: what they are the options of, as `source`; a heading of the options page.
        summary: Markdown under that heading.
        options: in the order of the options page.
        ignored: names, in lower case, that Spark adds and that have no meaning here.
        advice: for a name, in lower case, that is not an option: what to use instead, as
            `it is one of Kafka's connector, use stream`; None = unknown.
    """

    name: str
    summary: str
    options: tuple[Option[Any], ...]
    ignored: frozenset[str] = frozenset()
    advice: Callable[[str], str | None] = _no_advice

    def __post_init__(self) -> None:
        names = [option.name.lower() for option in self.options]
        assert len(set(names)) == len(names), f"options of {self.name} repeat a name"

    @property
    def names(self) -> tuple[str, ...]:
        """The names as users write them."""
        return tuple(option.name for option in self.options)

    def read(self, given: Mapping[str, str]) -> Given:
        """Check the names of the options given.

        Args:
            given: names in any case; what Spark's catalog adds is left out.

        Raises:
            UsageError: an option is unknown; the sentence names what to use instead, or the nearest one. Or an option
                has the text of a PEM file; the sentence does not repeat it.
        """
        spelled = {name.lower(): name for name in self.names}
        for name in (spelled.get(name.lower(), name) for name, text in given.items() if PEM in text):
            raise usage(
                f"{named(name)} has the text of a PEM file, and options are written to checkpoints and event logs: "
                "give the file to Spark (spark.files) and name it in address, as bascules://host:port?ca=ca.pem",
                option=name,
            )
        values = {name: text for name, text in without_catalog(given).items() if name not in self.ignored}
        for name in (name for name in given if name.lower() in values and name.lower() not in spelled):
            raise self.unknown(name)
        return Given(values)

    def unknown(self, name: str, also: Iterable[str] = ()) -> UsageError:
        """The error for a name that is not among these options.

        Args:
            name: as the user wrote it; Spark passes names on in lower case.
            also: other names that the call takes, near which `name` may be.
        """
        advice = self.advice(name.lower())
        if advice is not None:
            return usage(f"there is no option {name!r}: {advice}", option=name)
        from bascule.spark.option_homes import elsewhere  # noqa: PLC0415 - imports every format

        spelled, homes = elsewhere(name)
        if homes:
            return usage(f"there is no option {spelled!r} here: it is an option of {', '.join(homes)}", option=spelled)
        hint = nearest(name, (*self.names, *also)) or f"; there are {', '.join(dict.fromkeys((*self.names, *also)))}"
        return usage(f"there is no option {name!r}{hint}", option=name)

    def not_for(self, kind: Kind) -> "list[Option[Any]]":
        """The options that apply to the other kind of query alone."""
        return [option for option in self.options if option.only not in ("", kind)]

    def check_kind(self, given: Given, kind: Kind, what: Literal["read", "write"]) -> None:
        """Refuse options that apply to the other kind of query alone.

        Args:
            given: as `read` returned it.
            kind: of this query.
            what: it does, for the error.

        Raises:
            UsageError: such an option is given; the sentence names it.
        """
        for option in self.not_for(kind):
            if given.has(option):
                kinds = {"batch": "batch", "stream": "streaming"}
                message = f"{named(option.name)} has no meaning for a {kinds[kind]} {what}: remove it"
                raise usage(message, option=option.name)


def without_catalog(given: Mapping[str, str]) -> dict[str, str]:
    """Options by lower-case name, without those of Spark's catalog: repeated options, and table properties."""
    lower = {name.lower(): value for name, value in given.items()}
    return {
        name: value
        for name, value in lower.items()
        if name not in CATALOG_PROPERTIES and name.removeprefix(CATALOG_PREFIX) not in lower.keys() - {name}
    }


class More(TypedDict, total=False):
    """Attributes of `Option` that the functions below take by name."""

    default: str
    unset: str
    only: Only
    since: str


def text(name: str, meaning: str, **more: Unpack[More]) -> Option[str]:
    """Any text."""
    return Option(name=name, meaning=meaning, kind="text", parse=str, **more)


def parsed(name: str, meaning: str, kind: str, parse: Callable[[str], T], **more: Unpack[More]) -> Option[T]:
    """Text in a form of its own: `kind` for the options page, and `parse` as in `Option`."""
    return Option(name=name, meaning=meaning, kind=kind, parse=parse, **more)


def number(name: str, meaning: str, *, least: int = 0, most: int = MOST, **more: Unpack[More]) -> Option[int]:
    """A whole number in `[least, most]`."""
    return _bounded(_NUMBER, (least, most), name=name, meaning=meaning, **more)


def size(name: str, meaning: str, *, least: int = 0, most: int = MOST, **more: Unpack[More]) -> Option[int]:
    """A size in bytes in `[least, most]`, with a unit (`64MiB`) or without."""
    return _bounded(_SIZE, (least, most), name=name, meaning=meaning, **more)


def duration(name: str, meaning: str, *, least: int = 0, most: int = MOST, **more: Unpack[More]) -> Option[int]:
    """A duration in ms in `[least, most]`, with a unit (`30s`) or without."""
    return _bounded(_TIME, (least, most), name=name, meaning=meaning, **more)


def choice(name: str, meaning: str, choices: tuple[str, ...], **more: Unpack[More]) -> Option[str]:
    """One of `choices`, which are in lower case; the case of the value is ignored."""

    def parse(given: str) -> str:
        if given.lower() not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}{nearest(given, choices)}")
        return given.lower()

    return Option(name=name, meaning=meaning, kind="one of", range=", ".join(choices), parse=parse, **more)


def flag(name: str, meaning: str, **more: Unpack[More]) -> Option[bool]:
    """`true` or `false`."""
    words = {"true": True, "false": False}

    def parse(given: str) -> bool:
        if given.lower() not in words:
            raise ValueError("it must be true or false")
        return words[given.lower()]

    return Option(name=name, meaning=meaning, kind="true or false", parse=parse, **more)


@dataclass(frozen=True)
class _Measure:
    kind: str
    what: str
    example: str
    convert: Callable[[str], object]


_NUMBER: Final = _Measure("number", "a number", "", int)
_SIZE: Final = _Measure("size", "a size in bytes", ", for example 64MiB", parse_bytes)
_TIME: Final = _Measure("time", "a time in ms", ", for example 30s", parse_duration_ms)


def _bounded(
    measure: _Measure, bounds: tuple[int, int], *, name: str, meaning: str, **more: Unpack[More]
) -> Option[int]:
    least, most = bounds
    bound = f"at least {least}" if most == MOST else f"{least} to {most}"
    must = f"it must be {measure.what} {bound if most == MOST else f'from {bound}'}{measure.example}"

    def parse(given: str) -> int:
        try:
            value = measure.convert(given)
        except ValueError:
            value = None
        if not isinstance(value, int) or not least <= value <= most:
            raise ValueError(must)
        return value

    return Option(name=name, meaning=meaning, kind=measure.kind, range=bound, parse=parse, **more)
