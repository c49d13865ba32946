"""The place of the data files of an Iceberg table: a local folder, or a service that the catalog gives access to."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bascule.lake.storage import FileStore, LocalFolder

DATA_PATH: Final = "write.data.path"
_LOCAL: Final = "file://"


def data_root(table: Any) -> str:
    """The place of the data files of a `pyiceberg.table.Table`, without a slash at its end."""
    return str(table.properties.get(DATA_PATH) or f"{table.location().rstrip('/')}/data").rstrip("/")


def open_store(table: Any) -> FileStore:
    """The store of a table's data files; names are relative to `data_root`."""
    root = data_root(table)
    path = local_path(root)
    return LocalFolder(path) if path is not None else _Objects(root, table.io)


def local_path(location: str) -> Path | None:
    """The path of a location on a local disk; None = it is elsewhere."""
    if "://" in location and not location.startswith(_LOCAL):
        return None
    return Path(location.removeprefix(_LOCAL).removeprefix("file:"))


class _Objects:
    """Files that are written through the table's own access, with the credentials of its catalog."""

    def __init__(self, root: str, io: Any) -> None:
        self._root = root
        self._io = io

    @contextmanager
    def writing(self, name: str) -> Generator[Any]:
        """As `FileStore.writing`; what an error leaves is deleted by the caller."""
        with self._io.new_output(self._path(name)).create() as stream:
            yield stream

    def reading(self, name: str) -> Any:
        """As `FileStore.reading`."""
        return self._io.new_input(self._path(name)).open()

    def size(self, name: str) -> int | None:
        """As `FileStore.size`."""
        try:
            return len(self._io.new_input(self._path(name)))
        except FileNotFoundError:
            return None

    def settle(self, names: list[str]) -> None:
        """Such a service is durable when a call returns."""

    def delete(self, names: list[str]) -> None:
        """As `FileStore.delete`."""
        for name in names:
            with suppress(FileNotFoundError):
                self._io.delete(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
