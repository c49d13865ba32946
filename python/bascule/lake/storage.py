"""The folder of a table, on a local disk or in S3: streams of bytes in, small files out, put if absent, move.

Names are relative to the folder, with `/` between their parts. A local file is durable when a call returns.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from io import RawIOBase
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

from bascule.errors import StateError
from bascule.lake.credentials import storage_options
from bascule.lake.options import ArchiveOptions
from bascule.spark.usage import usage

_UPLOAD_BYTES: Final = 8 << 20
"""Bytes of one part of an upload."""


class FileStore(Protocol):
    """Where the data files of one table are written."""

    def writing(self, name: str) -> Any:
        """A context manager with an open binary file; the file is there, whole, when it is left without an error."""
        ...

    def reading(self, name: str) -> Any:
        """A context manager with an open binary file that can `seek`.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a file; None = there is none."""
        ...

    def settle(self, names: list[str]) -> None:
        """Make the places of moved and created files durable, and that deleted ones are gone."""
        ...

    def delete(self, names: list[str]) -> None:
        """Delete files; those that are missing are skipped."""
        ...


class Storage(FileStore, Protocol):
    """The folder of one table."""

    uri: str
    """For messages and for deltalake."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None = there is none."""
        ...

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file; False = there is one, and nothing changed. Of concurrent calls exactly one creates it."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Create or replace a file in one step."""
        ...

    def move(self, old: str, new: str) -> bool:
        """Move a file over `new`, which is replaced; whether `old` existed."""
        ...

    def prune(self, folder: str) -> None:
        """Remove a folder and its subfolders as far as they are empty."""
        ...

    def anchor(self) -> None:
        """Create the folder, and make its place durable. `settle` does that only for what is in it."""
        ...

    def entries(self, prefix: str) -> Iterator[tuple[str, float]]:
        """Names under a folder and its subfolders, with the time of their last change in seconds since 1970."""
        ...


def open_storage(path: str, options: ArchiveOptions) -> Storage:
    """The folder `path`, with the credentials and the endpoint of `options`. Nothing is asked of a service yet.

    Raises:
        UsageError: `path` is a file.
    """
    if path.startswith("s3://"):
        return Bucket(path.rstrip("/"), storage_options(options))
    folder = Path(path.removeprefix("file://")).absolute()
    if os.path.isfile(folder):  # noqa: PTH113 - a folder that may not be read is reported by what uses it
        raise usage(f"the table {folder} is a file: a table is a folder; choose another path", path=path)
    return LocalFolder(folder)


class LocalFolder:
    """A folder on a local disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = str(folder)

    @contextmanager
    def writing(self, name: str) -> Generator[Any]:
        """As `Storage.writing`. The file is synced to disk; its place in the folder by `settle`."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def reading(self, name: str) -> Any:
        """As `FileStore.reading`."""
        return (self.folder / name).open("rb")

    def read(self, name: str) -> bytes | None:
        """As `Storage.read`."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """As `Storage.put_if_absent`, by a hard link."""
        path = self.folder / name
        draft = self._draft(path, content)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        self.settle([name])
        return True

    def replace(self, name: str, content: bytes) -> None:
        """As `Storage.replace`."""
        path = self.folder / name
        self._draft(path, content).replace(path)
        self.settle([name])

    def size(self, name: str) -> int | None:
        """As `Storage.size`."""
        try:
            return (self.folder / name).stat().st_size
        except FileNotFoundError:
            return None

    def move(self, old: str, new: str) -> bool:
        """As `Storage.move`."""
        target = self.folder / new
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self.folder / old).replace(target)
        except FileNotFoundError:
            return False
        return True

    def sync(self, names: list[str]) -> None:
        """Make files that another library wrote durable."""
        for name in names:
            sync_path(self.folder / name)
        if names:
            self.settle(names)

    def settle(self, names: list[str]) -> None:
        """As `Storage.settle`: sync the folders from the files up to the table's, as far as they are there."""
        folders = {self.folder}
        for name in names:
            folders |= {folder for folder in (self.folder / name).parents if self.folder in folder.parents}
        for folder in sorted(filter(Path.is_dir, folders), key=lambda each: -len(each.parts)):
            sync_path(folder)

    def anchor(self) -> None:
        """As `Storage.anchor`. Tasks may have made the parents, so all of them on the same device are synced."""
        self.folder.mkdir(parents=True, exist_ok=True)
        device = self.folder.stat().st_dev
        for parent in self.folder.parents:
            if parent.stat().st_dev != device or not os.access(parent, os.R_OK):
                break  # the place of a mount, or a folder that was there before, because it is not ours to read
            sync_path(parent)

    def delete(self, names: list[str]) -> None:
        """As `Storage.delete`; folders that become empty are removed."""
        for name in names:
            path = self.folder / name
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self.folder or not _remove_if_empty(folder):
                    break

    def prune(self, folder: str) -> None:
        """As `Storage.prune`."""
        for path, _, _ in os.walk(self.folder / folder, topdown=False):
            _remove_if_empty(Path(path))

    def entries(self, prefix: str) -> Iterator[tuple[str, float]]:
        """As `Storage.entries`."""
        for path in sorted((self.folder / prefix).rglob("*")):
            try:
                if path.is_file():
                    yield path.relative_to(self.folder).as_posix(), path.stat().st_mtime
            except FileNotFoundError:  # deleted meanwhile
                continue

    @staticmethod
    def _draft(path: Path, content: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid4().hex}")
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return draft


