"""Where the files that options name are found."""

from pathlib import Path

import pytest
from bascule.spark.files import located
from pyspark import SparkFiles


@pytest.fixture
def distributed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of `spark.files` of a process of Spark, with a file; another folder is the current one."""
    folder, current = tmp_path / "userFiles-1", tmp_path / "current"
    for made in (folder, current):
        made.mkdir()
    (folder / "ca.pem").write_text("distributed")
    monkeypatch.chdir(current)
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(folder))
    return folder


def test_a_name_without_a_folder_is_found_among_the_files_of_spark(distributed: Path) -> None:
    assert located("ca.pem") == distributed / "ca.pem"
    assert located("missing.pem") == Path("missing.pem")


def test_planners_of_streaming_queries_look_above_their_folder(
    distributed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "_root_directory", str(distributed / "streaming_job"))
    assert located("ca.pem") == distributed / "ca.pem"


def test_executors_have_them_in_their_current_folder(distributed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_root_directory", ".")
    monkeypatch.chdir(distributed)
    assert located("ca.pem").read_text() == "distributed"


def test_an_absolute_path_and_a_file_that_is_here_are_taken_as_they_are(distributed: Path) -> None:
    Path("ca.pem").write_text("here")
    assert located("ca.pem").read_text() == "here"
    assert located(str(distributed / "ca.pem")).read_text() == "distributed"
    assert located("/missing/ca.pem") == Path("/missing/ca.pem")


def test_without_spark_a_name_is_a_file_of_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", False)
    monkeypatch.setattr(SparkFiles, "_sc", None)
    assert located("missing.pem") == Path("missing.pem")
