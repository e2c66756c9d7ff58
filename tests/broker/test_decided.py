"""Handlers of what the active controller decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.handler_calls import make_context
from tidelog.api.decided import decided
from tidelog.cluster.controller.decisions import RefusedError
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import UnregisterBrokerResponse
from tidelog_protocol.messages.controller import BrokerHeartbeatResponse
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog_protocol.schema import Message


def answer(key: ApiKey, outcome: Message | Exception) -> Any:
    async def decide(_context: Any, _request: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return asyncio.run(decided(decide)(make_context(key, 0), None))


def test_the_answer_is_the_controllers() -> None:
    response = BrokerHeartbeatResponse(is_fenced=True)
    assert answer(ApiKey.BROKER_HEARTBEAT, response) is response


@pytest.mark.parametrize("kind", [RefusedError, StorageError])
def test_a_refusal_has_its_text_where_there_is_a_field_for_it(kind: type[Exception]) -> None:
    error = kind(ErrorCode.NOT_CONTROLLER, "the text")
    response = answer(ApiKey.UNREGISTER_BROKER, error)
    assert isinstance(response, UnregisterBrokerResponse)
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_CONTROLLER, "the text")
    response = answer(ApiKey.BROKER_HEARTBEAT, error)
    assert isinstance(response, BrokerHeartbeatResponse)
    assert response.error_code == ErrorCode.NOT_CONTROLLER


def test_any_other_error_is_a_bug() -> None:
    with pytest.raises(KeyError):
        answer(ApiKey.BROKER_HEARTBEAT, KeyError("a bug"))
