"""What all walks share: the session, the chance, and choices by weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from compat.conformance.session import Session

UNKNOWN_ID = b"\x11" * 16
GROUP, SET = 32, 0


class Walk:
    """One walk, as its broker has answered so far."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        self.session, self.rng = session, rng

    def any_of(self, *weighted: tuple[float, Any]) -> Any:
        """One of these values, by weight."""
        weights, values = zip(*weighted, strict=True)
        return self.rng.choices(values, weights)[0]

    def chance(self, percent: float = 5) -> bool:
        return self.rng.random() * 100 < percent

    def topics_with_ids(self, *counts: int) -> tuple[list[str], list[bytes]]:
        """New topics of so many partitions.

        Their descriptions are recorded, so that their ids get their names in this order.
        """
        names = [self.session.topic(count) for count in counts]
        known = [self.session.ask("Metadata", 12, topics=[{"name": name}]) for name in names]
        return names, [one["topics"][0]["topic_id"] for one in known]

    def configure(self, **values: str) -> None:
        """Set configs of the group."""
        rows = [
            {"name": name.replace("_", "."), "config_operation": SET, "value": value}
            for name, value in values.items()
        ]
        resource = {"resource_type": GROUP, "resource_name": self.session.name, "configs": rows}
        self.session.ask("IncrementalAlterConfigs", 1, resources=[resource])
