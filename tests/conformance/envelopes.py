"""Envelopes of a foreign publisher, written from the protocol's description, not with our codec."""

from typing import Any

from bascule._liftbridge_pb import message

MAGIC = bytes.fromhex("b90e43b4")
PUBLISH, ACK = 0, 1
CHECKSUM = 1
POLYNOMIAL = 0x82F63B78


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def publish(*, checksum: bool = False, **fields: Any) -> bytes:
    """A Publish envelope of a Message with these fields."""
    payload = message("Message")(**fields).SerializeToString(deterministic=True)
    if checksum:
        return MAGIC + bytes([0, 12, CHECKSUM, PUBLISH]) + crc32c(payload).to_bytes(4, "big") + payload
    return MAGIC + bytes([0, 8, 0, PUBLISH]) + payload


def ack(data: bytes) -> Any:
    """The Ack of an Ack envelope."""
    assert data[:4] == MAGIC
    version, length, flags, kind = data[4:8]
    assert (version, flags & CHECKSUM, kind) == (0, 0, ACK)
    return message("Ack").FromString(data[length:])
