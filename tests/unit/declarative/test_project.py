"""The files of a new project, and what is refused."""

import ast
import shlex
import socket
from pathlib import Path

import pytest
import yaml
from bascule.errors import StateError, UsageError
from bascule.spark.declarative import Refresh, create_project, launcher, run_project


def test_the_files_are_valid_and_name_the_stream(tmp_path: Path) -> None:
    folder = tmp_path / 'sales: a "project" of $5'
    files = create_project(
        folder, stream="web.Orders-1", address="127.0.0.1:9292", schema="id BIGINT", dead_letters="dead"
    )
    assert {path.name for path in files} == {"spark-pipeline.yml", "bronze.py", "silver.py", "gold.sql", ".gitignore"}
    specification = yaml.safe_load((folder / "spark-pipeline.yml").read_text())
    assert specification["name"] == folder.name
    assert specification["storage"] == f"file://{folder}/storage"
    assert specification["configuration"]["bascule.stream"] == "web.Orders-1"
    assert specification["configuration"]["bascule.dead_letters"] == "dead"
    for name in ("bronze", "silver"):
        ast.parse((folder / "transformations" / f"{name}.py").read_text())
    assert "def web_orders_1_raw()" in (folder / "transformations" / "bronze.py").read_text()
    assert "FROM web_orders_1\n" in (folder / "transformations" / "gold.sql").read_text()


def test_a_stream_that_begins_with_a_digit_has_a_name_of_python(tmp_path: Path) -> None:
    create_project(tmp_path / "p", stream="2026.sales", address="127.0.0.1:9292")
    assert "def _2026_sales_raw()" in (tmp_path / "p" / "transformations" / "bronze.py").read_text()


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("text")
    with pytest.raises(UsageError, match="is not empty: name a new folder"):
        create_project(tmp_path, stream="s", address="127.0.0.1:9292")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("schema", ["id STRING COMMENT 'x'", 'a "b"', "a\\b", "a\nb"])
def test_a_schema_that_cannot_stand_in_the_file_is_refused(tmp_path: Path, schema: str) -> None:
    with pytest.raises(UsageError, match="has a quote, a backslash or a line end"):
        create_project(tmp_path / "p", stream="s", address="127.0.0.1:9292", schema=schema)
    assert not (tmp_path / "p").exists()


def test_a_bad_address_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="address 'no address': it must be host:port"):
        create_project(tmp_path / "p", stream="s", address="no address")
    assert not (tmp_path / "p").exists()


def test_dead_letters_do_not_go_to_the_stream_that_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dead letters would go to sales, the stream that is read"):
        create_project(tmp_path / "p", stream="sales", address="127.0.0.1:9292", dead_letters="sales")
    assert not (tmp_path / "p").exists()


def test_a_folder_without_a_project_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no spark-pipeline.yml: create a project with bascule spark init"):
        run_project(tmp_path)


def test_tables_to_refresh_become_options() -> None:
    assert Refresh().arguments() == []
    assert Refresh(only=["a", "b"], full=["c"]).arguments() == ["--refresh", "a,b", "--full-refresh", "c"]
    assert Refresh(all_full=True).arguments() == ["--full-refresh-all"]
    with pytest.raises(UsageError, match="takes no names of tables"):
        Refresh(full=["c"], all_full=True).arguments()


def test_a_dry_run_refreshes_nothing(tmp_path: Path) -> None:
    create_project(tmp_path / "p", stream="s", address="127.0.0.1:9292")
    with pytest.raises(UsageError, match="a dry run takes no tables to refresh"):
        run_project(tmp_path / "p", dry_run=True, refresh=Refresh(only=["a"]))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_project(tmp_path / "p", stream="s", address="127.0.0.1:9292")
    monkeypatch.setattr(launcher, "NEEDED", ("grpc", "no_such.module"))
    with pytest.raises(StateError, match=r"need no_such.module: pip install 'bascule\[declarative\]'"):
        run_project(tmp_path / "p")


def test_options_of_the_user_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_project(tmp_path / "p", stream="s", address="127.0.0.1:9292")
    program = tmp_path / "spark-pipelines"
    program.write_text('#!/bin/sh\nprintf %s "$PYSPARK_SUBMIT_ARGS" > submitted\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setattr(launcher, "_program", lambda: program)
    monkeypatch.setattr(launcher, "CONNECT_PORT", 0)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars 'my own.jar' pyspark-shell")
    assert run_project(tmp_path / "p", config={"spark.sql.session.timeZone": "Asia/Tokyo"}) == 3
    given = shlex.split((tmp_path / "p" / "submitted").read_text())
    assert given[-3:] == ["--jars", "my own.jar", "pyspark-shell"]
    assert "spark.sql.session.timeZone=Asia/Tokyo" in given
    assert "spark.sql.session.timeZone=UTC" not in given


def test_a_second_run_beside_the_first_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_project(tmp_path / "p", stream="s", address="127.0.0.1:9292")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(launcher, "CONNECT_PORT", port)
        with pytest.raises(StateError, match=f"port {port}, which .* wait for the end of the other"):
            run_project(tmp_path / "p")
