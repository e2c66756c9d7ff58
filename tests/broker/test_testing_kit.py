"""Clusters by marker and option, faults by fixture, and what surrounds a test."""

from __future__ import annotations

import pytest

import tidelog
from tidelog.control.state import (
    ClusterState,
    CommittedOffset,
    GroupState,
    PartitionName,
    TransactionState,
)
from tidelog.testing.kit import Clusters, new_cluster, own_state

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(400)

ARGUMENTS = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:aiokafka")
OPTIONS = {"brokers": 1, "settings": {}, "tiered": False, "profile": "fast"}


def test_profiles_set_what_they_name() -> None:
    settings = new_cluster(OPTIONS)._settings
    assert settings["log.cleaner.backoff.ms"] == "200"
    assert "broker.session.timeout.ms" not in settings
    several = new_cluster({**OPTIONS, "brokers": 3, "tiered": True})._settings
    assert several["broker.session.timeout.ms"] == "3000"
    assert several["remote.log.manager.task.interval.ms"] == "500"
    kafka = new_cluster({**OPTIONS, "profile": "kafka"})._settings
    assert "log.cleaner.backoff.ms" not in kafka
    assert kafka["group.initial.rebalance.delay.ms"] == "3000"
    own = new_cluster({**OPTIONS, "settings": {"log.cleaner.backoff.ms": 7}})._settings
    assert own["log.cleaner.backoff.ms"] == "7"


def test_brokers_that_do_not_run_are_started_again() -> None:
    clusters = Clusters()
    cluster = clusters.get(OPTIONS)
    assert clusters.get(dict(OPTIONS)) is cluster
    cluster.create_topic("kept")
    process = cluster._process
    assert process is not None
    for end in (process.kill, cluster.brokers[0].stop, cluster.brokers[0].freeze):
        end()
        if end == process.kill:
            process.wait()
        assert len(clusters.mend()) == 1
        assert clusters.mend() == []
        assert not cluster.brokers[0].is_frozen
    assert [topic.name for topic in cluster.state().topics] == ["kept"]
    clusters.stop()


def test_a_report_leaves_out_groups_and_transactions_of_other_tests() -> None:
    def group(name: str, *topics: str) -> GroupState:
        offsets = tuple(CommittedOffset(topic, 0, 1, 0, "") for topic in topics)
        return GroupState(name, 1, "Empty", 1, None, None, (), offsets)

    def transaction(name: str, *topics: str) -> TransactionState:
        partitions = tuple(PartitionName(topic, 0) for topic in topics)
        return TransactionState(name, 1, "Ongoing", 0, 0, 1000, 0, partitions)

    groups = (group("by-id"), group("by-topic", "own"), group("other", "of-another"))
    transactions = (transaction("by-id"), transaction("by-topic", "own"), transaction("other"))
    state = own_state(ClusterState(1, (), (), groups, transactions), ["own"], ["by-id"])
    assert [one.group_id for one in state.groups] == ["by-id", "by-topic"]
    assert [one.transactional_id for one in state.transactions] == ["by-id", "by-topic"]


