"""What a local disk refuses has a code and a remedy; other failures remain as they are."""

import errno
import os
from pathlib import Path

import pytest
from bascule.errors import AccessError, BrokerError
from bascule.lake.disk_errors import disk_errors


@pytest.mark.parametrize(
    ("number", "code", "remedy"),
    [
        (errno.ENOSPC, "disk_full", "No space left on device.*; free space on the disk"),
        (errno.EDQUOT, "disk_full", "raise the quota"),
        (errno.EACCES, "failed_precondition", "let the user of the query write there"),
        (errno.EROFS, "failed_precondition", "choose a folder that can be written"),
    ],
)
def test_a_refusal_of_the_disk_names_the_table_and_the_remedy(number: int, code: str, remedy: str) -> None:
    with (
        pytest.raises(BrokerError, match=f"the table lake/t cannot be written: .*{remedy}") as raised,
        disk_errors("lake/t"),
    ):
        raise OSError(number, os.strerror(number), "lake/t/x.parquet")
    assert (raised.value.code, raised.value.details) == (code, {"table": "lake/t"})


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match=r"Not a directory.*a part of the path is a file"), disk_errors("t"):
        (tmp_path / "file" / "t").mkdir(parents=True)


def test_a_refusal_of_an_object_store_names_the_table_the_reason_and_what_to_check() -> None:
    with (
        pytest.raises(BrokerError, match=r"s3://b/t cannot be written: Generic S3 error: 403; check") as raised,
        disk_errors("s3://b/t"),
    ):
        raise OSError("Generic S3 error: 403\nmore")
    assert raised.value.code == "unavailable"


def test_other_failures_are_not_changed() -> None:
    for failure in (OSError("failpoint"), OSError(errno.EIO, "x"), AccessError("permission_denied", "no right")):
        with pytest.raises(type(failure)) as raised, disk_errors("t"):
            raise failure
        assert raised.value is failure
