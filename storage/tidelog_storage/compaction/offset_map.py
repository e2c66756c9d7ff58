"""The newest offset of each key in the dirty part of a log, within a bounded memory."""

from __future__ import annotations

from hashlib import blake2b

KEY_BYTES = 16
ENTRY_BYTES = 176  # of a full map: a key's bytes, an offset, and their share of the table


class OffsetMap:
    """Keys of KEY_BYTES or more are kept as digests, as Kafka keeps all of its.

    Invariant: `latest_offset` is the last offset in the map's range; the map does not cover records
    above it.
    """

    __slots__ = ("_offsets", "entries_max", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 1.0) -> None:
        """Take at least one entry, so that every pass ends."""
        self.entries_max = max(1, int(memory_bytes * load_factor) // ENTRY_BYTES)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Add a record; False, without an effect, if the map is full."""
        offsets = self._offsets
        if len(offsets) >= self.entries_max:
            return False
        offsets[_short(key)] = offset
        self.latest_offset = offset
        return True

    def newest(self, key: bytes) -> int:
        """Return the newest offset of a key; -1 if the dirty part does not have it."""
        return self._offsets.get(_short(key), -1)


def _short(key: bytes) -> bytes:
    """Return the key itself if it is shorter than a digest, else its digest, so that they
    differ."""
    return key if len(key) < KEY_BYTES else blake2b(key, digest_size=KEY_BYTES).digest()
