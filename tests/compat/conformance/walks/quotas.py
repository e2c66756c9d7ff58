"""Walks of client quotas, which are taken away at the end: other walks run on the same broker.

A wrong key comes alone: of several, Kafka names the first in the order of a hash table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.walks.topics import Admin

if TYPE_CHECKING:
    import random

    from compat.conformance.session import Session

STEPS = 50
EXACT, DEFAULT, SPECIFIED = range(3)
Entity = tuple[tuple[str, str | None], ...]
# Large enough to slow nothing down.
KEYS = (
    ("producer_byte_rate", 1e9),
    ("consumer_byte_rate", 2e9),
    ("request_percentage", 100_000.0),
    ("controller_mutation_rate", 1e6),
    ("connection_creation_rate", 1e6),
)
WRONG = (
    ("producer_byte_rate", -1.0),
    ("producer_byte_rate", 0.5),
    ("connection_creation_rate", 1e10),
    ("no_such_key", 1.0),
)


class Quotas(Admin):
    """The entities of a walk."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        super().__init__(session, rng)
        user, client = f"{session.name}.u", f"{session.name}.c"
        self.entities: list[Entity] = [
            (("user", user),),
            (("user", user), ("client-id", client)),
            (("user", None), ("client-id", client)),
            (("user", user), ("client-id", None)),
            (("client-id", client),),
            (("ip", "10.1.2.3"),),
        ]
        self.wrong: list[Entity] = [
            (),
            (("user", ""),),
            (("group", "g"),),
            (("ip", "10.1.2.3"), ("user", user)),
            (("ip", "10.1.2.300"),),
        ]

    def change(self) -> None:
        """AlterClientQuotas of one entity."""
        entity = self.any_of((92, self.rng.choice(self.entities)), (8, self.rng.choice(self.wrong)))
        is_address = entity[:1] == (("ip", "10.1.2.3"),)
        keys = [one for one in KEYS if (one[0] == "connection_creation_rate") == is_address]
        chosen = self.any_of((85, self.some(keys)), (15, [self.rng.choice(KEYS + WRONG)]))
        ops = {
            key: {"key": key, "value": value, "remove": self.chance(35)} for key, value in chosen
        }
        self.session.ask(
            "AlterClientQuotas",
            1,
            entries=[{"entity": named(entity), "ops": list(ops.values())}],
            validate_only=self.chance(15),
        )

    def describe(self) -> None:
        """DescribeClientQuotas; the entities of this walk among the answers."""
        entity = self.rng.choice([*self.entities, *self.wrong])
        components = []
        for kind, name in entity:
            how = DEFAULT if name is None else EXACT
            how = self.any_of((85, how), (13, SPECIFIED), (2, 3))
            match = name if how == EXACT or self.chance(3) else None
            components.append({"entity_type": kind, "match_type": how, "match": match})
        answer = self.session.quietly(
            "DescribeClientQuotas", 1, components=components, strict=self.chance(50)
        )
        found = {
            repr(sorted((one["entity_type"], one["entity_name"]) for one in row["entity"])): dict(
                sorted((one["key"], one["value"]) for one in row["values"])
            )
            for row in answer.pop("entries") or ()
        }
        self.session.record("DescribeClientQuotas", {**answer, "found": found})

    def tidy(self) -> None:
        """Take all quotas away."""
        for entity in self.entities:
            for key, _ in KEYS:
                op = {"key": key, "value": 0.0, "remove": True}
                entry = {"entity": named(entity), "ops": [op]}
                self.session.quietly("AlterClientQuotas", 1, entries=[entry])
        self.settle()


def named(entity: Entity) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def walk(session: Session, rng: random.Random) -> None:
    """Fifty requests."""
    here = Quotas(session, rng)
    try:
        for _ in range(STEPS):
            step = here.any_of((55, Quotas.change), (45, Quotas.describe))
            step(here)
            if step is Quotas.change:
                here.settle()
    finally:
        here.tidy()


KINDS = {"quotas": walk}
