"""The calls on request faults: add, list, disable, enable, remove, clear, wait for hits."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import MISSING, ControlError
from tidelog.control.faults.hits import wait_for_hits
from tidelog.control.faults.rules import Count, Effect, Match, Rule, Trigger, checked
from tidelog.control.faults.shared_counts import follow
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "Rules", "clear_faults", "install"]


@dataclass(frozen=True)
class Rules:
    """All request faults, in the order in which they were added."""

    rules: tuple[Rule, ...] = ()
    is_counted_by_cluster: bool = False


@dataclass(frozen=True)
class Add:
    """A fault to add."""

    effect: Effect
    match: Match = field(default_factory=Match)
    trigger: Trigger = field(default_factory=Trigger)


@dataclass(frozen=True)
class One:
    """A fault by its id."""

    id: int


@dataclass(frozen=True)
class Wait:
    """How many hits of a fault to wait for, and how long."""

    id: int
    hits: int = 1
    seconds: float = 10.0


@dataclass(frozen=True)
class Counted:
    """Calls and hits by rule id in the process `pid`, whose brokers count together."""

    pid: int
    counts: dict[int, tuple[int, ...]]


# -- on one broker ---------------------------------------------------------------------------------


def _check(control: BrokerControl, rule: Rule) -> Nothing:
    """Refuse a rule whose topic or partition does not exist."""
    image, match = control.server.metadata.image, rule.match
    if match.topic is None:
        return Nothing()
    topics = [topic for name, topic in image.topics.items() if fnmatchcase(name, match.topic)]
    if not topics:
        text = f"there is no topic {match.topic!r}: create it first"
        raise ControlError(text, field="match.topic")
    count = max(len(topic.partitions) for topic in topics)
    if match.partition is not None and not 0 <= match.partition < count:
        text = f"{match.topic} has {count} partitions: there is no {match.partition}"
        raise ControlError(text, field="match.partition")
    return Nothing()


def _set(control: BrokerControl, args: Rules) -> Nothing:
    """Apply these rules from now on, and no others."""
    control.request_faults.set_rules(args.rules, asks=args.is_counted_by_cluster)
    return Nothing()


def _counts(control: BrokerControl, _: Nothing) -> Counted:
    """Return how often each rule matched and applied."""
    counts = control.request_faults.counts()
    return Counted(os.getpid(), {rule: (each.calls, each.hits) for rule, each in counts.items()})


# -- on the cluster --------------------------------------------------------------------------------


async def _add(control: ClusterControl, args: Add) -> Rule:
    """Add a fault: requests that match it fail as its effect says, when its trigger says."""
    rule = checked(Rule(control.next_fault_id, args.match, args.trigger, args.effect))
    if rule.match.broker is not None:
        try:
            control.node(rule.match.broker)
        except ControlError as error:
            raise ControlError(error.message, field="match.broker") from None
    if rule.effect.kind == "stale_leader" and len(control.cluster.brokers) == 1:
        raise ControlError("stale_leader needs a second broker to name", field="effect.kind")
    nodes = control.running()
    if nodes:
        await nodes[0].ask("broker.check_fault", to_json(rule))
    control.next_fault_id += 1
    control.fault_rules = (*control.fault_rules, rule)
    await _install_all(control)
    return rule


async def _install_all(control: ClusterControl) -> None:
    known = {rule.id for rule in control.fault_rules}
    for gone in control.fault_counts.keys() - known:
        del control.fault_counts[gone]
    await control.ask_all("broker.set_faults", to_json(_rules_of(control)))
    follow(control)


def _rules_of(control: ClusterControl) -> Rules:
    return Rules(control.fault_rules, control.counts_for_processes)


async def install(control: ClusterControl, node: ControlledNode) -> None:
    """Apply the rules on a broker that has just started."""
    if control.fault_rules:
        await node.ask("broker.set_faults", to_json(_rules_of(control)))
        follow(control)


async def _list(control: ClusterControl, _: Nothing) -> Rules:
    """Return all request faults with their calls and hits."""
    if not control.fault_rules:
        return Rules()
    by_process = {
        counted.pid: counted.counts
        for counted in (await control.ask_all("broker.fault_counts", {})).values()
    }
    rules = []
    for rule in control.fault_rules:
        counts = [counts[rule.id] for counts in by_process.values() if rule.id in counts]
        own = control.fault_counts.get(rule.id, Count())
        counts.append((own.calls, own.hits))
        total = Count(sum(calls for calls, _ in counts), sum(hits for _, hits in counts))
        rules.append(rule.counted(total))
    return Rules(tuple(rules))


async def _find(control: ClusterControl, rule_id: int) -> Rule:
    for rule in (await _list(control, Nothing())).rules:
        if rule.id == rule_id:
            return rule
    raise ControlError(f"there is no fault {rule_id}", field="id", status=MISSING)


async def _disable(control: ClusterControl, args: One) -> Rule:
    """Let a fault match nothing until it is enabled again; it keeps its counts."""
    return await _switch(control, args.id, is_enabled=False)


async def _enable(control: ClusterControl, args: One) -> Rule:
    """Let a disabled fault match again; its trigger goes on from its counts."""
    return await _switch(control, args.id, is_enabled=True)


async def _switch(control: ClusterControl, rule_id: int, *, is_enabled: bool) -> Rule:
    await _find(control, rule_id)
    control.fault_rules = tuple(
        replace(rule, is_enabled=is_enabled) if rule.id == rule_id else rule
        for rule in control.fault_rules
    )
    await _install_all(control)
    return await _find(control, rule_id)


async def _remove(control: ClusterControl, args: One) -> Rule:
    """Remove a fault; return it with its last counts."""
    rule = await _find(control, args.id)
    control.fault_rules = tuple(each for each in control.fault_rules if each.id != args.id)
    await _install_all(control)
    return rule


async def clear_faults(control: ClusterControl, _: Nothing) -> Nothing:
    """Remove all request faults."""
    if control.fault_rules:
        control.fault_rules = ()
        await _install_all(control)
    return Nothing()


async def _wait(control: ClusterControl, args: Wait) -> Rule:
    """Wait until a fault has that many hits."""

    async def look() -> tuple[Rule, int, str]:
        rule = await _find(control, args.id)
        note = f"{rule.calls} requests matched{'' if rule.is_enabled else '; it is disabled'}"
        return rule, rule.hits, note

    return await wait_for_hits(f"fault {args.id}", look, args.hits, args.seconds)


CALLS = (
    Call("broker.check_fault", "broker", Rule, Nothing, _check),
    Call("broker.set_faults", "broker", Rules, Nothing, _set),
    Call("broker.fault_counts", "broker", Nothing, Counted, _counts),
    Call("faults.add", "cluster", Add, Rule, _add),
    Call("faults.list", "cluster", Nothing, Rules, _list),
    Call("faults.disable", "cluster", One, Rule, _disable),
    Call("faults.enable", "cluster", One, Rule, _enable),
    Call("faults.remove", "cluster", One, Rule, _remove),
    Call("faults.clear", "cluster", Nothing, Nothing, clear_faults),
    Call("faults.wait", "cluster", Wait, Rule, _wait),
)
