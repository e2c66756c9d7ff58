"""The clusters of a test run, behind the fixtures of `pytest_plugin.py`."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidelog.control.waiting import summary
from tidelog.embedded.cluster_settings import ClusterError
from tidelog.embedded.running import run
from tidelog.testing.shared import SharedCluster
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tidelog.control.state import ClusterState, GroupState
    from tidelog.embedded.running import RunningCluster

__all__ = ["Clusters", "new_cluster", "own_state"]

LOG_LINES_MAX = 100
# Retention keeps its five minutes, because a test may write records with old timestamps.
FAST = {
    "group.min.session.timeout.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.heartbeat.interval.ms": 200,
    "group.streams.min.heartbeat.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
}
FAST_OF_SEVERAL = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
FAST_OF_TIER = {"remote.log.manager.task.interval.ms": 500}
KAFKA = {  # which a developer's broker has not
    "group.initial.rebalance.delay.ms": 3000,
    "group.streams.initial.rebalance.delay.ms": 3000,
}


def new_cluster(options: Mapping[str, Any]) -> RunningCluster:
    """Return a cluster that does not run yet. `options` are those of the marker, all of them."""
    brokers, tiered = options["brokers"], options["tiered"]
    profile: dict[str, Any] = dict(KAFKA)
    if options["profile"] == "fast":
        profile = FAST | (FAST_OF_SEVERAL if brokers > 1 else {})
        profile |= FAST_OF_TIER if tiered is not False else {}
    topics = ("*",) if tiered is not False else ()
    settings = {**profile, **options["settings"]}
    security = options.get("security")
    return run(settings, brokers=brokers, tiered=tiered, tiered_topics=topics, security=security)


class Clusters:
    """The running clusters: one for each set of options that tests ask for, kept to the end."""

    def __init__(self) -> None:
        self._by_options: list[tuple[Mapping[str, Any], RunningCluster]] = []
        self._shared: dict[str, SharedCluster] = {}
        """Those of all processes of the test run, by their options."""
        self._made: list[RunningCluster] = []
        """Those of the test that runs, by `tidelog_cluster_factory`."""
        self._left: list[tuple[RunningCluster, str]] = []
        """Topics of tests that ended the brokers; deleted when these run again."""
        self._log_starts: dict[int, int] = {}
        self.current: RunningCluster | None = None
        """The one that the fixtures show, if this process runs it."""
        self.token = secrets.token_hex(3)

    def get(self, options: Mapping[str, Any]) -> RunningCluster:
        """Return the cluster with these options, and start it if it is new."""
        for known, cluster in self._by_options:
            if known == options:
                self.current = cluster
                return cluster
        cluster = new_cluster(options).start()
        self._by_options.append((options, cluster))
        self.current = cluster
        return cluster

    def shared(self, options: Mapping[str, Any], folder: Path) -> str:
        """Return the address of the cluster with these options that all processes with this folder
        share."""
        text = json.dumps(options, sort_keys=True, default=str)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        one = self._shared.get(name)
        if one is None:
            one = self._shared[name] = SharedCluster(folder / name)
        servers = one.join(lambda: new_cluster(options).start())
        self.current = one.own
        return servers

    def make(self, options: Mapping[str, Any]) -> RunningCluster:
        """Start a cluster for one test."""
        cluster = new_cluster(options).start()
        self._made.append(cluster)
        return cluster

    def stop_made(self) -> None:
        """Stop the clusters of one test; the test may have stopped or killed them."""
        while self._made:
            self._made.pop().stop()

    def undo(self, cluster: RunningCluster, end: Callable[[], object]) -> None:
        """End what a test did to a cluster, unless that is gone with the brokers' process."""
        try:
            end()
        except TidelogError:
            if _has_process(cluster):
                raise

    def delete_topic(self, cluster: RunningCluster, name: str, *, missing_ok: bool) -> None:
        """Delete a topic of a test, later if the test has left brokers that do not run."""
        try:
            cluster.delete_topic(name, missing_ok=missing_ok)
        except ClusterError:
            if _is_whole(cluster):
                raise
            self._left.append((cluster, name))

    def stop(self) -> None:
        """Stop all; ClusterError if one had ended on its own."""
        errors = []
        ends = [cluster.stop for _, cluster in self._by_options]
        ends += [one.leave for one in self._shared.values()]
        for end in ends:
            try:
                end()
            except ClusterError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def mend(self) -> list[str]:
        """Start what does not run and thaw what is frozen, before a test; return what was wrong.

        TidelogError if a broker does not start.
        """
        wrong = []
        own = [one.own for one in self._shared.values() if one.own is not None]
        for cluster in (*(cluster for _, cluster in self._by_options), *own):
            wrong += _mend(cluster)
            self._log_starts[id(cluster)] = len(cluster.log)
        while self._left:
            cluster, name = self._left.pop()
            try:
                cluster.delete_topic(name, missing_ok=True)
            except ClusterError as error:
                wrong.append(f"it stays: {error}")
        return wrong

    def report(
        self, topics: Sequence[str], ids: Sequence[str], *, shared: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield titles and texts for a test that failed; no topics are all of them. `ids` are the
        groups and transactional ids that are the test's."""
        used = [self.current] if shared and self.current is not None else []
        for number, cluster in enumerate([*used, *self._made], 1):
            name = f"cluster {number}" if len(used) + len(self._made) > 1 else "cluster"
            lines = cluster.log[self._log_starts.get(id(cluster), 0) :].splitlines()
            if len(lines) > LOG_LINES_MAX:
                left = len(lines) - LOG_LINES_MAX
                lines = [f"... {left} lines before", *lines[-LOG_LINES_MAX:]]
            yield f"tidelog {name}: log", "\n".join(lines) or "(nothing in this test)"
            try:
                state = cluster.state(topics=list(topics) or None, missing_ok=True)
                text = summary(own_state(state, topics, ids) if topics else state)
            except TidelogError as error:
                text = str(error)
            yield f"tidelog {name}: state", text


def own_state(state: ClusterState, topics: Sequence[str], ids: Sequence[str]) -> ClusterState:
    """Leave out the groups and transactions that have neither these topics nor these ids."""

    def is_of(group: GroupState) -> bool:
        read = {one.topic for one in group.offsets} | {one.topic for one in group.shares}
        return group.group_id in ids or not read.isdisjoint(topics)

    groups = filter(is_of, state.groups)
    transactions = (
        one
        for one in state.transactions
        if one.transactional_id in ids or any(each.topic in topics for each in one.partitions)
    )
    return replace(state, groups=tuple(groups), transactions=tuple(transactions))


def _has_process(cluster: RunningCluster) -> bool:
    """Whether the process of the brokers runs, if no broker does."""
    try:
        cluster.change_brokers("brokers.describe")
    except TidelogError:
        return False
    return True


def _is_whole(cluster: RunningCluster) -> bool:
    """Whether all brokers run and none is frozen."""
    try:
        brokers = cluster.change_brokers("brokers.describe").brokers
    except TidelogError:
        return False
    return all(broker.is_running and not broker.is_frozen for broker in brokers)


def _mend(cluster: RunningCluster) -> list[str]:
    try:
        brokers = cluster.change_brokers("brokers.describe").brokers
    except TidelogError as error:
        cluster.kill()
        cluster.start()
        return [f"the brokers were started again: {error}"]
    wrong = []
    for state, broker in zip(brokers, cluster.brokers, strict=True):
        if state.is_frozen:
            broker.thaw()
            wrong.append(f"broker {broker.node_id} was frozen")
    down = [str(state.node_id) for state in brokers if not state.is_running]
    if down:
        cluster.start_brokers()
        wrong.append(f"not running, and started again: broker {', '.join(down)}")
    return wrong
