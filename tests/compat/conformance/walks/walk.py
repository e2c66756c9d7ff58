"""What all walks share: the session, the chance, choices by weight, and an order of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.eventually import eventually

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

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
        """Set configs of the group, and wait until the coordinator has them.

        It has when its broker shows a later change.
        """
        for changes in (values, {"share_session_timeout_ms": "45001"}):
            wanted = {name.replace("_", "."): value for name, value in changes.items()}
            rows = [
                {"name": name, "config_operation": SET, "value": value}
                for name, value in wanted.items()
            ]
            resource = {"resource_type": GROUP, "resource_name": self.session.name}
            changed = resource | {"configs": rows}
            self.session.ask("IncrementalAlterConfigs", 1, resources=[changed])
            asked = resource | {"configuration_keys": list(wanted)}
            eventually(lambda asked=asked: self._values(asked), wanted.__eq__, 20.0)

    def _values(self, asked: dict[str, Any]) -> dict[str, Any]:
        answer = self.session.quietly("DescribeConfigs", 4, resources=[asked])
        return {one["name"]: one["value"] for one in answer["results"][0]["configs"]}


def ordered(answer: Any, place: Callable[[Any], Any]) -> Any:
    """An answer whose lists have an order: many of Kafka's are in that of a hash table."""
    if isinstance(answer, dict):
        return {name: ordered(value, place) for name, value in answer.items()}
    if isinstance(answer, list):
        return sorted((ordered(each, place) for each in answer), key=place)
    return answer
