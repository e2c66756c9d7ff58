"""Time by control calls: an advance runs what falls due, and clients outlive it unless asked not
to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import in_thread, librdkafka, run, until
from support.txn_client import Nodes, TxnProducer
from tidelog.control import broker_clock
from tidelog.control.broker_clock import MovableTime
from tidelog.control.cluster_time import ClusterTime
from tidelog.control.errors import ControlError
from tidelog.runtime import SystemClock, system_runtime
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Any, Self

HOUR_MS = 3_600_000
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def produce(bootstrap: str, topic: str, *values: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(librdkafka(bootstrap, linger_ms=0))
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(60) == 0


class Member:
    """A consumer of a group on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Consumer

        self.values: list[bytes] = []
        self._is_over = False
        self._consumer = Consumer(
            librdkafka(bootstrap, group_id="g", auto_offset_reset="earliest")
            | {"session.timeout.ms": 45_000, "enable.auto.commit": False}
        )
        self._consumer.subscribe([topic])
        self._polling = asyncio.ensure_future(asyncio.to_thread(self._poll))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await self._polling

    def _poll(self) -> None:
        while not self._is_over:
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())
        self._consumer.close()


def group_of(cluster: tidelog.Cluster) -> Any:
    """The group "g" as its coordinator has it; None if it does not exist."""
    groups: Any = cluster.brokers[0].server._groups  # type: ignore[attr-defined]
    shard = groups.shard_of("g")
    return None if isinstance(shard, ErrorCode) else shard.groups.get("g")


def test_a_day_passes_for_the_broker_but_not_for_its_clients() -> None:
    async def test() -> None:
        async with tidelog.Cluster(QUICK) as cluster, Nodes(cluster.bootstrap_servers) as nodes:
            await cluster.create_topic("kept", config={"retention.ms": -1})
            await cluster.create_topic("short", config={"retention.ms": 24 * HOUR_MS})
            for topic in ("kept", "short"):
                await in_thread(produce, cluster.bootstrap_servers, topic, "a", "b", "c")
            producer = TxnProducer(nodes, "tx")
            assert await producer.init() is ErrorCode.NONE
            assert await producer.send("kept", b"d") is ErrorCode.NONE
            async with Member(cluster.bootstrap_servers, "kept") as member:
                await until(lambda: len(member.values) == 3)
                before = group_of(cluster).generation
                clocks = await cluster.clock.advance(hours=25)
                assert abs(clocks.brokers[1].ahead_ms - 25 * HOUR_MS) < 60_000
                check_retention(cluster)
                group = group_of(cluster)
                assert (group.generation, len(group.members)) == (before, 1)
                assert await producer.end(commit=True) is ErrorCode.NONE
                await until(lambda: len(member.values) == 4)
                assert await producer.send("kept", b"e") is ErrorCode.NONE
                await cluster.clock.advance(hours=1, expire_sessions=True)
                group = group_of(cluster)  # an empty group without offsets is deleted
                assert group is None or group.is_empty or group.generation > before
                assert await producer.end(commit=True) is not ErrorCode.NONE
                assert (await nodes.fetched("kept"))[0] == [b"a", b"b", b"c", b"d"]

    run(test)


def check_retention(cluster: tidelog.Cluster) -> None:
    """The records of "short" have gone, and their files too."""
    server: Any = cluster.brokers[0].server  # type: ignore[attr-defined]
    log = server.replicas.partition("short", 0).log
    assert log.log_start_offset == log.log_end_offset == 3
    names = server.runtime.files.list(f"{server.replicas.logs.log_dirs[0]}/short-0")
    assert [name for name in names if name.endswith(".deleted")] == []


REFUSED = (
    ("clock.advance", {"hours": -1}, "hours"),
    ("clock.advance", {"hours": 2, "seconds": -1}, "seconds"),
    ("clock.advance", {"days": float("nan")}, "days"),
    ("clock.advance", {"days": float("inf")}, "days"),
    ("clock.advance", {"days": 40_000}, "days"),
    ("clock.advance", {"days": 1, "hours": 1e12}, "hours"),
    ("clock.advance", {}, "seconds"),
    ("clock.advance", {"weeks": 1}, "weeks"),
    ("clock.speed", {"speed": 0}, "speed"),
    ("clock.speed", {"speed": -1}, "speed"),
    ("clock.speed", {"speed": 1e9}, "speed"),
    ("clock.skew", {"broker": 2, "ms": 1}, "broker"),
    ("clock.skew", {"broker": 1, "ms": 1 << 60}, "ms"),
)