def test_marker_and_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import unittest
        import pytest
        from tidelog.testing.records import assert_records, produce

        @pytest.mark.tidelog(brokers=2, settings={"num.partitions": 4}, profile="kafka")
        class TestMarked:
            def test_brokers(self, tidelog_cluster):
                assert len(tidelog_cluster.brokers) == 2
                tidelog_cluster.create_topic("several", partitions=-1)
                assert len(tidelog_cluster.state().topic("several").partitions) == 4
                tidelog_cluster.brokers[1].kill()

            def test_same_cluster_is_whole_again(self, tidelog_bootstrap, tidelog_cluster, request):
                assert request.node.name == "test_same_cluster_is_whole_again"
                assert tidelog_cluster.state().topic("several")
                assert tidelog_cluster.brokers[1].is_running

        @pytest.mark.usefixtures("tidelog_network", "tidelog_devices")
        def test_fault(tidelog_faults, tidelog_clock):
            tidelog_faults.on("Produce").every_time().error("NOT_ENOUGH_REPLICAS")
            tidelog_clock.advance(hours=1)

        def test_no_fault(tidelog_cluster, tidelog_bootstrap, tidelog_topic):
            assert len(tidelog_cluster.brokers) == 1
            assert tidelog_cluster.faults.list() == ()
            assert tidelog_cluster.clock.describe().brokers[1].ahead_ms == 0
            produce(tidelog_bootstrap, tidelog_topic, [b"1"])
            assert_records(tidelog_bootstrap, tidelog_topic, [b"1"])

        def test_topics(tidelog_topic_factory, tidelog_topic, tidelog_cluster):
            made = tidelog_topic_factory(partitions=3, config={"cleanup.policy": "compact"})
            other = tidelog_topic_factory()
            state = tidelog_cluster.state()
            assert len({made, other, tidelog_topic}) == 3
            assert len(state.topic(made).partitions) == 3
            assert state.topic(made).config["cleanup.policy"] == "compact"
            assert len(state.topic(other).partitions) == 1
            tidelog_cluster.delete_topic(other)

        def test_ids(tidelog_group_id, tidelog_transactional_id):
            assert tidelog_group_id.startswith("group-test_ids-")
            assert tidelog_transactional_id.startswith("transaction-test_ids-")

        def test_factory(tidelog_cluster_factory):
            one, two = tidelog_cluster_factory(), tidelog_cluster_factory(brokers=1)
            assert one.bootstrap_servers != two.bootstrap_servers
            one.kill()

        class TestUnittest(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _kafka(self, tidelog_bootstrap):
                self.servers = tidelog_bootstrap

            def test_it(self):
                self.assertIn(":", self.servers)

            @pytest.mark.tidelog(brokers=3)
            def test_marked(self):
                pass
        """
    )
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-n", "0")
    result.assert_outcomes(passed=8, errors=1)
    result.stdout.fnmatch_lines(["*a unittest.TestCase: use tidelog_cluster_factory"])


def test_a_test_may_leave_its_brokers_ended_or_frozen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, signal, pytest
        from tidelog.testing.records import produce

        @pytest.mark.usefixtures(
            "tidelog_faults", "tidelog_clock", "tidelog_network", "tidelog_devices"
        )
        @pytest.mark.parametrize("end", ["stop", "freeze", "kill all", "die"])
        def test_end(end, tidelog_cluster, tidelog_topic):
            produce(tidelog_cluster.bootstrap_servers, tidelog_topic, [b"1"])
            assert [topic.name for topic in tidelog_cluster.state().topics] == [tidelog_topic]
            if end == "kill all":
                tidelog_cluster.kill()
            elif end == "die":
                os.kill(tidelog_cluster.pid, signal.SIGKILL)
            else:
                getattr(tidelog_cluster.brokers[0], end)()

        def test_whole_again(tidelog_cluster):
            assert tidelog_cluster.state().topics == ()
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=5)


def test_a_failure_shows_the_log_and_the_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(tidelog_topic, tidelog_cluster):
            tidelog_cluster.create_topic("of-another")
            assert not tidelog_topic
        """
    )
    pytester.makepyfile(
        test_unknown_option="""
        import pytest

        @pytest.mark.tidelog(broker=3)
        def test_it(tidelog_cluster): ...
        """
    )
    result = pytester.runpytest_subprocess(*ARGUMENTS, "--continue-on-collection-errors")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "tidelog: marker of test_unknown_option.py::test_it: broker is none of*",
            "*- tidelog cluster: log -*",
            "(nothing in this test)",
            "*- tidelog cluster: state -*",
            "test_it-1-0: leader 1 in epoch 0*",
        ]
    )
    result.stdout.no_fnmatch_line("of-another*")


