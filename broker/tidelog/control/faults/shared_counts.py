"""One count of a rule for brokers in processes of their own, so that `once()` is once in all.

Brokers of one process share their counts. An isolated broker reports each request that a rule with
a trigger matches, and the cluster decides: it keeps a call of `broker.await_matches` open to each
such broker, and answers by `broker.decide`. The request waits meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.control.calls import Call, Nothing
from tidelog.control.faults.rules import Count
from tidelog.control.values import to_json
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "follow"]


@dataclass(frozen=True)
class Matches:
    """Rules that matched a request, by the number of the question."""

    rules: dict[int, int]


@dataclass(frozen=True)
class Decisions:
    """Whether the rule applies, by the number of the question."""

    applies: dict[int, bool]


async def _await(control: BrokerControl, _: Nothing) -> Matches:
    """Return the rules that have matched requests since the last call, when there are any."""
    return Matches(await control.request_faults.questions.taken())


def _decide(control: BrokerControl, args: Decisions) -> Nothing:
    """Let requests go on, with or without the fault."""
    control.request_faults.questions.decide(args.applies)
    return Nothing()


def follow(control: ClusterControl) -> None:
    """Decide for all isolated brokers while there are rules with triggers."""
    if not control.counts_for_processes:
        return
    for node in control.running():
        if node.node_id not in control.followed:
            control.followed[node.node_id] = asyncio.ensure_future(_follow(control, node))


async def _follow(control: ClusterControl, node: ControlledNode) -> None:
    """Decide for a broker until it ends; its next start is followed again."""
    with contextlib.suppress(TidelogError):
        while node.is_running and not node.is_frozen and control.counts_for_processes:
            asked: Matches = await node.ask("broker.await_matches", {})
            decided = {number: _applies(control, rule) for number, rule in asked.rules.items()}
            if decided:
                await node.ask("broker.decide", to_json(Decisions(decided)))
    del control.followed[node.node_id]


def _applies(control: ClusterControl, rule_id: int) -> bool:
    for rule in control.fault_rules:
        if rule.id == rule_id and rule.is_enabled:
            return control.fault_counts.setdefault(rule_id, Count()).applies(rule.trigger)
    return False  # removed or disabled meanwhile


CALLS = (
    Call("broker.await_matches", "broker", Nothing, Matches, _await),
    Call("broker.decide", "broker", Decisions, Nothing, _decide),
)
