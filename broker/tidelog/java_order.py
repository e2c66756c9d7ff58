"""Java's hash of strings, the order in which its hash maps list them, and that of its heaps. Pure.

Kafka's assignor of streams groups and its topic manager go by hash maps. Of equally good processes,
members or topics the first one counts, so tidelog lists them as `java.util.HashMap` does.
DescribeConfigs lists settings in this order. Not covered: buckets of eight and more keys, which
Java turns into trees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["LeastFirst", "hash_order", "java_hash"]

T = TypeVar("T")

_CAPACITY = 16  # of a hash map that is made without a number


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, over UTF-16 units, as a signed 32-bit int."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def hash_order(keys: Iterable[str], capacity: int = _CAPACITY) -> list[str]:
    """Return keys in the order of a `HashMap` that got them one by one.

    `capacity` is what the map is made for; it grows when it is three quarters full.
    """
    listed = list(dict.fromkeys(keys))
    size = 1 << max(0, (capacity - 1).bit_length())
    while len(listed) > size * 3 // 4:
        size *= 2
    return sorted(listed, key=lambda key: _spread(key) & (size - 1))


def _spread(key: str) -> int:
    """Return the hash, with its upper half mixed into the lower one."""
    code = java_hash(key) & 0xFFFFFFFF
    return code ^ (code >> 16)


class LeastFirst(Generic[T]):
    """`java.util.PriorityQueue`. A load may change only while its item is outside."""

    def __init__(self, load: Callable[[T], float], items: Iterable[T]) -> None:
        self._load = load
        self._items: list[T] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T) -> None:
        """Insert an item; it stays behind equal parents."""
        items, load = self._items, self._load(item)
        place = len(items)
        items.append(item)
        while place:
            parent = (place - 1) // 2
            if load >= self._load(items[parent]):
                break
            items[place] = items[parent]
            place = parent
        items[place] = item

    def poll(self) -> T:
        """Remove and return the first item; the last one sinks from its place."""
        items = self._items
        first, item = items[0], items.pop()
        if not items:
            return first
        place, load, size = 0, self._load(item), len(items)
        while place < size // 2:
            child = 2 * place + 1
            right = child + 1
            if right < size and self._load(items[child]) > self._load(items[right]):
                child = right
            if load <= self._load(items[child]):
                break
            items[place] = items[child]
            place = child
        items[place] = item
        return first
