"""Cases: DescribeClientQuotas, AlterClientQuotas, DescribeUserScramCredentials.

Quotas are removed at the end of a case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.registry import case
from compat.eventually import eventually

if TYPE_CHECKING:
    from compat.conformance.session import Session

EXACT, DEFAULT, SPECIFIED = range(3)
Entity = dict[str, str | None]


def entry(entity: Entity, **quotas: float | None) -> dict[str, Any]:
    """What sets quotas of an entity; None removes."""
    return {
        "entity": [{"entity_type": k, "entity_name": v} for k, v in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in quotas.items()
        ],
    }


def asked(*components: tuple[str, int, str | None], strict: bool = False) -> dict[str, Any]:
    named = [
        {"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components
    ]
    return {"components": named, "strict": strict}


def alter(s: Session, version: int, *entries: dict[str, Any], **more: bool) -> None:
    """One entry a request: those of several come in the order of a hash map."""
    for one in entries:
        s.ask("AlterClientQuotas", version, entries=[one], **more)


def settled(s: Session, kind: str, name: str | None, quotas: int) -> None:
    """Wait until an entity has so many quotas: a broker knows the controller's decision later."""
    wanted = (kind, DEFAULT if name is None else EXACT, name)

    def known(answer: dict[str, Any]) -> bool:
        return sum(len(one["values"]) for one in answer["entries"] or ()) == quotas

    fields = asked(wanted, strict=True)
    eventually(lambda: s.quietly("DescribeClientQuotas", 1, **fields), known, 10.0)


def described(s: Session, version: int, *filters: dict[str, Any]) -> None:
    """Entities and values come in the order of a hash map."""
    for one in filters:
        answer = s.quietly("DescribeClientQuotas", version, **one)
        found = {
            repr([(each["entity_type"], each["entity_name"]) for each in listed["entity"]]): dict(
                sorted((value["key"], value["value"]) for value in listed["values"])
            )
            for listed in answer.pop("entries") or ()
        }
        s.record("DescribeClientQuotas", {**answer, "entries": dict(sorted(found.items()))})


@case("AlterClientQuotas")
def refusals(s: Session, version: int) -> None:
    client: Entity = {"client-id": s.name}
    alter(
        s,
        version,
        entry({}, producer_byte_rate=5.0),
        entry({"": "x"}, producer_byte_rate=5.0),
        entry({"group": "x"}, producer_byte_rate=5.0),
        entry({"client-id": ""}, producer_byte_rate=5.0),
        entry({"user": ""}, producer_byte_rate=5.0),
        entry({"ip": ""}, connection_creation_rate=5.0),
        entry({"ip": "1.2.3.4", "user": "x"}, connection_creation_rate=5.0),
        entry({"ip": "1.2.3.400"}, connection_creation_rate=5.0),
        entry({"ip": "1.2.3.4"}, producer_byte_rate=5.0),
        entry({"ip": "1.2.3.4"}, connection_creation_rate=2147483648.0),
        entry({"ip": "1.2.3.4"}, connection_creation_rate=1.5),
        entry({"ip": "1.2.3.4"}, connection_creation_rate=-1.0),
        entry(client, connection_creation_rate=5.0),
        entry(client, no_such_key=5.0),
        entry(client, no_such_key=None),
        entry(client, producer_byte_rate=-5.0),
        entry(client, producer_byte_rate=1.5),
        entry(client, producer_byte_rate=1e19),
        entry(client, consumer_byte_rate=1.0000001, request_percentage=0.0),
    )
    twice = entry(client, producer_byte_rate=5.0)
    twice["ops"] *= 2
    alter(s, version, twice, entry(client))
    s.ask("AlterClientQuotas", version, entries=[])
    named = entry(client, producer_byte_rate=5.0)
    named["entity"].append({"entity_type": "client-id", "entity_name": f"{s.name}.other"})
    alter(s, version, named, validate_only=True)
    described(s, 1, asked(("client-id", EXACT, s.name)))


