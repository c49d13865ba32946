"""Filesystems on loop devices, with simulated power cuts.

Needs root. A volume is one image, formatted once; `cut` shuts the filesystem down like a power cut (no further write
reaches the image), `remount` mounts it again with the content of the image.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture.result import SkippedError

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN (`EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`)."""
FLUSH_JOURNAL = 1
"""The filesystem's journal is flushed, data is not (PWR-1)."""
FLUSH_NOTHING = 2
"""Neither journal nor data is flushed (PWR-2)."""
WRITE_BACK = 2 | 4
"""SYNC_FILE_RANGE_WRITE and SYNC_FILE_RANGE_WAIT_AFTER."""
PAGE = 4096
UNMOUNT_SECONDS = 10

_libc = ctypes.CDLL(None, use_errno=True)


class Volume:
    """A mounted filesystem on a loop device. Not shared between threads."""

    def __init__(self, kind: str, device: str, path: Path, options: str = "") -> None:
        self.kind, self.device, self.path, self.options = kind, device, path, options
        self._mount()

    def _mount(self) -> None:
        done = _libc.mount(self.device.encode(), str(self.path).encode(), self.kind.encode(), 0, self.options.encode())
        if done != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"mount of {self.kind} on {self.device}: {os.strerror(code)}")

    def unmount(self) -> None:
        """Unmount; waits until the kernel has released it."""
        limit = time.monotonic() + UNMOUNT_SECONDS
        while _libc.umount2(str(self.path).encode(), 0) != 0:
            code = ctypes.get_errno()
            if code == errno.EINVAL:
                return  # not mounted
            if code != errno.EBUSY or time.monotonic() > limit:
                raise OSError(code, f"unmount of {self.path}: {os.strerror(code)}")
            time.sleep(0.001)

    def cut(self, flag: int) -> None:
        """Cut the power: no further write reaches the image."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(directory)

    def remount(self) -> None:
        """Restore the power. No process may have an open file of the volume."""
        self.unmount()
        self._mount()

    def write_back(self, chance: random.Random, pattern: str) -> None:
        """Write a random subset of the pages of files that match `pattern` to the image, in random order (ROW)."""
        files = [path for path in self.path.glob(pattern) if path.is_file()]
        for path in chance.sample(files, min(len(files), 4)):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # the process renames and removes files meanwhile
            try:
                pages = max(os.fstat(descriptor).st_size // PAGE, 1)
                for _ in range(chance.randint(1, 6)):
                    start, length = chance.randrange(pages), chance.randint(1, 4)
                    _libc.sync_file_range(
                        descriptor, ctypes.c_int64(start * PAGE), ctypes.c_int64(length * PAGE), WRITE_BACK
                    )
            finally:
                os.close(descriptor)


def image_home(mib: int) -> Path:
    """Directory for images: in memory if there is space for twice that many MiB, else the temporary directory."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2 * mib << 20:
        return memory
    return Path(tempfile.gettempdir())


def require(kind: str) -> None:
    """Raise `SkippedError` unless this machine can mount such volumes.

    Raises:
        SkippedError: with the missing part and the remedy.
    """
    if os.geteuid() != 0:
        raise SkippedError(f"mounting {kind} images needs root: run it as root, `sudo make torture`")
    package = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}[kind]
    for tool, source in ((f"mkfs.{kind}", package), ("losetup", "mount")):
        if shutil.which(tool) is None:
            raise SkippedError(f"{tool} is not installed: `apt-get install {source}`, or `make torture-tools` as root")
    if kind not in Path("/proc/filesystems").read_text().split():
        raise SkippedError(f"this kernel has no {kind}: `modprobe {kind}`, or a kernel that has it")
    if not Path("/dev/loop-control").exists():
        raise SkippedError("this machine has no loop devices: `modprobe loop`, or a container with /dev/loop-control")


@contextmanager
def volume(kind: str, mib: int, home: Path | None = None, options: str = "") -> Generator[Volume]:
    """A new filesystem of that size on an image in `home` (see `image_home`), unmounted and removed at the end.

    `options`: the filesystem's own mount options.

    Raises:
        SkippedError: this machine cannot mount it.
    """
    require(kind)
    with tempfile.TemporaryDirectory(prefix="bascule-volume-", dir=home or image_home(mib)) as directory:
        image, point = Path(directory, "image"), Path(directory, "mounted")
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(mib << 20)
        force = "-F" if kind == "ext4" else "-f"
        subprocess.run([f"mkfs.{kind}", "-q", force, image], check=True, stdout=subprocess.DEVNULL)
        found = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            raise SkippedError(f"no loop device for an image: {found.stderr.strip()}; free one with `losetup -D`")
        device = found.stdout.strip()
        try:
            mounted = Volume(kind, device, point, options)
            try:
                yield mounted
            finally:
                mounted.unmount()
        finally:
            subprocess.run(["losetup", "-d", device], check=True)