def test_a_refused_call_names_the_field_and_changes_nothing() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            for call, arguments, field in REFUSED:
                with pytest.raises(ControlError) as raised:
                    await cluster.ask(call, arguments)
                assert raised.value.field == field
            clocks = await cluster.clock.describe()
            shown = clocks.brokers[1]
            assert (clocks.speed, shown.ahead_ms, shown.skew_ms, shown.speed) == (1, 0, 0, 1)

    run(test)


def test_time_stops_goes_on_and_runs_faster() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            frozen = (await cluster.clock.freeze()).brokers[1]
            assert frozen.speed == 0
            await asyncio.sleep(0.02)
            assert (await cluster.clock.describe()).brokers[1].wall_ms == frozen.wall_ms
            later = (await cluster.clock.advance(minutes=1)).brokers[1]
            assert later.wall_ms - frozen.wall_ms in range(59_999, 60_002)
            begun = (await cluster.clock.speed(1000)).brokers[1]
            await asyncio.sleep(0.02)
            assert (await cluster.clock.describe()).brokers[1].wall_ms - begun.wall_ms >= 20_000
            ahead_ms = (await cluster.clock.resume()).brokers[1].ahead_ms
            assert ahead_ms > 60_000
            skewed = (await cluster.clock.skew(1, -5000)).brokers[1]
            assert skewed.skew_ms == -5000
            assert abs(skewed.ahead_ms - ahead_ms) <= 1
            reset = (await cluster.clock.reset()).brokers[1]
            assert (reset.skew_ms, reset.speed) == (0, 1)
            assert abs(reset.wall_ms - SystemClock().wall_ms()) < 60_000
            moved = (await cluster.clock.advance(hours=1)).brokers[1]
            assert abs(moved.ahead_ms - HOUR_MS) < 60_000

    run(test)


def test_segments_go_to_the_tier_leave_the_disk_and_expire() -> None:
    ages = {"segment.ms": HOUR_MS / 6, "local.retention.ms": HOUR_MS, "retention.ms": 24 * HOUR_MS}
    config = {name: int(age) for name, age in ages.items()} | {"remote.storage.enable": True}

    async def test() -> None:
        async with tidelog.Cluster(tiered=True) as cluster:
            await cluster.create_topic("t", config=config)

            async def produced_and_waited(**length: int) -> tuple[int, int, int]:
                await in_thread(produce, cluster.bootstrap_servers, "t", "a", "b")
                await cluster.clock.advance(**length)
                server: Any = cluster.brokers[0].server  # type: ignore[attr-defined]
                log = server.replicas.partition("t", 0).log
                return log.log_start_offset, log.local_log_start_offset, log.highest_remote_offset

            assert await produced_and_waited(hours=2) == (0, 2, 1)
            assert await produced_and_waited(hours=2) == (0, 4, 3)
            assert (await cluster.state()).partition("t").remote != ()
            assert await produced_and_waited(hours=25) == (6, 6, 5)
            assert (await cluster.state()).partition("t").remote == ()

    run(test)


def test_a_broker_that_starts_again_has_the_time_of_the_others() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.clock.skew(2, 7000)
            await cluster.brokers[1].kill()
            await cluster.clock.advance(days=2)
            await cluster.brokers[1].start()
            await cluster.clock.freeze()
            shown = (await cluster.clock.describe()).brokers
            assert shown[1].wall_ms == shown[3].wall_ms == shown[2].wall_ms - 7000
            assert shown[2].skew_ms == 7000
            assert all(each.ahead_ms > 47 * HOUR_MS for each in shown.values())

    run(test)


def test_a_frozen_broker_gets_the_time_of_the_others_when_it_goes_on() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.brokers[1].freeze()
            assert list((await cluster.clock.advance(hours=3)).brokers) == [1, 3]
            await cluster.brokers[1].thaw()
            shown = (await cluster.clock.freeze()).brokers
            assert shown[1].wall_ms == shown[2].wall_ms == shown[3].wall_ms

    run(test)


def test_an_advance_does_not_wait_for_work_that_waits_for_a_frozen_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_clock, "SETTLE_S_MAX", 100_000)

    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            server: Any = cluster.brokers[0].server  # type: ignore[attr-defined]
            answer, is_due = asyncio.Event(), asyncio.Event()

            async def work() -> None:
                await server.runtime.work.sleep(60)
                is_due.set()
                await answer.wait()

            working = asyncio.ensure_future(work())
            await asyncio.sleep(0)
            await cluster.brokers[1].freeze()
            assert list((await cluster.clock.advance(minutes=2)).brokers) == [1, 3]
            assert is_due.is_set()
            answer.set()
            await working

    run(test)


