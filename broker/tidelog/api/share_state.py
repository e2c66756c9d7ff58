"""The state of share groups: Initialize-, Read-, Write- and DeleteShareGroupState and
ReadShareGroupStateSummary, between brokers (KIP-932).

Behaviour. Each partition has its own result, once everything is committed that it is from. A
request without a group or without topics gets an empty answer, as in Kafka's
ShareCoordinatorService; so does one with a topic without partitions, except for Initialize.

Version notes. WriteShareGroupState 1 and ReadShareGroupStateSummary 1 (KIP-1226): the number of
offsets whose delivery is complete.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import all_of
from tidelog.coordinators.share.wire import OPERATIONS, items_of, response_of
from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from typing import Any

    from tidelog.coordinators.share.share_states import ShareStates
    from tidelog.coordinators.share.wire import Operation
    from tidelog.network.dispatch import Deferred, Handler, RequestContext

__all__ = ["ShareStateApi"]


class ShareStateApi:
    """Handlers of the share coordinator."""

    def __init__(self, states: ShareStates) -> None:
        self._states = states

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {key: partial(self._perform, operation) for key, operation in OPERATIONS.items()}

    def _perform(
        self, operation: Operation, context: RequestContext, request: Any
    ) -> Deferred | Any:
        is_checked = operation is not OPERATIONS[ApiKey.INITIALIZE_SHARE_GROUP_STATE]
        is_whole = not is_checked or all(topic.partitions for topic in request.topics)
        if not request.group_id or not is_whole:
            return operation.answered[0]()
        items = items_of(operation, request)
        coordinator = self._states.coordinator
        works = [coordinator.perform(operation, request.group_id, item) for item in items]
        return context.answer_with(all_of(works), partial(response_of, operation, items))
