"""Vacuum of a Delta table deletes data files of this table, and nothing else that is in its folder."""

import os
from pathlib import Path

import bascule.lake
import pyarrow as pa
from bascule.lake.delta import is_data_file
from deltalake import DeltaTable, write_deltalake

UUID = "61a54b04-90ff-4d4b-a03d-6e64cbbe3bda"
FAILED = f"part-{'0' * 32}-3-00001.parquet"
"""As a task names a file; no commit has it."""


def fill(folder: Path, value: int) -> list[str]:
    """Replace a table's rows; the names of its files now."""
    rows = pa.table({"subject": ["a/b", "c d"], "value": [value, value]})
    write_deltalake(str(folder), rows, partition_by=["subject"], mode="overwrite")
    return sorted(str(Path(uri).relative_to(folder)) for uri in DeltaTable(str(folder)).file_uris())


def make_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))


def test_only_unused_data_files_of_the_table_are_deleted(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    fill(table, 1)
    live = fill(table, 2)
    other = table / "below"
    others = fill(other, 1)
    foreign = [
        table / name for name in ("notes.txt", "model.parquet", "below/part-1.parquet", f"subject=x/{UUID}.parquet")
    ]
    unused = [table / "subject=a%2Fb" / FAILED, table / "subject=a%2Fb" / f"part-00000-{UUID}-c000.snappy.parquet"]
    for path in [*foreign, *unused]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    young = table / "subject=a%2Fb" / FAILED.replace("00001", "00002")
    make_old(table)
    young.write_bytes(b"x")
    options = bascule.lake.ArchiveOptions(str(table))

    planned = bascule.lake.vacuum(options, retention_hours=1, dry_run=True)
    assert all(path.exists() for path in unused)
    assert bascule.lake.vacuum(options, retention_hours=1) == planned
    assert planned == sorted(str(path.relative_to(table)) for path in unused)
    assert all(path.exists() for path in [*foreign, young])
    assert all((table / name).exists() for name in live)
    assert all((other / name).exists() for name in others)
    assert DeltaTable(str(table)).to_pyarrow_table()["value"].to_pylist() == [2, 2]


def test_names_of_data_files() -> None:
    plain = f"part-00001-{UUID}-c000.zstd.parquet"
    assert is_data_file(FAILED, [])
    assert is_data_file(plain, [])
    assert is_data_file(f"date=2026-11-20/bucket=3/{plain}", ["date", "bucket"])
    for name, columns in [
        (plain, ["date"]),
        (f"other/{plain}", []),
        (f"other/{plain}", ["date"]),
        (f"date=2026-11-20/{plain}", ["day"]),
        ("part-1.parquet", []),
        (f"{plain}.bak", []),
        (f"_delta_log/{plain}", []),
    ]:
        assert not is_data_file(name, columns), name
