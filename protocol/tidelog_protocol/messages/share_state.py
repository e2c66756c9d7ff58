"""Tables of the state of share groups, between brokers (KIP-932): Initialize-, Read-, Write- and
DeleteShareGroupState, ReadShareGroupStateSummary."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid

__all__ = [
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "InitializeShareGroupStateRequest",
    "InitializeShareGroupStateResponse",
    "ReadShareGroupStateRequest",
    "ReadShareGroupStateResponse",
    "ReadShareGroupStateSummaryRequest",
    "ReadShareGroupStateSummaryResponse",
    "WriteShareGroupStateRequest",
    "WriteShareGroupStateResponse",
]


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    """Begin the state of share partitions, from the group coordinator."""

    class InitializeStateData(Struct):
        class PartitionData(Struct):
            partition: int = int32()
            state_epoch: int = int32()
            start_offset: int = int64()  # -1: decided later

        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)

    PartitionData = InitializeStateData.PartitionData


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    """A result for each share partition."""

    class InitializeStateResult(Struct):
        class PartitionResult(Struct):
            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[InitializeStateResult] = array(InitializeStateResult)

    PartitionResult = InitializeStateResult.PartitionResult


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    """Read the state of share partitions, from their leader."""

    class ReadStateData(Struct):
        class PartitionData(Struct):
            partition: int = int32()
            leader_epoch: int = int32()

        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)

    PartitionData = ReadStateData.PartitionData


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    """The state of each share partition."""

    class ReadStateResult(Struct):
        class PartitionResult(Struct):
            class StateBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()  # 0: available; 2: acknowledged; 4: archived
                delivery_count: int = int16()

            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32()
            start_offset: int = int64()  # -1: not decided yet
            state_batches: list[StateBatch] = array(StateBatch)

        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[ReadStateResult] = array(ReadStateResult)

    PartitionResult = ReadStateResult.PartitionResult
    StateBatch = PartitionResult.StateBatch


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    """Change the state of share partitions, from their leader.

    v1: the number of offsets whose delivery is complete (KIP-1226)
    """

    class WriteStateData(Struct):
        class PartitionData(Struct):
            class StateBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()
                delivery_count: int = int16()

            partition: int = int32()
            state_epoch: int = int32()
            leader_epoch: int = int32()
            start_offset: int = int64()  # -1: unchanged
            delivery_complete_count: int = int32("1+", default=-1)
            state_batches: list[StateBatch] = array(StateBatch)

        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)

    PartitionData = WriteStateData.PartitionData
    StateBatch = PartitionData.StateBatch


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    """A result for each share partition.

    v1: as v0
    """

    class WriteStateResult(Struct):
        class PartitionResult(Struct):
            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[WriteStateResult] = array(WriteStateResult)

    PartitionResult = WriteStateResult.PartitionResult


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    """Delete the state of share partitions, from the group coordinator."""

    class DeleteStateData(Struct):
        class PartitionData(Struct):
            partition: int = int32()

        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)

    PartitionData = DeleteStateData.PartitionData


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    """A result for each share partition."""

    class DeleteStateResult(Struct):
        class PartitionResult(Struct):
            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[DeleteStateResult] = array(DeleteStateResult)

    PartitionResult = DeleteStateResult.PartitionResult


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    """Read the start offsets of share partitions, from the group coordinator.

    v1: the response has the number of offsets whose delivery is complete (KIP-1226)
    """

    class ReadStateSummaryData(Struct):
        class PartitionData(Struct):
            partition: int = int32()
            leader_epoch: int = int32()

        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)

    PartitionData = ReadStateSummaryData.PartitionData


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    """The state of each share partition without its batches.

    v1: the number of offsets whose delivery is complete
    """

    class ReadStateSummaryResult(Struct):
        class PartitionResult(Struct):
            partition: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32()
            leader_epoch: int = int32()
            start_offset: int = int64()
            delivery_complete_count: int = int32("1+", default=-1)

        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array(PartitionResult)

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)

    PartitionResult = ReadStateSummaryResult.PartitionResult
