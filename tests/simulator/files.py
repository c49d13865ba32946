"""Reads the engine's files without the engine: `specs/formats/segment.md` and `batch.md`."""

from __future__ import annotations

import struct
from dataclasses import dataclass

PREAMBLE_BYTES = 64
HEADER_BYTES = 128
BATCH_MAGIC = b"BSC1"
SLOTS = (0, 4096)


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """The position of a batch."""

    position: int
    end: int
    base_offset: int
    next_offset: int
    chain: int
    link: int
    epoch: int


def batches(content: bytes) -> list[BatchPlace]:
    """The batches of a segment up to the first position without one. Checksums are not checked."""
    found: list[BatchPlace] = []
    position = PREAMBLE_BYTES
    while content[position : position + 4] == BATCH_MAGIC and position + HEADER_BYTES <= len(content):
        epoch, base, span = struct.unpack_from("<QQI", content, position + 24)
        (stored,) = struct.unpack_from("<I", content, position + 80)
        chain, kept = struct.unpack_from("<II", content, position + 108)
        (link,) = struct.unpack_from("<I", content, position + 124)
        end = position + HEADER_BYTES + stored
        if end > len(content) or not span:
            break  # the rest of a torn header has no offsets
        found.append(BatchPlace(position, end, base, base + span, chain, kept or link, epoch))
        position = end
    return found


def known_batches(content: bytes) -> list[BatchPlace]:
    """The batches up to the first whose extent is unknown.

    The extent of a batch is known if its header checksum matches, or if its successor carries its link. A header with a
    damaged length may seem to cover its successors.
    """
    found = batches(content)
    for i, batch in enumerate(found):
        followed = i + 1 < len(found) and found[i + 1].chain == batch.link
        if not followed and not _has_valid_header(content, batch.position):
            return found[:i]
    return found


def _has_valid_header(content: bytes, position: int) -> bool:
    (stored,) = struct.unpack_from("<I", content, position + HEADER_BYTES - 4)
    return crc32c(content[position : position + HEADER_BYTES - 4]) == stored


def checkpoint(content: bytes) -> tuple[int, int, int] | None:
    """High watermark, log start and durable point of the newer valid slot."""
    slots: list[tuple[int, tuple[int, int, int]]] = []
    for at in SLOTS:
        slot = content[at : at + 64]
        if slot[:4] == b"BSCC" and len(slot) == 64 and struct.pack("<I", crc32c(slot[:60])) == slot[60:]:
            (sequence,) = struct.unpack_from("<Q", slot, 8)
            slots.append((sequence, struct.unpack_from("<QQQ", slot, 32)))
    return max(slots)[1] if slots else None


def segments(paths: list[str], directory: str) -> list[tuple[int, str]]:
    """Base offset and path of each segment of a log, ascending."""
    names = [path for path in paths if path.startswith(f"{directory}/") and path.endswith(".seg")]
    return sorted((int(path.rsplit("/", 1)[1][:20]), path) for path in names)


def future_checkpoint(content: bytes, ahead: int) -> bytes | None:
    """A valid copy of the newer slot with a high watermark increased by `ahead`; None = there is no slot."""
    slots = [content[at : at + 64] for at in SLOTS if content[at : at + 4] == b"BSCC"]
    if not slots:
        return None
    slot = bytearray(max(slots, key=lambda slot: struct.unpack_from("<Q", slot, 8)))
    (mark,) = struct.unpack_from("<Q", slot, 32)
    struct.pack_into("<Q", slot, 32, mark + ahead)
    struct.pack_into("<I", slot, 60, crc32c(bytes(slot[:60])))
    return bytes(slot)


def crc32c(content: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit: only for small inputs."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
