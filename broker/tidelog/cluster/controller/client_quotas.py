"""Pure decisions about client quotas: AlterClientQuotas → ClientQuotaRecords.

Codes and texts are those of Kafka's ClientQuotaControlManager. An entity is changed as a whole or
not at all; one failure does not stop the others. A quota that is set to its present value, or
removed where there is none, gets no record.
"""

from __future__ import annotations

import math
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.controller.decisions import Decision, RefusedError
from tidelog.cluster.metadata.image import CLIENT_ID, IP, USER, QuotaEntity, quota_entity
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.metadata_records import ClientQuotaRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.messages.quotas import AlterClientQuotasRequest

    Entry = AlterClientQuotasRequest.EntryData

__all__ = [
    "CONNECTION_CREATION_RATE",
    "CONSUMER_BYTE_RATE",
    "CONTROLLER_MUTATION_RATE",
    "PRODUCER_BYTE_RATE",
    "REQUEST_PERCENTAGE",
    "EntityResult",
    "alter_client_quotas",
]

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_INT32_MAX = 2**31 - 1
_FRACTION_MAX = 1e-6
# The largest integral value and its type; None for keys that take fractions.
_OF_CLIENTS: Mapping[str, tuple[float, str] | None] = {
    PRODUCER_BYTE_RATE: (2.0**63, "a LONG"),
    CONSUMER_BYTE_RATE: (2.0**63, "a LONG"),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_OF_ADDRESSES: Mapping[str, tuple[float, str] | None] = {
    CONNECTION_CREATION_RATE: (_INT32_MAX, "an INT")
}


class EntityResult(NamedTuple):
    """The answer for one entity."""

    entity: QuotaEntity
    code: ErrorCode
    message: str | None


def alter_client_quotas(
    image: ClusterImage, request: AlterClientQuotasRequest
) -> Decision[EntityResult]:
    """Decide a request's changes; for `validate_only` the caller drops the records."""
    records: list[ClientQuotaRecord] = []
    results: dict[QuotaEntity, EntityResult] = {}
    for entry in request.entries:
        entity = quota_entity({each.entity_type: each.entity_name for each in entry.entity})
        keys = [op.key for op in entry.ops]
        try:
            # As in Kafka, an entity with a key twice gets this error too.
            if entity in results or len(set(keys)) != len(keys):
                raise _invalid(f"Ignoring duplicate entity {_text(entity)}")
            records += _alter(image, entity, entry)
        except RefusedError as refusal:
            results[entity] = EntityResult(entity, refusal.code, refusal.message)
        else:
            results[entity] = EntityResult(entity, ErrorCode.NONE, None)
    return Decision(records, list(results.values()))


def _alter(image: ClusterImage, entity: QuotaEntity, entry: Entry) -> list[ClientQuotaRecord]:
    keys = _keys_of(entity)
    current = image.client_quotas.get(entity, {})
    records = []
    for op in entry.ops:
        if op.remove:
            if op.key not in current:
                continue
        else:
            _check_value(keys, op.key, op.value)
            if current.get(op.key) == op.value:
                continue
        records.append(
            ClientQuotaRecord(
                entity=[
                    ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                key=op.key,
                value=0.0 if op.remove else op.value,
                remove=op.remove,
            )
        )
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, tuple[float, str] | None]:
    """Return the keys that an entity may have; RefusedError if there is no such entity."""
    names = dict(entity)
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    address = names[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _OF_ADDRESSES


def _is_address(text: str) -> bool:
    """Return whether a text is an address. Kafka also resolves names, which would block here."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, tuple[float, str] | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    integral = keys[key]
    if integral is None:
        return
    largest, kind = integral
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if math.fmod(value, 1.0) > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _text(entity: QuotaEntity) -> str:
    """Return an entity as Java prints it."""
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{names}}})"


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