def test_the_same_tests_run_against_another_kafka(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from tidelog.testing.records import TopicRecord, assert_records, produce

        def test_client(tidelog_bootstrap, tidelog_topic):
            produce(tidelog_bootstrap, tidelog_topic, [b"1"])
            assert_records(tidelog_bootstrap, tidelog_topic, [b"1"])

        def test_topics(tidelog_bootstrap, tidelog_topic_factory):
            topic = tidelog_topic_factory(2, config={"retention.ms": 1000})
            produce(tidelog_bootstrap, topic, [TopicRecord(b"1", partition=1)])

        def test_control(tidelog_faults): ...
        """
    )
    with tidelog.run() as cluster:
        other = f"--tidelog-bootstrap={cluster.bootstrap_servers}"
        result = pytester.runpytest_subprocess(*ARGUMENTS, other, "-rs")
        result.assert_outcomes(passed=2, skipped=1)
        result.stdout.fnmatch_lines(
            [f"SKIPPED*controls its brokers, which {other.replace('=', ' ')}*"]
        )
        assert cluster.state().topics == ()


def test_a_session_ends_if_its_brokers_do_not_start_again(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_one(tidelog_cluster):
            tidelog_cluster._arguments += ["--set", "no.such.key=1"]
            tidelog_cluster.kill()

        def test_two(tidelog_cluster): ...
        def test_three(tidelog_cluster): ...
        """
    )
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*Exit: tidelog: a broker ended and does not start again:*no.such.key*"]
    )


def test_async_tests_by_anyio_and_unittest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import unittest
        import pytest
        import tidelog
        from aiokafka import AIOKafkaProducer

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.fixture
        async def producer(tidelog_bootstrap):
            async with AIOKafkaProducer(bootstrap_servers=tidelog_bootstrap) as producer:
                yield producer

        @pytest.mark.anyio
        async def test_anyio(producer, tidelog_topic, tidelog_faults):
            fault = tidelog_faults.on("Produce").once().error("NOT_ENOUGH_REPLICAS")
            assert (await producer.send_and_wait(tidelog_topic, b"1")).offset == 0
            assert fault.wait(1).hits == 1

        class TestUnittest(unittest.IsolatedAsyncioTestCase):
            async def asyncSetUp(self):
                self.cluster = await tidelog.Cluster().start()
                self.addAsyncCleanup(self.cluster.stop)

            async def test_it(self):
                await self.cluster.create_topic("orders")
                servers = self.cluster.bootstrap_servers
                async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                    assert (await producer.send_and_wait("orders", b"1")).offset == 0
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)


def test_workers_share_a_cluster_and_those_that_control_one_have_their_own(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from tidelog.testing.records import assert_records, produce

        @pytest.mark.parametrize("number", range(2))
        def test_client(number, tidelog_topic, tidelog_bootstrap, worker_id):
            produce(tidelog_bootstrap, tidelog_topic, ["1"])
            assert_records(tidelog_bootstrap, tidelog_topic, ["1"])
            print("SHARED", tidelog_bootstrap, tidelog_topic)

        def test_control(tidelog_bootstrap, tidelog_faults):
            print("OWN", tidelog_bootstrap)

        def test_late(tidelog_topic, request):
            with pytest.raises(pytest.fail.Exception, match="name tidelog_cluster"):
                request.getfixturevalue("tidelog_cluster")
        """
    )
    options = ("-n", "2", "--dist", "each", "--tidelog-shared", "-rP")
    result = pytester.runpytest_subprocess(*ARGUMENTS, *options)
    result.assert_outcomes(passed=8)
    lines = [line.split() for line in result.outlines]
    shared = {tuple(line[1:]) for line in lines if line[:1] == ["SHARED"]}
    own = {line[1] for line in lines if line[:1] == ["OWN"]}
    servers, topics = ({each[at] for each in shared} for at in (0, 1))
    assert (len(servers), len(topics), len(own)) == (1, 4, 2)
    assert not servers & own
