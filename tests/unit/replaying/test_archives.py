"""An archive as the source of a replay."""

from pathlib import Path

import pytest
from bascule.errors import CorruptionError
from bascule.lake.ranges import Source
from bascule.spark.replaying.archives import ArchiveReader, opened
from bascule.spark.replaying.lanes import Part

from tests.unit.lake.query import Query, batch, data_files, options_of


@pytest.mark.parametrize("is_missing", [True, False])
def test_the_remedy_for_a_file_that_cannot_be_read_is_one_that_a_replay_has(tmp_path: Path, is_missing: bool) -> None:
    query = Query(options_of("delta", tmp_path))
    query.epoch(0, [batch(0, 9)])
    reader = ArchiveReader(query.options, "", opened(query.options, "").files, ("offset", "value"))
    part = Part(Source("s", 1, 0), 0, 9)
    assert sum(each.num_rows for each in reader.read(part)) == 9
    (path,) = data_files(tmp_path)
    if is_missing:
        path.unlink()
    else:
        path.write_bytes(b"PAR1 is not all of a file PAR1")
    with pytest.raises(CorruptionError, match=r"; restore it, or replay from another copy of the archive$"):
        list(reader.read(part))