@case("AlterClientQuotas")
def set_and_removed(s: Session, version: int) -> None:
    client: Entity = {"client-id": s.name}
    alter(s, version, entry(client, producer_byte_rate=9e18, request_percentage=0.5))
    settled(s, "client-id", s.name, 2)
    one = asked(("client-id", EXACT, s.name))
    described(s, 1, one)
    alter(s, version, entry(client, producer_byte_rate=6.0, consumer_byte_rate=7.0))
    settled(s, "client-id", s.name, 3)
    described(s, 1, one)
    alter(s, version, entry(client, producer_byte_rate=8.0), validate_only=True)
    alter(s, version, entry(client, producer_byte_rate=None, consumer_byte_rate=-7.0))
    described(s, 1, one)
    alter(s, version, entry(client, producer_byte_rate=None, consumer_byte_rate=None))
    alter(s, version, entry(client, request_percentage=None, controller_mutation_rate=None))
    settled(s, "client-id", s.name, 0)
    described(s, 1, one)


@case("AlterClientQuotas")
def an_entity_twice(s: Session, version: int) -> None:
    """The first one counts, the answer is that of the second."""
    client: Entity = {"client-id": s.name}
    first, second = entry(client, producer_byte_rate=5.0), entry(client, producer_byte_rate=6.0)
    s.ask("AlterClientQuotas", version, entries=[first, second])
    settled(s, "client-id", s.name, 1)
    described(s, 1, asked(("client-id", EXACT, s.name)))
    alter(s, version, entry(client, producer_byte_rate=None))


@case("DescribeClientQuotas")
def filters(s: Session, version: int) -> None:
    user, client = f"{s.name}.u", f"{s.name}.c"
    entities: list[Entity] = [
        {"user": user},
        {"user": user, "client-id": client},
        {"client-id": client, "user": None},
        {"client-id": None, "user": user},
        {"client-id": client},
        {"ip": "1.2.3.4"},
        {"ip": None},
    ]
    keys = ["connection_creation_rate" if "ip" in one else "producer_byte_rate" for one in entities]
    for number, (entity, key) in enumerate(zip(entities, keys, strict=True), 9):
        alter(s, 1, entry(entity, **{key: number * 1e6}))
    settled(s, "ip", None, 1)
    for strict in (False, True):
        described(
            s,
            version,
            asked(("user", EXACT, user), strict=strict),
            asked(("client-id", EXACT, client), strict=strict),
            asked(("user", EXACT, user), ("client-id", EXACT, client), strict=strict),
            asked(("user", EXACT, user), ("client-id", DEFAULT, None), strict=strict),
            asked(("user", DEFAULT, None), ("client-id", EXACT, client), strict=strict),
            asked(("user", SPECIFIED, None), ("client-id", SPECIFIED, None), strict=strict),
            asked(("ip", SPECIFIED, None), strict=strict),
            asked(("ip", DEFAULT, None), strict=strict),
            asked(("ip", EXACT, "1.2.3.4"), strict=strict),
        )
    for entity, key in zip(entities, keys, strict=True):
        alter(s, 1, entry(entity, **{key: None}))
    settled(s, "ip", None, 0)


@case("DescribeClientQuotas")
def refused_filters(s: Session, version: int) -> None:
    for fields in (
        asked(("", EXACT, "x")),
        asked(("group", EXACT, "x")),
        asked(("user", EXACT, "x"), ("user", DEFAULT, None)),
        asked(("user", EXACT, None)),
        asked(("user", DEFAULT, "x")),
        asked(("user", SPECIFIED, "x")),
        asked(("user", 3, None)),
        asked(("user", EXACT, "x"), ("ip", SPECIFIED, None)),
        asked(("ip", EXACT, "1.2.3.4"), ("client-id", DEFAULT, None)),
        asked(("user", EXACT, f"{s.name}.none")),
    ):
        s.ask("DescribeClientQuotas", version, **fields)


@case("DescribeUserScramCredentials")
def users_without_credentials(s: Session, version: int) -> None:
    for names in (None, [], [f"{s.name}.none"], [""], [f"{s.name}.two"] * 2):
        users = None if names is None else [{"name": name} for name in names]
        s.ask("DescribeUserScramCredentials", version, users=users)
