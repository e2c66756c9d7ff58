"""Tables of client quotas: describing and altering (KIP-546)."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)

__all__ = [
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
]


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    """Ask for the quotas of matching entities; match types: 0 exact, 1 default, 2 any name.

    v1: flexible
    """

    class ComponentData(Struct):
        entity_type: str = string()
        match_type: int = int8()
        match: str | None = string(nullable="0+")

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    """Entities and their quotas; no entries after an error.

    v1: flexible
    """

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")  # null: the default

        class ValueData(Struct):
            key: str = string()
            value: float = float64()

        entity: list[EntityData] = array(EntityData)
        values: list[ValueData] = array(ValueData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    """Set or remove quotas of entities.

    v1: flexible
    """

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")  # null: the default

        class OpData(Struct):
            key: str = string()
            value: float = float64()  # ignored if the quota is removed
            remove: bool = boolean()

        entity: list[EntityData] = array(EntityData)
        ops: list[OpData] = array(OpData)

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    """A result for each entity.

    v1: flexible
    """

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        entity: list[EntityData] = array(EntityData)

    throttle_time_ms: int = int32()
    entries: list[EntryData] = array(EntryData)
