"""Write docs/reference/configuration.md from the settings; with --check only compare and fail on a difference."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

from bascule.config import SECRETS, Settings
from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/configuration.md"
DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
HEAD = """\
# Settings

This page lists every setting of a broker with its key, type, default and range. `bascule config show --origin` shows
the settings in use and the source of each. Generated from `python/bascule/config/sections.py`.

- **Sources**, highest priority first: flags of `bascule serve`, environment variables, the YAML file of `--config`,
  defaults.
- **File:** a dot and a nested section mean the same.
- **Variables:** `BASCULE_` and the key in capitals, with two underscores for a dot: `BASCULE_NATS__PORT=4222`. Text
  settings take the value literally; other settings are parsed as YAML.
- **Units:** sizes take units (`64MiB`), and so do times (`30s`, `7d`). A time without a unit is in milliseconds.
- **Mistakes:** an unknown key is refused, and the error names the nearest known one. A key that occurs twice is
  refused with its lines. In paths, `~` is the home directory; an empty path is refused.

The `liftbridge` command reads the keys of the original instead: [Liftbridge](liftbridge.md)."""


def main() -> int:
    """Write or compare; returns the exit code."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
        return 0
    if not PAGE.exists() or PAGE.read_text() != text:
        sys.stderr.write(f"{PAGE.relative_to(ROOT)} is not what the settings give: make fix\n")
        return 1
    return 0


def page() -> str:
    """The text of the page."""
    lines = [HEAD, "", "## Top level", "", *_table(Settings, "")]
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            lines += ["", f"## `{name}`", "", *_summary(kind), "", *_table(kind, f"{name}.")]
    return "\n".join([*lines, ""])


def _summary(kind: type[BaseModel]) -> Iterator[str]:
    yield " ".join((kind.__doc__ or "").split())


def _table(model: type[BaseModel], prefix: str) -> Iterator[str]:
    yield "| Key | Type | Default | Range | Meaning |"
    yield "|---|---|---|---|---|"
    yield from _rows(model, prefix)


def _rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if prefix:
                yield from _rows(kind, f"{prefix}{name}.")
            continue
        key = f"{prefix}{name}"
        meaning = (field.description or "") + ("; never shown" if key in SECRETS else "")
        cells = (f"`{key}`", _type(field, key), _default(field, key), _range(field), meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(field: FieldInfo, key: str) -> str:
    parts: list[Any] = [part for part in get_args(field.annotation) or (field.annotation,) if part is not type(None)]
    if all(isinstance(part, str) for part in parts):
        return " or ".join(f"`{part}`" for part in parts)
    name = str(field.annotation)
    kinds = (
        ("time", key.endswith("_ms")),
        ("size", "bytes" in key or key.endswith("max_payload")),
        ("names to files", "dict" in name and "Path" in name),
        ("names to addresses", "dict" in name),
        ("directory", key == "data_dir"),
        ("file", "Path" in name),
        ("list", "tuple" in name),
        ("true or false", parts[0] is bool),
        ("number", parts[0] is int),
    )
    return next((word for word, fits in kinds if fits), "text")


def _default(field: FieldInfo, key: str) -> str:
    value: Any = field.get_default(call_default_factory=True)
    kind = _type(field, key)
    if kind in ("time", "size") and value is not None:
        return _with_unit(value, DURATIONS if kind == "time" else SIZES)
    if value is None or value == {}:
        return "unset"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in cast("tuple[str, ...]", value))
    return str(value).lower() if isinstance(value, (bool, int)) else f"`{value}`"


def _with_unit(value: int, units: tuple[tuple[str, int], ...]) -> str:
    """In the largest unit that needs no fraction; 0 has none."""
    unit, size = next((unit, size) for unit, size in units if value % size == 0)
    return f"{value // size}{unit}" if value else "0"


def _range(field: FieldInfo) -> str:
    low = next((item.ge for item in field.metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in field.metadata if hasattr(item, "le")), None)
    if low is None and high is None:
        return ""
    return f"{low} to {high}" if high is not None else f"at least {low}"


if __name__ == "__main__":
    sys.exit(main())
