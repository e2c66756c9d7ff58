"""The call that gives a cluster back as new, without a restart, for isolation between tests."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import called_back, drive
from tidelog.control import clock, logs
from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import REFUSED, UNANSWERED, ControlError
from tidelog.control.faults import devices, group, links

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS"]

END_S_MAX = 10.0
LOOK_AGAIN_S = 0.002


@dataclass(frozen=True)
class TopicNames:
    """The topics that a broker knows, without those of the brokers themselves."""

    names: tuple[str, ...]


async def _reset(control: ClusterControl, _: Nothing) -> Nothing:
    """Remove faults and changes of the clock; thaw brokers; abort transactions; delete
    transactional ids, groups and topics. Brokers that are stopped stay stopped."""
    for node in control.cluster.brokers:
        if node.is_frozen:
            await node.thaw()
    await group.clear_faults(control, Nothing())
    await links.heal(control, links.Heal())
    await devices.heal(control, devices.Heal())
    await clock.reset(control, Nothing())
    await logs.reset(control, Nothing())
    await control.ask_all("broker.end_transactions", {})
    deleting = (control.ask_all("broker.delete_groups", {}), _delete_topics(control))
    for result in await asyncio.gather(*deleting, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
    return Nothing()


async def _delete_topics(control: ClusterControl) -> None:
    known = (await control.ask_all("broker.topic_names", {})).values()
    names = sorted({name for one in known for name in one.names})
    if names:
        asked = {"names": names, "missing_ok": True}
        await control.first_of_majority().ask("broker.delete_topics", asked)
        await control.until(lambda: _left(control))


async def _left(control: ClusterControl) -> str | None:
    """Return which topics some broker still knows."""
    known = (await control.ask_all("broker.topic_names", {})).values()
    names = sorted({name for one in known for name in one.names})
    return f"topics are still known: {', '.join(names)}" if names else None


async def _end_transactions(control: BrokerControl, _: Nothing) -> Nothing:
    """Abort the transactions that this broker coordinates, and forget their ids."""
    server = control.server
    coordinator = server.parts.transactions.coordinator_in_use
    if coordinator is None:
        return Nothing()
    try:
        async with asyncio.timeout(END_S_MAX):
            while any(shard.transactions for shard in coordinator.led.active()):
                # The clocks were reset: some are of tomorrow.
                for _part in (*coordinator.abort_open(), *coordinator.forget_until(sys.maxsize)):
                    pass
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        text = f"transactions of broker {server.config.node_id} do not end within {END_S_MAX:g} s"
        raise ControlError(text, status=UNANSWERED) from None
    return Nothing()


async def _delete_groups(control: BrokerControl, _: Nothing) -> Nothing:
    """Delete the groups that this broker coordinates, with members or not."""
    node_id = control.server.config.node_id
    try:
        async with asyncio.timeout(END_S_MAX):
            deleting = control.server.parts.group_admin.delete_all()
            errors = await called_back(partial(drive, deleting))
    except TimeoutError:
        text = f"groups of broker {node_id} are not deleted within {END_S_MAX:g} s"
        raise ControlError(text, status=UNANSWERED) from None
    refused = sorted({error.name for error in errors if error})
    if refused:
        text = f"groups of broker {node_id} are not deleted: {', '.join(refused)}"
        raise ControlError(text, status=REFUSED)
    return Nothing()


def _topic_names(control: BrokerControl, _: Nothing) -> TopicNames:
    """Return the topics that this broker knows."""
    from tidelog.cluster.metadata.image import is_of_the_brokers  # noqa: PLC0415 - in a broker only

    topics = control.server.metadata.image.topics
    return TopicNames(tuple(name for name in topics if not is_of_the_brokers(name)))


CALLS = (
    Call("cluster.reset", "cluster", Nothing, Nothing, _reset),
    Call("broker.end_transactions", "broker", Nothing, Nothing, _end_transactions),
    Call("broker.delete_groups", "broker", Nothing, Nothing, _delete_groups),
    Call("broker.topic_names", "broker", Nothing, TopicNames, _topic_names),
)
