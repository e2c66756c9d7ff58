"""Alterations of client quotas; texts and codes are those of a Kafka 4.3.1."""

from __future__ import annotations

import pytest

from support.metadata import cluster
from tidelog.cluster.controller.client_quotas import alter_client_quotas
from tidelog.cluster.metadata.image import ClusterImage, quota_entity
from tidelog.cluster.metadata.replay import replay
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.quotas import AlterClientQuotasRequest

Entry = AlterClientQuotasRequest.EntryData
Entity = dict[str, str | None]
CLIENT: Entity = {"client-id": "c"}


def entry(entity: Entity, *ops: tuple[str, float | None]) -> Entry:
    return Entry(
        entity=[Entry.EntityData(entity_type=k, entity_name=v) for k, v in entity.items()],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def altered(
    image: ClusterImage, *entries: Entry
) -> tuple[ClusterImage, list[tuple[ErrorCode, str | None]], int]:
    decision = alter_client_quotas(image, AlterClientQuotasRequest(entries=list(entries)))
    after = replay(image, decision.records, offset=1, leader_epoch=1, controller_id=1)
    results = [(result.code, result.message) for result in decision.results]
    return after, results, len(decision.records)


def test_quotas_are_set_changed_and_removed() -> None:
    done = [(ErrorCode.NONE, None)]
    image, results, _ = altered(
        cluster(), entry(CLIENT, ("producer_byte_rate", 5.0), ("request_percentage", 0.5))
    )
    assert results == done
    key = quota_entity(CLIENT)
    assert image.client_quotas == {key: {"producer_byte_rate": 5.0, "request_percentage": 0.5}}
    unchanged = entry(CLIENT, ("producer_byte_rate", 5.0), ("consumer_byte_rate", None))
    assert altered(image, unchanged) == (image._replace(offset=1), done, 0)
    image, _, _ = altered(
        image, entry(CLIENT, ("producer_byte_rate", None), ("request_percentage", 2.0))
    )
    assert image.client_quotas == {key: {"request_percentage": 2.0}}
    image, _, _ = altered(image, entry(CLIENT, ("request_percentage", None)))
    assert image.client_quotas == {}


def test_the_order_of_an_entity_does_not_matter() -> None:
    assert quota_entity({"user": None, "client-id": "c"}) == (("client-id", "c"), ("user", None))
    assert quota_entity({"client-id": "c", "user": None}) == (("client-id", "c"), ("user", None))


def test_of_an_entity_named_twice_the_first_counts() -> None:
    image, results, _ = altered(
        cluster(),
        entry(CLIENT, ("producer_byte_rate", 5.0)),
        entry(CLIENT, ("producer_byte_rate", 6.0)),
        entry({"user": None}, ("consumer_byte_rate", 7.0)),
    )
    assert image.client_quotas == {
        (("client-id", "c"),): {"producer_byte_rate": 5.0},
        (("user", None),): {"consumer_byte_rate": 7.0},
    }
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c})"
    assert results == [(ErrorCode.INVALID_REQUEST, text), (ErrorCode.NONE, None)]


RATE, CONNECTIONS = "producer_byte_rate", "connection_creation_rate"


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        ({}, [(RATE, 1.0)], "Invalid empty client quota entity"),
        ({"group": "g"}, [(RATE, 1.0)], "Unhandled client quota entity type: group"),
        ({"user": ""}, [(RATE, 1.0)], "Empty user not supported"),
        ({"ip": "1.2.3"}, [(CONNECTIONS, 1.0)], "1.2.3 is not a valid IP or resolvable host."),
        ({"ip": None}, [(RATE, 1.0)], f"Invalid configuration key {RATE}"),
        ({"ip": "::1"}, [(CONNECTIONS, 1.5)], f"{CONNECTIONS} cannot be a fractional value."),
        (
            {"ip": "::1"},
            [(CONNECTIONS, 2.0**31)],
            f"Proposed value for {CONNECTIONS} is too large for an INT.",
        ),
        (CLIENT, [(RATE, 1e19)], f"Proposed value for {RATE} is too large for a LONG."),
        (CLIENT, [(RATE, 0.0)], f"Quota {RATE} must be greater than 0"),
        (CLIENT, [(CONNECTIONS, 1.0)], f"Invalid configuration key {CONNECTIONS}"),
        (
            CLIENT,
            [("request_percentage", 1.0), (RATE, 1.5)],
            f"{RATE} cannot be a fractional value.",
        ),
        (
            {"ip": "::1", "user": "u"},
            [(CONNECTIONS, 1.0)],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId",
        ),
        (
            CLIENT,
            [(RATE, 1.0), (RATE, 2.0)],
            "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c})",
        ),
    ],
)
def test_refusals_change_nothing(
    entity: Entity, ops: list[tuple[str, float | None]], message: str
) -> None:
    image, results, records = altered(cluster(), entry(entity, *ops))
    assert (results, records) == ([(ErrorCode.INVALID_REQUEST, message)], 0)
    assert image.client_quotas == {}
