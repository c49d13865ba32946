"""Tables in an S3 service on this machine."""

import json
import shutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bascule.lake.credentials import storage_options
from bascule.lake.iceberg.catalog import open_catalog
from bascule.lake.options import ArchiveOptions, TableFormat
from bascule.lake.storage import open_storage

SECRET: Final = "the-secret-of-the-bucket"


@dataclass(frozen=True)
class Bucketed:
    """The bucket `lake` of a service.

    Attributes:
        endpoint: URL of the service.
        folder: for files with its secrets and for catalogs, on the local disk.
    """

    endpoint: str
    folder: Path

    def options(self, table_format: TableFormat, name: str, *partition_by: str) -> ArchiveOptions:
        """A table below a folder of the bucket; of an Iceberg table, with a SQL catalog on the local disk."""
        place = name.replace("[", "-").strip("]")
        if table_format == "iceberg":
            return ArchiveOptions("lake.table", table_format, partition_by, credentials=self._catalog(place))
        to, secrets = f"s3://lake/{place}", self._secrets()
        return ArchiveOptions(to, table_format, partition_by, credentials=secrets, endpoint=self.endpoint)

    def read(self, options: ArchiveOptions) -> list[dict[str, Any]]:
        """The rows that readers of a table see."""
        if options.table_format == "iceberg":
            return open_catalog(options).load_table(options.path).scan().to_arrow().to_pylist()
        bucket = open_storage(options.path, options)
        if options.table_format == "delta":
            table = import_module("deltalake").DeltaTable(options.path, storage_options=storage_options(options))
            return table.to_pyarrow_table().to_pylist()
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        for name, _ in bucket.entries(""):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(bucket.read(name) or b"")
        datasets: Any = import_module("pyarrow.dataset")
        return datasets.dataset(copy, partitioning="hive", format="parquet").to_table().to_pylist()

    def offsets(self, options: ArchiveOptions) -> list[tuple[int, int]]:
        """(partition, offset) of every row that readers see, sorted; repeated ones are repeated."""
        return sorted((row["partition"], row["offset"]) for row in self.read(options))

    def _secrets(self) -> str:
        return self._file("credentials.json", {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SECRET})

    def _catalog(self, place: str) -> str:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"s3://lake/{place}",
            "s3.endpoint": self.endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": "test",
            "s3.secret-access-key": SECRET,
        }
        return self._file("catalog.json", properties)

    def _file(self, name: str, content: dict[str, str]) -> str:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)
