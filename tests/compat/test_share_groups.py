"""Share consumers of three client libraries, kafka-share-groups and the console's share tools."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

import tidelog
from compat.clients.protocol import encoded
from compat.eventually import eventually
from compat.test_console_tools import Tools
from support.clusters import FAST, create_topic, leader_of
from support.data_path import batch
from tidelog.embedded.simple_client import SimpleClient
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.data import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat.conftest import ClientPool
    from compat.jvm import Jvm
    from compat.line_process import LineProcess

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

SETTINGS = {f"group.share.{name}heartbeat.interval.ms": "100" for name in ("", "min.", "max.")} | {
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
GROUP_RESOURCE, SET = 32, 0
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
_numbers = itertools.count()


class Member:
    """A share consumer of a client program."""

    def __init__(
        self,
        program: LineProcess,
        bootstrap: str,
        group: str,
        settings: dict[str, str],
        topic: str = "t",
    ) -> None:
        self._program = program
        self._name = f"member-{next(_numbers)}"
        fields = {"bootstrap": bootstrap, "group": group, "topic": topic, "settings": settings}
        program.call("share_open", member=self._name, **fields)

    def poll(self, wait_ms: int = 60_000) -> list[tuple[int, str, int]]:
        """The first records that come: offset, value, deliveries."""
        answer = self._program.call("share_poll", member=self._name, wait_ms=wait_ms)
        return [tuple(each) for each in answer["records"]]

    def offsets(self) -> list[tuple[int, int]]:
        """The same, only offset and deliveries."""
        return [(offset, deliveries) for offset, _, deliveries in self.poll()]

    def commit(self, *marks: tuple[int, str]) -> list[str]:
        """Acknowledge records; the errors."""
        answer = self._program.call("share_commit", member=self._name, marks=marks)
        errors: list[str] = answer["errors"]
        return errors

    def close(self) -> None:
        self._program.call("share_close", member=self._name)


@pytest.fixture
def cluster() -> Iterator[tidelog.RunningCluster]:
    with tidelog.run(SETTINGS) as running:
        yield running


@pytest.fixture
def tools(java: Jvm, cluster: tidelog.RunningCluster) -> Tools:
    return Tools(java, cluster.bootstrap_servers)


def configure(bootstrap: str, group: str, **settings: str) -> None:
    """Set a group's configuration."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=f"share.{name.replace('_', '.')}", config_operation=SET, value=value
        )
        for name, value in {"auto_offset_reset": "earliest", **settings}.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=configs
    )
    with SimpleClient(bootstrap) as client:
        answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


def produce(bootstrap: str, count: int) -> None:
    """Append one batch."""
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch(count))
    data = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    with SimpleClient(bootstrap) as client:
        answer = client.ask(
            ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), version_max=12
        )
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_the_tools(tools: Tools) -> None:
    def groups(*args: str) -> str:
        return tools.run("consumer.group.ShareGroupCommand", *args)

    def is_line(pattern: str, text: str) -> bool:
        return re.search(rf"^{pattern} *$", text, re.MULTILINE) is not None

    tools.topics("--create", "--topic", "t", "--partitions", "1")
    tools.produce("t", "a\nb\nc\n")
    configure(tools.bootstrap, "g")
    bound = ["--max-messages", "3", "--timeout-ms", "20000"]
    consumed = tools.run("consumer.ConsoleShareConsumer", "--topic", "t", "--group", "g", *bound)
    assert consumed.split() == ["a", "b", "c"]
    assert groups("--list").split() == ["g"]
    describe = ["--describe", "--group", "g"]
    assert is_line(r"g +\S+ +\(1\) +Empty +0", groups(*describe, "--state"))
    assert is_line(r"g +t +0 +\d +0", groups(*describe))
    of_topic = ["--group", "g", "--topic", "t"]
    reset = groups("--reset-offsets", *of_topic, "--to-earliest", "--execute")
    assert is_line(r"g +t +0 +0", reset)
    assert is_line(r"g +t +0 +0 +3", groups(*describe))
    measured = ["--num-records", "3", "--timeout", "20000", "--hide-header"]
    figures = tools.run("ShareConsumerPerformance", "--topic", "t", "--group", "g", *measured)
    assert figures.count(",") >= 5, figures
    assert is_line(r"g +t +0 +\d +0", groups(*describe))
    assert is_line("t +Successful", groups("--delete-offsets", *of_topic))
    assert "was successful" in groups("--delete", "--group", "g")
    assert groups("--list").split() == []


@pytest.mark.parametrize("name", ["java", "librdkafka", "go"])
def test_acknowledgements(
    name: str, client_pool: ClientPool, cluster: tidelog.RunningCluster
) -> None:
    """Each kind of them, and the last delivery that a record may have."""
    bootstrap = cluster.bootstrap_servers
    cluster.create_topic("t")
    produce(bootstrap, 5)
    configure(bootstrap, "g", delivery_count_limit="2")
    one = Member(client_pool.get(name), bootstrap, "g", EXPLICIT)
    assert one.offsets() == [(offset, 1) for offset in range(5)]
    (share,) = cluster.state().group("g").shares
    assert (share.start_offset, share.end_offset, share.acquired, share.lag) == (0, 5, 5, 5)
    accepted = [(offset, "ACCEPT") for offset in (0, 3, 4)]
    assert one.commit((1, "RELEASE"), (2, "REJECT"), *accepted) == []
    assert one.offsets() == [(1, 2)]
    assert one.commit((1, "RELEASE")) == []
    produce(bootstrap, 1)
    assert one.offsets() == [(5, 1)]
    assert one.commit((5, "ACCEPT")) == []
    one.close()
    produce(bootstrap, 3)
    two = Member(client_pool.get(name), bootstrap, "g", {})
    assert two.offsets() == [(6, 1), (7, 1), (8, 1)]
    assert two.commit() == [], "accepts all"
    two.close()


