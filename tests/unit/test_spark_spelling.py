"""How errors spell an option: as the surface does that the user called."""

import pytest
from bascule.errors import UsageError
from bascule.lake import ArchiveOptions, MergeOptions
from bascule.lake.options import parse_archive_options
from bascule.spark.options import parse_options
from bascule.spark.spelling import named, renamed, spelled, surface


def test_the_outermost_surface_counts_and_only_while_it_lasts() -> None:
    with surface({"path": "argument to"}), surface({"path": "argument path", "format": "argument format"}):
        assert [named(name) for name in ("path", "format")] == ["argument to", "option format"]
        with renamed({"where": "path"}), renamed({"place": "where"}):
            assert named("place") == "argument to"
    assert [named("path"), spelled("path")] == ["option path", "path"]
    with surface({"path": "--to"}):
        assert spelled("path") == "--to"


def test_a_surface_ends_with_an_error() -> None:
    with pytest.raises(ValueError, match=r"^--to$"), surface({"path": "--to"}), renamed({"a": "path"}):
        raise ValueError(named("a"))
    assert named("a") == "option a"


def test_one_check_names_what_each_surface_has() -> None:
    with pytest.raises(UsageError, match=r"^argument table_format is 'hudi'"):
        ArchiveOptions("t", "hudi")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"^argument table_format is 'hudi'"):
        MergeOptions(path="t", keys=("k",), table_format="hudi")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"^option tableFormat is 'hudi'"):
        parse_archive_options({"path": "t", "tableformat": "hudi"})
    with pytest.raises(UsageError, match=r"^option path is 'ftp://t'"):
        parse_archive_options({"path": "ftp://t"})
    with pytest.raises(UsageError, match=r"^option archivePath is 'ftp://t'"):
        parse_options({"stream": "s", "archivepath": "ftp://t"})
