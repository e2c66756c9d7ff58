"""Memory to receive into."""

from __future__ import annotations

from tidelog.network.buffers import receive_buffer


def test_it_is_written_and_read_like_a_bytearrays() -> None:
    buffer = receive_buffer(1 << 20)
    assert len(buffer) == 1 << 20
    assert not buffer.readonly
    assert (buffer.itemsize, buffer.ndim, buffer.contiguous) == (1, 1, True)
    buffer[4094:4098] = b"over"
    part = buffer[4090:4100]
    del buffer
    assert bytes(part) == b"\0\0\0\0over\0\0"