def test_renewals_and_committed_records(java: Jvm, cluster: tidelog.RunningCluster) -> None:
    bootstrap = cluster.bootstrap_servers
    cluster.create_topic("t")
    configure(bootstrap, "g", isolation_level="read_committed")
    java.call("txn_open", bootstrap=bootstrap, producer="p", transactional_id="id")
    for value, commit in ((b"aborted", False), (b"committed", True)):
        records = [{"key": None, "value": encoded(value), "headers": [], "partition": 0}]
        java.call("txn_send", producer="p", topic="t", records=records, begin=True)
        java.call("txn_end", producer="p", commit=commit)
    java.call("txn_close", producer="p")
    member = Member(java, bootstrap, "g", EXPLICIT)
    assert member.poll() == [(2, "committed", 1)]
    assert member.commit((2, "RENEW")) == []
    assert member.poll() == [(2, "committed", 1)], "renewed, not delivered anew"
    assert member.commit((2, "ACCEPT")) == []
    member.close()


def test_a_member_is_killed_and_the_broker_starts_again(
    java: Jvm, client_pool: ClientPool, cluster: tidelog.RunningCluster
) -> None:
    bootstrap = cluster.bootstrap_servers
    cluster.create_topic("t")
    produce(bootstrap, 3)
    configure(bootstrap, "g")
    other = client_pool.start("librdkafka")
    assert Member(other, bootstrap, "g", EXPLICIT).offsets() == [(0, 1), (1, 1), (2, 1)]
    other.kill()
    stays = Member(java, bootstrap, "g", EXPLICIT)
    assert stays.offsets() == [(0, 2), (1, 2), (2, 2)]
    assert stays.commit((0, "ACCEPT"), (1, "RELEASE"), (2, "RELEASE")) == []
    cluster.brokers[0].stop()
    cluster.brokers[0].start()
    assert stays.offsets() == [(1, 3), (2, 3)]
    if errors := stays.commit((1, "ACCEPT"), (2, "ACCEPT")):
        # A fetch of the client that was still under way had them before the stop. That session
        # ended with the broker, and so did what it held: they come again, counted as before.
        assert errors == ["NotLeaderOrFollowerException"]
        assert stays.offsets() == [(1, 3), (2, 3)]
        assert stays.commit((1, "ACCEPT"), (2, "ACCEPT")) == []
    stays.close()
    described = Tools(java, bootstrap).run(
        "consumer.group.ShareGroupCommand", "--describe", "--group", "g"
    )
    assert re.search(r"^g +t +0 +\d +0 *$", described, re.MULTILINE), described


def test_compacted_and_tiered_topics(java: Jvm) -> None:
    with tidelog.run(SETTINGS, tiered=True) as cluster:
        bootstrap = cluster.bootstrap_servers
        in_the_tier = {"remote.storage.enable": "true", "local.retention.ms": "1"}
        cluster.create_topic("compacted", config={"cleanup.policy": "compact"})
        cluster.create_topic("tiered", config=in_the_tier)

        def write(topic: str, *keys: bytes) -> None:
            rows = [{"key": encoded(key), "value": encoded(b"v"), "headers": []} for key in keys]
            options = {"codec": "none", "acks": "all", "idempotent": True}
            java.call("produce", bootstrap=bootstrap, topic=topic, records=rows, **options)

        write("compacted", b"a", b"b", b"a")
        assert cluster.topics.compact("compacted") == 1
        write("tiered", b"a", b"b", b"a")
        cluster.tier.copy("tiered")
        assert cluster.topics.retain("tiered") == 1
        write("tiered", b"c")
        log = cluster.state(topics=["tiered"]).partition("tiered").log()
        assert (log.local_log_start_offset, log.log_end_offset) == (3, 4)
        for topic, offsets in (("compacted", [1, 2]), ("tiered", [0, 1, 2, 3])):
            configure(bootstrap, topic)
            member = Member(java, bootstrap, topic, {}, topic)
            read: list[tuple[int, int]] = []
            for _ in offsets:
                if len(read) < len(offsets):
                    read += member.offsets()
            assert read == [(offset, 1) for offset in offsets]
            member.close()


@pytest.mark.nightly
def test_brokers_die_while_two_members_share(java: Jvm) -> None:
    """The leaders of the records, of the group's state and of its coordinator: nothing is lost."""
    settings = {**FAST, **SETTINGS, "offsets.topic.num.partitions": "1"}
    with tidelog.run(settings, brokers=3) as cluster:
        bootstrap = cluster.bootstrap_servers
        create_topic(bootstrap, "t", 1, 3, min_insync_replicas="2")
        configure(bootstrap, "g")
        members = [Member(java, bootstrap, "g", {}) for _ in range(2)]
        records = [{"key": None, "value": encoded(b"v"), "headers": []}] * 10
        options = {"codec": "none", "acks": "all", "idempotent": True}
        read: set[int] = set()

        def more() -> int:
            for member in members:
                read.update(offset for offset, _, _ in member.poll(200))
            return len(read)

        def shared(count: int) -> None:
            java.call("produce", bootstrap=bootstrap, topic="t", records=records, **options)
            eventually(more, count.__eq__, 90)

        shared(10)
        for number, topic in enumerate(("t", "__share_group_state", "__consumer_offsets"), 2):
            victim = cluster.brokers[leader_of(bootstrap, topic) - 1]
            victim.kill()
            shared(10 * number)
            victim.start()
        for member in members:
            member.close()
