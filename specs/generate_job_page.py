"""Write docs/reference/job-file.md and job-file.schema.json from the models; with --check only compare."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from bascule.pipeline import job_schema
from bascule.pipeline.model.spark_options import KIND, RANGE

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs/reference/job-file.md"
SCHEMA: Final = ROOT / "docs/reference/job-file.schema.json"
HEAD: Final = """\
# Keys of a job file

This page lists every key of the file that `bascule pipeline run` takes. [Run a job](../how-to/pipeline.md) has
examples. Generated from `python/bascule/pipeline/model`; [job-file.schema.json](job-file.schema.json) is the same for
editors, and `bascule pipeline schema` prints it.

- **Mistakes:** an unknown key is refused, and the error names the nearest known one, or the key of `source` for an
  option of Spark's Kafka connector. A key that occurs twice is refused too.
- **Paths** of `path`, `checkpoint` and `credentials`, and of files with schemas, passwords and tokens, start from the
  directory of the file. Files that are named inside `source.address`, `sink.address`, `source.archive…` and
  `spark.config` start from the working directory, or are names of `spark.files`.
- **Units:** times take units (`30s`), and so do sizes (`64MiB`). A time without a unit is in milliseconds.
- **Names** are the same in Python: `bascule.pipeline.run` takes a mapping with these keys."""
TOP: Final = "Top level"


def main() -> int:
    """Write or compare; returns the exit code."""
    schema = job_schema()
    wanted = {PAGE: page(schema), SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"}
    if "--check" not in sys.argv:
        for path, text in wanted.items():
            path.write_text(text)
        return 0
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not what the models give: make fix\n")
            return 1
    return 0


def page(schema: Mapping[str, Any]) -> str:
    """The text of the page."""
    lines = [HEAD, "", f"## {TOP}", "", schema["description"], "", *_table(schema)]
    for name in _sections(schema):
        section = schema["$defs"][name]
        lines += ["", f"## {name}", "", " ".join(section["description"].split()), "", *_table(section)]
    return "\n".join([*lines, ""])


def _sections(schema: Mapping[str, Any]) -> list[str]:
    """Names of all sections, each after the one that has it."""
    found: list[str] = []

    def visit(part: Any) -> None:
        for name in _references(part):
            if name not in found:
                found.append(name)
                visit(schema["$defs"][name])

    visit(schema["properties"])
    return found


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for each in cast("list[Any]", part):
            yield from _references(each)
    elif isinstance(part, Mapping):
        for key, value in cast("Mapping[str, Any]", part).items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            elif key != "mapping":
                yield from _references(value)


def _table(section: Mapping[str, Any]) -> Iterator[str]:
    yield "| Key | Type | Default | Meaning |"
    yield "|---|---|---|---|"
    required = section.get("required", [])
    for name, field in section["properties"].items():
        default = "required" if name in required else _default(field)
        cells = (f"`{name}`", _type(field), default, field.get("description", ""))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None or value in ({}, []) or isinstance(value, (dict, list)):
        return ""
    return f"`{value}`"


def _type(field: Mapping[str, Any]) -> str:
    if kind := field.get(KIND):
        return " or ".join(f"`{value}`" for value in field[RANGE].split(", ")) if kind == "one of" else kind
    return " or ".join(dict.fromkeys(_kinds(field)))


def _kinds(field: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        yield f"[{name}](#{name.lower()})"
    elif "const" in field:
        yield f"`{field['const']}`"
    elif "enum" in field:
        yield from (f"`{value}`" for value in field["enum"])
    elif options := field.get("anyOf") or field.get("oneOf"):
        for option in options:
            if option.get("type") != "null":
                yield from _kinds(option)
    elif field.get("type") == "array":
        yield f"list of {' or '.join(_kinds(field.get('items', {})))}".removesuffix(" of ")
    elif field.get("type") == "object":
        yield "names with text"
    else:
        words = {"string": "text", "integer": "number", "boolean": "true or false"}
        yield words.get(str(field.get("type")), "value")


if __name__ == "__main__":
    sys.exit(main())