def sync_path(path: Path) -> None:
    """Sync a file that another library wrote, or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


@dataclass
class Bucket:
    """A folder in S3."""

    uri: str
    options: dict[str, str]

    def __post_init__(self) -> None:
        self._obstore: Any = _obstore()
        store: Any = import_module("obstore.store")
        self._missing: Any = FileNotFoundError
        self._exists: Any = import_module("obstore.exceptions").AlreadyExistsError
        config = {key.lower(): value for key, value in self.options.items()}
        allows = config.pop("aws_allow_http", "false").lower() == "true"  # not a part of `config` in obstore
        self._store = store.from_url(self.uri, config=config, client_options={"allow_http": allows})

    @contextmanager
    def writing(self, name: str) -> Generator[Any]:
        """As `Storage.writing`, by an upload in parts; a failed one leaves no file."""
        upload = self._obstore.open_writer(self._store, name, buffer_size=_UPLOAD_BYTES)
        yield _Upload(upload)
        upload.close()

    def reading(self, name: str) -> Any:
        """As `FileStore.reading`."""
        return _Download(self._obstore.open_reader(self._store, name))

    def read(self, name: str) -> bytes | None:
        """As `Storage.read`."""
        try:
            return self._obstore.get(self._store, name).bytes().to_bytes()
        except self._missing:
            return None

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """As `Storage.put_if_absent`, by `If-None-Match: *`."""
        try:
            self._obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except self._exists:
            return False
        return True

    def replace(self, name: str, content: bytes) -> None:
        """As `Storage.replace`."""
        self._obstore.put(self._store, name, content, use_multipart=False)

    def size(self, name: str) -> int | None:
        """As `Storage.size`."""
        try:
            return int(self._obstore.head(self._store, name)["size"])
        except self._missing:
            return None

    def move(self, old: str, new: str) -> bool:
        """As `Storage.move`, by a copy in the service."""
        try:
            self._obstore.copy(self._store, old, new)
        except self._missing:
            return False
        self._obstore.delete(self._store, old)
        return True

    def settle(self, names: list[str]) -> None:
        """S3 is durable when a call returns."""

    def delete(self, names: list[str]) -> None:
        """As `Storage.delete`."""
        if names:
            self._obstore.delete(self._store, names)

    def prune(self, folder: str) -> None:
        """S3 has no folders."""

    def anchor(self) -> None:
        """S3 has no folders."""

    def entries(self, prefix: str) -> Iterator[tuple[str, float]]:
        """As `Storage.entries`."""
        for found in self._obstore.list(self._store, prefix):
            for entry in found:
                yield entry["path"], entry["last_modified"].timestamp()


class _Upload(RawIOBase):
    """An upload as the binary file that pyarrow expects. Closing it does not finish the upload."""

    def __init__(self, upload: Any) -> None:
        super().__init__()
        self._upload = upload

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        return int(self._upload.write(content))


class _Download(RawIOBase):
    """A file in S3 as the binary file that pyarrow expects."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._file.readall() if size < 0 else self._file.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())


def check_conditional_put(storage: Storage) -> None:
    """Check that the storage refuses to create a file twice: without that, two writers could both commit.

    Raises:
        StateError: it does not.
    """
    name = f"_bascule/probe-{uuid4().hex}"
    try:
        if storage.put_if_absent(name, b"1") and storage.put_if_absent(name, b"2"):
            raise StateError(
                "failed_precondition",
                f"{storage.uri}: the service accepts a second put with If-None-Match: *, so commits would not be "
                "exclusive: use a service with conditional puts",
                {"table": storage.uri},
            )
    finally:
        storage.delete([name])


def _obstore() -> Any:
    try:
        return import_module("obstore")
    except ImportError as cause:
        raise StateError(
            "failed_precondition", "tables in S3 need the package obstore: pip install 'bascule[lake]'"
        ) from cause
