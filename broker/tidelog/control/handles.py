"""The control calls as Python methods for asyncio: `cluster.topics` and its like.

`blocking.py` has the same for code without asyncio, and is generated from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Ask", "Topics"]

Value = str | int | float | bool


class Ask(Protocol):
    """Performs a call by its name; ControlError if it is refused."""

    async def __call__(self, call: str, args: Mapping[str, Any]) -> Any:
        """Return the result."""
        ...


class Topics:
    """The topics of a cluster."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def create(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, Value] | None = None,
    ) -> None:
        """Create a topic, and wait until all running brokers serve it.

        -1 partitions or replicas are the broker's `num.partitions` and
        `default.replication.factor`. `config` has the topic's settings by their Kafka names.
        """
        await self._ask(
            "topics.create",
            {
                "name": name,
                "partitions": partitions,
                "replication_factor": replication_factor,
                "config": dict(config or {}),
            },
        )

    async def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic, and wait until no running broker knows it."""
        await self._ask("topics.delete", {"name": name, "missing_ok": missing_ok})
