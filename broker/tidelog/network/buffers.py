"""Memory to receive into, which is taken page by page as it is first used."""

from __future__ import annotations

import mmap

__all__ = ["receive_buffer"]


def receive_buffer(size: int) -> memoryview:
    """Return writable memory. A bytearray would be filled with zeros, and so be resident as a
    whole."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
