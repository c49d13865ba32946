"""Which directories `bascule log repair --from` accepts as a backup, before it changes anything."""

import json
from pathlib import Path

import pytest
from bascule.cli.commands.backup import check_backup
from bascule.errors import BrokerError

LOG = Path("partitions") / "65536"


def data_directory(path: Path, broker_id: str | None = "one") -> Path:
    """A data directory with one log; without a manifest when `broker_id` is `None`."""
    (path / LOG).mkdir(parents=True)
    (path / LOG / "00000000000000000000.seg").touch()
    if broker_id is not None:
        manifest = {"format": 1, "cluster_id": "c", "broker_id": broker_id}
        (path / "bascule.json").write_text(json.dumps(manifest))
    return path


def refused(path: Path, backup: Path) -> str:
    with pytest.raises(BrokerError) as raised:
        check_backup(path, backup)
    assert str(backup) in str(raised.value)
    return raised.value.code


def test_a_copy_of_the_directory_is_a_backup_of_all_its_logs(tmp_path: Path) -> None:
    data, backup = data_directory(tmp_path / "data"), data_directory(tmp_path / "backup")
    assert check_backup(data, backup) == backup


def test_a_single_log_is_repaired_from_its_counterpart_in_a_copy_of_the_directory(tmp_path: Path) -> None:
    data, backup = data_directory(tmp_path / "data"), data_directory(tmp_path / "backup")
    assert check_backup(data / LOG, backup) == backup / LOG


def test_a_single_log_is_repaired_from_a_copy_of_that_log(tmp_path: Path) -> None:
    data, other = data_directory(tmp_path / "data"), data_directory(tmp_path / "other")
    copy = (other / LOG).rename(tmp_path / LOG.name)
    assert check_backup(data / LOG, copy) == copy
    assert refused(data / LOG, copy.rename(tmp_path / "65537")) == "invalid_argument"


def test_a_directory_that_lost_its_manifest_can_be_repaired(tmp_path: Path) -> None:
    data, backup = data_directory(tmp_path / "data", None), data_directory(tmp_path / "backup")
    assert check_backup(data, backup) == backup


@pytest.mark.parametrize("part", [Path(), LOG])
def test_the_directory_of_another_broker_is_refused(tmp_path: Path, part: Path) -> None:
    data, backup = data_directory(tmp_path / "data"), data_directory(tmp_path / "backup", "two")
    assert refused(data / part, backup) == "data_directory_foreign"


@pytest.mark.parametrize("manifest", [None, "", "[]", '{"cluster_id": "c"}'])
def test_a_directory_that_does_not_name_its_broker_is_refused(tmp_path: Path, manifest: str | None) -> None:
    data, backup = data_directory(tmp_path / "data"), data_directory(tmp_path / "backup", None)
    if manifest is not None:
        (backup / "bascule.json").write_text(manifest)
    assert refused(data, backup) == "invalid_argument"


def test_the_directory_itself_is_refused_also_through_a_link(tmp_path: Path) -> None:
    data, link = data_directory(tmp_path / "data"), tmp_path / "link"
    link.symlink_to(data)
    assert refused(data, data) == "invalid_argument"
    assert refused(data, link) == "invalid_argument"


def test_a_path_that_does_not_exist_and_a_backup_without_the_log_are_refused(tmp_path: Path) -> None:
    data, backup = data_directory(tmp_path / "data"), data_directory(tmp_path / "backup")
    assert refused(data, tmp_path / "none") == "not_found"
    (backup / LOG).rename(tmp_path / "elsewhere")
    assert refused(data / LOG, backup) == "not_found"
