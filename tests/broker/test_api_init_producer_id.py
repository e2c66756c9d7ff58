"""InitProducerId: blocks of ids, and what is refused before a coordinator is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath
from support.handler_calls import make_context
from tidelog.api.transactions import TransactionsApi
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.coordinators.transactions.producer_ids import ProducerIds
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txns import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Blocks:
    """A controller that gives blocks of two ids, once it is allowed to."""

    def __init__(self) -> None:
        self.asked = 0
        self.allowed = asyncio.Event()
        self.failure: Exception | None = None

    async def allocate(self) -> range:
        self.asked += 1
        first = 100 * self.asked
        await self.allowed.wait()
        if self.failure is not None:
            raise self.failure
        return range(first, first + 2)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.transactions.on_image(MetadataDelta(None, path.image), path.image)
    yield path
    path.transactions.close()
    path.logs.abandon()


def api_of(path: DataPath, blocks: Blocks) -> TransactionsApi:
    path.transactions.producer_ids = ProducerIds(blocks.allocate)
    return TransactionsApi(path.transactions, lambda group_id: 0)


async def answer(api: TransactionsApi, version: int = 5, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**({"transactional_id": None} | fields))
    codec = API[ApiKey.INIT_PRODUCER_ID].request_codec(version)
    request = codec.decode(codec.encode(request))
    handler = api.handlers()[ApiKey.INIT_PRODUCER_ID]
    result = handler(make_context(ApiKey.INIT_PRODUCER_ID, version), request)
    response = result if isinstance(result, InitProducerIdResponse) else await result
    codec = API[ApiKey.INIT_PRODUCER_ID].response_codec(version)
    decoded: InitProducerIdResponse = codec.decode(codec.encode(response))
    return decoded


@pytest.mark.parametrize("version", range(6))
def test_ids_differ_and_epochs_are_0(path: DataPath, version: int) -> None:
    async def main() -> None:
        blocks = Blocks()
        blocks.allowed.set()
        api = api_of(path, blocks)
        answers = [await answer(api, version) for _ in range(5)]
        assert [(a.error_code, a.producer_id, a.producer_epoch) for a in answers] == [
            (0, producer_id, 0) for producer_id in (100, 101, 200, 201, 300)
        ]

    asyncio.run(main())


def test_requests_wait_for_a_block_that_is_already_asked_for(path: DataPath) -> None:
    async def main() -> None:
        blocks = Blocks()
        api = api_of(path, blocks)
        waiting = [asyncio.ensure_future(answer(api)) for _ in range(3)]
        await asyncio.sleep(0)
        assert blocks.asked == 1
        blocks.allowed.set()
        answers = await asyncio.gather(*waiting)
        assert [a.producer_id for a in answers] == [100, 101, 200]
        assert blocks.asked == 2

    asyncio.run(main())


def test_a_block_that_cannot_be_had_is_retriable_and_asked_for_again(path: DataPath) -> None:
    async def main() -> None:
        blocks = Blocks()
        blocks.allowed.set()
        blocks.failure = OSError(28, "No space left on device")
        api = api_of(path, blocks)
        refused = await answer(api)
        assert ErrorCode(refused.error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert ErrorCode(refused.error_code).retriable
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
        blocks.failure = None
        assert (await answer(api)).producer_id == 200

    asyncio.run(main())


def test_a_producer_with_an_id_gets_a_new_one(path: DataPath) -> None:
    async def main() -> None:
        blocks = Blocks()
        blocks.allowed.set()
        answered = await answer(api_of(path, blocks), producer_id=7, producer_epoch=3)
        assert (answered.error_code, answered.producer_id, answered.producer_epoch) == (0, 100, 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_id": 7}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        (
            {"transactional_id": "t", "transaction_timeout_ms": 0},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
        (
            {"transactional_id": "t", "transaction_timeout_ms": 900_001},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
        (
            {"transactional_id": "t", "transaction_timeout_ms": 60_000},
            ErrorCode.NOT_COORDINATOR,
        ),
    ],
)
def test_refusals(path: DataPath, fields: dict[str, Any], error: ErrorCode) -> None:
    async def main() -> None:
        blocks = Blocks()
        blocks.allowed.set()
        refused = await answer(api_of(path, blocks), **fields)
        assert ErrorCode(refused.error_code) is error
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)

    asyncio.run(main())
