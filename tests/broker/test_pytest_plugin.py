"""The fixtures, in test runs of their own."""

from __future__ import annotations

import textwrap

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(400)  # interpreters, one after the other, and brokers

USES = """
    import asyncio
    from aiokafka import AIOKafkaProducer

    def test_one(tidelog_topic, tidelog_bootstrap, record_property):
        async def send():
            async with AIOKafkaProducer(bootstrap_servers=tidelog_bootstrap) as producer:
                return await producer.send_and_wait(tidelog_topic, b"value")
        assert asyncio.run(send()).offset == 0

    def test_two(tidelog_topic, tidelog_cluster):
        assert tidelog_topic.startswith("test_two-")
        tidelog_cluster.delete_topic(tidelog_topic)

    @pytest.mark.parametrize("name", ["ä/ /b", "x" * 300])
    def test_names(name, tidelog_topic):
        assert len(tidelog_topic) < 249

    def test_same_broker(tidelog_cluster, tidelog_bootstrap):
        assert tidelog_cluster.bootstrap_servers == tidelog_bootstrap
"""
ARGUMENTS = ("-p", "no:randomly", "-p", "no:cacheprovider")


def test_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n" + textwrap.dedent(USES))
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(passed=5)


def test_each_xdist_worker_has_a_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(2))
        def test_worker(number, tidelog_topic, tidelog_bootstrap, worker_id):
            print(f"WORKER {worker_id} {tidelog_bootstrap}")
        """
    )
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-n", "2", "--dist", "each", "-rP")
    result.assert_outcomes(passed=4)
    lines = {line for line in result.outlines if line.startswith("WORKER ")}
    assert len({line.split()[1] for line in lines}) == 2
    assert len({line.split()[2] for line in lines}) == 2


def test_settings_are_overridden_by_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def tidelog_settings():
            return {"no.such.key": 1}
        """
    )
    pytester.makepyfile("def test_it(tidelog_cluster): ...")
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ClusterError*no.such.key*"])


def test_a_tier_is_asked_for_by_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def tidelog_settings():
            return {"log.index.interval.bytes": 1, "log.index.size.max.bytes": 12,
                    "log.local.retention.bytes": 1, "log.retention.check.interval.ms": 100,
                    "log.initial.task.delay.ms": 0}

        @pytest.fixture(scope="session")
        def tidelog_tiered(tmp_path_factory):
            return tmp_path_factory.mktemp("tier")
        """
    )
    pytester.makepyfile(
        """
        import time
        from kafka import KafkaConsumer, KafkaProducer

        def test_it(tidelog_topic, tidelog_bootstrap, tidelog_tiered):
            with KafkaProducer(bootstrap_servers=tidelog_bootstrap) as producer:
                for number in range(3):
                    producer.send(tidelog_topic, b"%d" % number).get(timeout=60)
            while not list(tidelog_tiered.rglob("*.manifest.json")):
                time.sleep(0.05)
            options = {"bootstrap_servers": tidelog_bootstrap, "auto_offset_reset": "earliest"}
            with KafkaConsumer(tidelog_topic, **options) as consumer:
                assert [next(consumer).value for _ in range(3)] == [b"0", b"1", b"2"]
        """
    )
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(passed=1)


def test_a_run_that_uses_nothing_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            loaded = [name for name in sys.modules if name.startswith("tidelog")]
            assert sorted(loaded) == ["tidelog", "tidelog.pytest_plugin"]
        """
    )
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-p", "no:aiokafka")
    result.assert_outcomes(passed=1)
