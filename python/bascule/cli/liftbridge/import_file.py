"""Converts a Liftbridge configuration file, with comments on the origin of each setting and on differences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import yaml

from bascule.cli.liftbridge.config import Translated, translate
from bascule.cli.liftbridge.key_names import in_liftbridge_keys
from bascule.config import SECRETS, contradictions

__all__ = ["Imported", "import_file"]

HEAD: Final = """\
# Settings of a Bascule broker, from the Liftbridge configuration {file}.
# Start it with: bascule serve --config FILE
# What differs: an acknowledgement means that the record is on disk (streams.durability: memory for the page cache);
# LIFTBRIDGE_ environment variables are read by the `liftbridge` command only, `bascule serve` reads BASCULE_ ones."""
BETTER: Final = "a secret: better in a separate file, named by {key}_file"


class Imported(NamedTuple):
    """A converted Liftbridge configuration."""

    text: str
    """The configuration file of Bascule."""
    warnings: Sequence[str]
    """A sentence for each contradiction in the Liftbridge configuration, with its keys and which one wins."""


def import_file(file: Path) -> Imported:
    """Convert the Liftbridge configuration `file`: the settings that are not defaults, each with its origin, then
    contradictions and notes.

    Raises:
        UsageError: code `configuration_invalid`: an unknown key, a wrong value, or an unsupported feature.
    """
    translated = _unnamed(translate(file, {}, {}), str(file))
    contradictory = [*contradictions(translated.settings), *translated.overruled]
    lines = [HEAD.format(file=file)]
    nested = _nested(translated.settings.model_dump(mode="json"), translated.origins)
    lines += _lines(nested, translated)
    if contradictory:
        lines += ["", "# Contradictory:", *(f"# - {sentence}" for sentence in contradictory)]
    if translated.notes:
        lines += ["", "# Accepted, and without effect here:", *(f"# - {note}" for note in translated.notes)]
    return Imported("\n".join(lines) + "\n", [in_liftbridge_keys(sentence) for sentence in contradictory])


def _unnamed(translated: Translated, file: str) -> Translated:
    """A copy whose texts do not repeat the name of the file."""

    def plain(text: str) -> str:
        return text.replace(f" ({file})", "").removesuffix(f", {file}")

    return replace(
        translated,
        origins={key: plain(origin) for key, origin in translated.origins.items()},
        notes=[plain(note) for note in translated.notes],
        overruled=[plain(sentence) for sentence in translated.overruled],
    )


def _nested(values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The leaves with these dotted keys, nested, in the order of `values`."""
    wanted = set(keys)

    def pick(level: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        picked: dict[str, Any] = {}
        for name, value in level.items():
            key = f"{prefix}{name}"
            if key in wanted:
                picked[name] = value
            elif isinstance(value, Mapping) and (below := pick(cast("Mapping[str, Any]", value), f"{key}.")):
                picked[name] = below
        return picked

    return pick(values, "")


def _lines(nested: Mapping[str, Any], translated: Translated, prefix: str = "") -> Iterable[str]:
    indent = "  " * prefix.count(".")
    for name, below in nested.items():
        key, value = f"{prefix}{name}", below
        if key not in translated.origins:
            yield f"{indent}{name}:"
            yield from _lines(cast("Mapping[str, Any]", value), translated, f"{key}.")
            continue
        if key in SECRETS:
            section, leaf = key.rsplit(".", 1)
            value = getattr(translated.settings, section).model_dump()[leaf].get_secret_value()
            yield f"{indent}# {BETTER.format(key=key)}"
        shown = yaml.safe_dump({name: value}, default_flow_style=True, width=10_000).strip()
        yield f"{indent}{shown[1:-1]}  # {translated.origins[key]}"