@pytest.mark.parametrize(
    ("apart", "is_fenced", "waits"),
    [((), False, True), ((2,), False, False), ((2,), True, True), ((1,), False, False)],
)
def test_others_wait_for_a_broker_until_it_is_fenced(
    apart: tuple[int, ...], is_fenced: bool, waits: bool
) -> None:
    image = SimpleNamespace(is_alive=lambda node_id: node_id == 1 or not is_fenced)
    server: Any = SimpleNamespace(
        metadata=SimpleNamespace(image=image), config=SimpleNamespace(node_id=1)
    )
    assert broker_clock._waits_in_vain(server, apart) != waits


def test_an_open_transaction_outlives_an_advance_and_a_restart() -> None:
    swept = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}

    async def test() -> None:
        async with tidelog.Cluster(QUICK | swept) as cluster:
            await cluster.create_topic("t")
            async with Nodes(cluster.bootstrap_servers) as nodes:
                producer = TxnProducer(nodes, "tx")
                assert await producer.init() is ErrorCode.NONE
                assert await producer.send("t", b"a") is ErrorCode.NONE
                await cluster.clock.advance(hours=25)
                await cluster.brokers[0].stop()
                await cluster.brokers[0].start()
                server: Any = cluster.brokers[0].server  # type: ignore[attr-defined]
                coordinator = server._transactions.coordinator
                await until(lambda: not coordinator.led.is_loading)
                assert list(coordinator.abort_late()) == []
            async with Nodes(cluster.bootstrap_servers) as nodes:
                producer.nodes = nodes
                assert await producer.end(commit=True) is ErrorCode.NONE

    run(test)


def test_brokers_stay_in_sync_and_registered() -> None:
    async def test() -> None:
        async with tidelog.Cluster(QUICK, brokers=3) as cluster:
            await cluster.create_topic("t", replication_factor=3)
            before = cluster.brokers[0].server.metadata.image  # type: ignore[attr-defined]
            await cluster.clock.advance(days=30)
            after = cluster.brokers[0].server.metadata.image  # type: ignore[attr-defined]
            assert after.partition("t", 0) == before.partition("t", 0)
            assert after.brokers == before.brokers
            await in_thread(produce, cluster.bootstrap_servers, "t", "a")

    run(test)


def test_both_doors_move_the_same_time() -> None:
    with tidelog.run() as cluster:
        shown = cluster.clock.advance(hours=2).brokers[1]
        assert abs(shown.ahead_ms - 2 * HOUR_MS) < 60_000
        assert cluster.clock.freeze().speed == 0
        with pytest.raises(tidelog.TidelogError, match="hours: time cannot go back"):
            cluster.clock.advance(hours=-2)


def test_a_clock_that_was_given_is_not_moved() -> None:
    runtime = system_runtime()
    own = runtime._replace(work=object())  # type: ignore[arg-type]
    with pytest.raises(ControlError, match="a clock of its own"):
        MovableTime(own)
    assert MovableTime(runtime).state().skew_ms == 0


def test_long_work_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_clock, "SETTLE_S_MAX", 0.02)

    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            work = cluster.brokers[0].server.runtime.work  # type: ignore[attr-defined]
            gate, worked = asyncio.Event(), asyncio.Event()

            async def long() -> None:
                await work.sleep(1)
                await gate.wait()
                worked.set()

            task = asyncio.ensure_future(long())
            await asyncio.sleep(0)
            await cluster.clock.advance(minutes=1)
            assert not worked.is_set()
            gate.set()
            await task

    run(test)


def test_the_time_of_a_cluster_is_a_line() -> None:
    time = ClusterTime()
    assert not time.is_moved
    time.change(since_s=100.0)
    begun = time.setting(1)
    assert (begun.base_s, begun.speed) == (100, 1)
    time.change(since_s=110.0, seconds=50.0, speed=2.0)
    assert time.setting(1).base_s == 160
    time.change(since_s=120.0, speed=0.0)
    assert time.setting(1).base_s == 180
    assert time.setting(1).began_ms == begun.began_ms
    time.skew(2, 5)
    assert (time.setting(1).skew_ms, time.setting(2).skew_ms) == (0, 5)
    assert time.is_moved
    time.reset()
    assert time.setting(2).began_ms is None
    assert time.setting(2).skew_ms == 0
    assert time.setting(2).base_s == 180
