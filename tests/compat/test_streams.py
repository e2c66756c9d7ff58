"""Kafka Streams with `processing.guarantee=exactly_once_v2`, by either group protocol, an instance
killed on the way."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from compat.brokers import Broker, Tidelog
from compat.clients.protocol import decoded, encoded
from compat.conftest import Client, broker_kinds
from compat.eventually import eventually
from compat.jvm import require_jars
from compat.reference import ApacheKafka
from compat.test_console_tools import Tools
from support.clusters import FAST, create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat.conftest import ClientPool
    from compat.jvm import Jvm
    from compat.line_process import LineProcess

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

WORDS = ("und", "der", "die", "das", "sie", "aber", "nicht", "wir")
PARTITIONS = 2
TASKS = ["0_0", "0_1", "1_0", "1_1"]  # subtopology and partition
SOON = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.session.timeout.ms": "2000",
}
TOLD = """\
> --describe --group <application> -> 0
GROUP TOPIC PARTITION OFFSET-LAG
<application> <source> 0 0
<application> <source> 1 0
<application> <application>-counts-repartition 0 0
<application> <application>-counts-repartition 1 0
> --describe --verbose --group <application> -> 0
GROUP TOPIC PARTITION CURRENT-OFFSET LEADER-EPOCH LOG-END-OFFSET OFFSET-LAG
<application> <source> 0 <end> 0 <end> 0
<application> <source> 1 <end> 0 <end> 0
<application> <application>-counts-repartition 0 <end> 0 <end> 0
<application> <application>-counts-repartition 1 <end> 0 <end> 0
> --describe --state --group <application> -> 0
GROUP COORDINATOR (ID) STATE #MEMBERS
<application> <coordinator> Stable 1
> --describe --state --verbose --group <application> -> 0
GROUP COORDINATOR (ID) STATE GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH #MEMBERS
<application> <coordinator> Stable 3 3 1
> --describe --members --group <application> -> 0
GROUP MEMBER PROCESS CLIENT-ID ASSIGNMENTS
<application> <member> <uuid> <application>-<uuid>-StreamThread-1-consumer ACTIVE: 0:[0,1]; \
1:[0,1];
> --describe --members --verbose --group <application> -> 0
GROUP TARGET-ASSIGNMENT-EPOCH TOPOLOGY-EPOCH MEMBER MEMBER-PROTOCOL MEMBER-EPOCH PROCESS \
CLIENT-ID ASSIGNMENTS
<application> 3 0 <member> streams 3 <uuid> <application>-<uuid>-StreamThread-1-consumer ACTIVE: \
0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1];
> --list --state -> 0
GROUP STATE
<application> Stable
> --reset-offsets --input-topic <source> --to-earliest --execute --group <application> -> 0
Error: Assignments can only be reset if the group '<application>' is inactive, but the current \
state is Stable.
GROUP TOPIC PARTITION NEW-OFFSET
> --delete --group <application> -> 0
* Group '<application>' could not be deleted due to: \
org.apache.kafka.common.errors.GroupNotEmptyException: Streams group '<application>' is not EMPTY.
Error: Deletion of some streams groups failed:
> --describe --state --group <application> -> 0
Error: Streams group '<application>' has no active members.
GROUP COORDINATOR (ID) STATE #MEMBERS
<application> <coordinator> Empty 0
> --describe --group <application> -> 0
> --reset-offsets --input-topic <source> --to-earliest --execute --group <application> -> 0
GROUP TOPIC PARTITION NEW-OFFSET
<application> <source> 0 0
<application> <source> 1 0
> --delete-offsets --input-topic <source> --group <application> -> 0
Request succeeded for deleting offsets from group <application>.
TOPIC PARTITION STATUS
<source> 0 Successful
<source> 1 Successful
> --application-id <application> --force -> 0
Deleting inferred internal topics [<application>-counts-repartition, \
<application>-counts-changelog]
Done.
No input or intermediate topics specified. Skipping seek.
> --application-id <application> --input-topics <source> --dry-run -> 0
----Dry run displays the actions which will be performed when running Streams Reset Tool----
Deleting inferred internal topics []
Done.
Done.
Following input topics offsets will be reset to (for consumer group <application>)
Reset-offsets for input topics [<source>]
Topic: <source> Partition: 0 Offset: 0
Topic: <source> Partition: 1 Offset: 0
> --delete --group <application> -> 0
Deletion of requested streams groups ('<application>') was successful.
> --describe --group <application> -> 1
Error: Executing streams group command failed due to \
org.apache.kafka.common.errors.GroupIdNotFoundException: Group <application> not found.
> --list -> 0
"""
"""As the tools print it of Apache Kafka 4.3.1."""
CLIENT_LOSES_A_LOOK_UP_S = 60
"""While offsets may change by an open transaction, or an epoch is stale, the Java client 4.3.1 can
lose a second look-up of the same committed offsets by a StackOverflowError in CommitRequestManager,
whatever the broker (KAFKA-20765), and waits for it for `default.api.timeout.ms`."""
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}


class Words:
    """Lines of words, sent in transactions of which some are aborted."""

    def __init__(self, client: Client, topic: str, transactional_id: str) -> None:
        self.counts: Counter[str] = Counter()
        self._client, self._topic = client, topic
        self._random = random.Random(5)
        client.call("txn_open", producer="words", transactional_id=transactional_id)

    def send(self, lines: int, *, commit: bool = True) -> None:
        words = [self._random.choices(WORDS, k=5) for _ in range(lines)]
        records = [
            {"key": None, "value": encoded(" ".join(line).encode()), "partition": n % PARTITIONS}
            for n, line in enumerate(words)
        ]
        fields: dict[str, Any] = {"topic": self._topic, "records": records, "begin": True}
        self._client.call("txn_send", producer="words", **fields)
        self._client.call("txn_end", producer="words", commit=commit)
        if commit:
            for line in words:
                self.counts.update(line)


def counted(client: Client, topic: str, number: int) -> dict[str, list[int]]:
    """Word by word, the counts of the first so many committed records."""
    fields: dict[str, Any] = {"topic": topic, "partition": 0, "from": "earliest"}
    answer = client.call("consume", count=number, committed=True, **fields)
    found = defaultdict(list)
    for record in answer["records"]:
        word = (decoded(record["key"]) or b"").decode()
        found[word].append(int(decoded(record["value"]) or b""))
    return found


class Application:
    """A word count of lines in one topic: its counts go to another."""

    def __init__(self, client: Client, fresh: Callable[[str], str], folder: Path) -> None:
        self.client, self._folder = client, folder
        self.source, self.to, self.id = fresh("lines"), fresh("counts"), fresh("wordcount")
        self._instances = 0
        self.protocol = "classic"

    def start(self, process: LineProcess) -> Client:
        """One more instance."""
        self._instances += 1
        jvm = Client("java", process, self.client.bootstrap)
        folder = str(self._folder / str(self._instances))
        topics = {"from": self.source, "to": self.to}
        fields = {"application": self.id, "folder": folder, "protocol": self.protocol}
        jvm.call("wordcount_start", **fields, **topics)
        return jvm

    def counts(self, number: int) -> dict[str, list[int]]:
        """Those of so many words."""
        return eventually(
            lambda: counted(self.client, self.to, number),
            lambda seen: sum(map(len, seen.values())) >= number,
            60 + CLIENT_LOSES_A_LOOK_UP_S,
        )


def once_each(words: Words) -> dict[str, list[int]]:
    """The counts of words that are counted once each."""
    return {word: list(range(1, n + 1)) for word, n in words.counts.items()}


def test_a_word_count_counts_each_word_once_though_it_is_killed(
    broker: Broker, client_pool: ClientPool, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    client = Client("librdkafka", client_pool.get("librdkafka"), broker.bootstrap)
    application = Application(client, fresh, tmp_path)
    client.call("create_topic", topic=application.source, partitions=PARTITIONS, configs={})
    client.call("create_topic", topic=application.to, partitions=1, configs={})
    words = Words(client, application.source, fresh("id"))
    words.send(10)
    words.send(5, commit=False)
    first = application.start(client_pool.start("java"))
    assert sum(map(len, application.counts(50).values())) == 50
    words.send(40)
    first.process.kill()
    words.send(5, commit=False)
    words.send(10)
    second = application.start(client_pool.start("java"))
    assert application.counts(300) == once_each(words)
    assert second.call("wordcount_state")["state"] == "RUNNING"
    second.call("wordcount_stop")
    second.process.kill()
    client.call("txn_close", producer="words")


# ---- by the streams protocol (KIP-1071) ----------------------------------------------------------


@pytest.fixture(scope="module", params=broker_kinds())
def soon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that soon misses an instance."""
    if request.param == "kafka":
        require_jars()
    kind = {"tidelog": Tidelog, "kafka": ApacheKafka}[request.param]
    made = kind(tmp_path_factory.mktemp("soon"), SOON)
    made.start()
    yield made
    made.stop()


def tasks_of(*instances: Client) -> list[list[str]]:
    """The active tasks of each instance."""
    return [each.call("wordcount_state")["tasks"] for each in instances]


def are_shared(tasks: list[list[str]]) -> bool:
    """Whether instances have all tasks, each as many."""
    every = sorted(task for each in tasks for task in each)
    return every == TASKS and {len(each) for each in tasks} == {len(TASKS) // len(tasks)}


@pytest.mark.nightly
def test_one_of_two_instances_is_killed(
    soon: Broker, java: Jvm, client_pool: ClientPool, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    client = Client("librdkafka", client_pool.get("librdkafka"), soon.bootstrap)
    application = Application(client, fresh, tmp_path)
    application.protocol = "streams"
    client.call("create_topic", topic=application.source, partitions=PARTITIONS, configs={})
    client.call("create_topic", topic=application.to, partitions=1, configs={})
    words = Words(client, application.source, fresh("id"))
    words.send(10)
    stays = application.start(java)
    goes = application.start(client_pool.start("java"))
    eventually(lambda: tasks_of(stays, goes), are_shared, 60)
    words.send(40)
    goes.process.kill()
    words.send(5, commit=False)
    words.send(10)
    assert application.counts(300) == once_each(words)
    eventually(lambda: tasks_of(stays), [TASKS].__eq__, 60)
    stays.call("wordcount_stop")
    client.call("txn_close", producer="words")


def are_copied(instances: list[dict[str, Any]]) -> bool:
    """Whether each task with a store is active at one of two and standby at the other."""
    tasks = [each["tasks"] for each in instances]
    stores = [{task for task in each if task.startswith("1_")} for each in tasks]
    return are_shared(tasks) and [set(each["standby"]) for each in instances] == stores[::-1]


@pytest.mark.nightly
def test_a_standby_task_goes_on_for_a_killed_instance(
    soon: Broker, java: Jvm, client_pool: ClientPool, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    client = Client("librdkafka", client_pool.get("librdkafka"), soon.bootstrap)
    application = Application(client, fresh, tmp_path)
    application.protocol = "streams"
    of_group = ("--entity-type", "groups", "--entity-name", application.id)
    one = ("--alter", "--add-config", "streams.num.standby.replicas=1")
    tools = Tools(java, soon.bootstrap)
    tools.configs(*of_group, *one)
    client.call("create_topic", topic=application.source, partitions=PARTITIONS, configs={})
    client.call("create_topic", topic=application.to, partitions=1, configs={})
    words = Words(client, application.source, fresh("id"))
    words.send(10)
    stays = application.start(java)
    goes = application.start(client_pool.start("java"))
    two = [stays, goes]
    eventually(lambda: [each.call("wordcount_state") for each in two], are_copied, 60)
    words.send(40)
    # What the next instance looks up is then told at once: see CLIENT_LOSES_A_LOOK_UP_S.
    eventually(StreamsTools(tools, application).has_committed_all, bool, 60)
    goes.process.kill()
    words.send(10)
    assert application.counts(300) == once_each(words)
    eventually(lambda: tasks_of(stays), [TASKS].__eq__, 60)
    two = [stays, application.start(client_pool.start("java"))]
    words.send(10)
    assert application.counts(350) == once_each(words)
    eventually(lambda: [each.call("wordcount_state") for each in two], are_copied, 60)
    for each in two:
        each.call("wordcount_stop")
    client.call("txn_close", producer="words")


class StreamsTools:
    """What the tools of Kafka Streams print of one application, with names for what differs."""

    def __init__(self, tools: Tools, application: Application) -> None:
        self.text = ""
        self._tools, self._application = tools, application

    def groups(self, *args: str) -> None:
        """kafka-streams-groups of the application."""
        of_it = ("--group", self._application.id)
        self.text += self.told("streams.StreamsGroupCommand", *args, *of_it)

    def has_committed_all(self) -> bool:
        """Whether the offsets of all partitions are those of their ends, markers included."""
        of_it = ("--describe", "--verbose", "--group", self._application.id)
        told = self.told("streams.StreamsGroupCommand", *of_it)
        return told.count(" <end> 0 <end> 0") == len(TASKS)

    def listed(self, *args: str) -> None:
        """kafka-streams-groups --list; other tests have groups too."""
        told = self.told("streams.StreamsGroupCommand", "--list", *args)
        lines = (line for line in told.splitlines() if not line.startswith("wordcount-"))
        self.text += "".join(f"{line}\n" for line in lines)

    def reset(self, *args: str) -> None:
        """kafka-streams-application-reset."""
        self.text += self.told("StreamsResetter", "--application-id", self._application.id, *args)

    def told(self, main: str, *args: str) -> str:
        """The lines of a tool in their alphabet: Kafka's order is that of its hash tables."""
        result = self._tools.jvm.tool(main, *args, "--bootstrap-server", self._tools.bootstrap)
        lines = result.out.splitlines()
        told = sorted(" ".join(line.split()) for line in lines if line.strip())
        text = "\n".join((f"> {' '.join(args)} -> {result.exit}", *told)) + "\n"
        for pattern, name in (
            (re.escape(self._application.id), "<application>"),
            (re.escape(self._application.source), "<source>"),
            (r"\S+:\d+ \(1\)", "<coordinator>"),
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>"),
            (r"(?<= )[\w-]{22}(?= )", "<member>"),
            (r"(\d+) 0 \1 0$", "<end> 0 <end> 0"),
            (r"\[(<\S+changelog), (<\S+repartition)\]", r"[\2, \1]"),
        ):
            text = re.sub(pattern, name, text, flags=re.MULTILINE)
        return text


def told_by_tools(tools: Tools, application: Application) -> str:
    """What they print of an application that runs, that has ended, and that begins anew."""
    steady = "streams.session.timeout.ms=45000"  # a slow machine must not begin another epoch
    of_group = ("--entity-type", "groups", "--entity-name", application.id)
    tools.configs(*of_group, "--alter", "--add-config", steady)
    instance = application.start(tools.jvm)
    eventually(lambda: tasks_of(instance), [TASKS].__eq__, 60)
    application.counts(50)
    told = StreamsTools(tools, application)
    eventually(told.has_committed_all, bool, 60)
    for options in ((), ("--state",), ("--members",)):
        told.groups("--describe", *options)
        told.groups("--describe", *options, "--verbose")
    told.listed("--state")
    anew = ("--reset-offsets", "--input-topic", application.source, "--to-earliest", "--execute")
    told.groups(*anew)
    told.groups("--delete")
    instance.call("wordcount_stop")
    told.groups("--describe", "--state")
    told.groups("--describe")
    told.groups(*anew)
    told.groups("--delete-offsets", "--input-topic", application.source)
    told.reset("--force")
    told.reset("--input-topics", application.source, "--dry-run")
    told.groups("--delete")
    told.groups("--describe")
    told.listed()
    return told.text


def test_the_tools_of_streams(
    soon: Broker, java: Jvm, client_pool: ClientPool, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    client = Client("librdkafka", client_pool.get("librdkafka"), soon.bootstrap)
    application = Application(client, fresh, tmp_path)
    application.protocol = "streams"
    client.call("create_topic", topic=application.source, partitions=PARTITIONS, configs={})
    client.call("create_topic", topic=application.to, partitions=1, configs={})
    words = Words(client, application.source, fresh("id"))
    words.send(10)
    client.call("txn_close", producer="words")
    assert told_by_tools(Tools(java, soon.bootstrap), application) == TOLD


@pytest.mark.nightly
def test_the_coordinator_of_an_application_is_killed(
    java: Jvm, client_pool: ClientPool, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    with tidelog.run({**FAST, **SOON, **REPLICATED}, brokers=3, isolated=True) as cluster:
        bootstrap = cluster.bootstrap_servers
        client = Client("librdkafka", client_pool.get("librdkafka"), bootstrap)
        application = Application(client, fresh, tmp_path)
        application.protocol = "streams"
        create_topic(bootstrap, application.source, PARTITIONS, 3, min_insync_replicas="2")
        create_topic(bootstrap, application.to, 1, 3, min_insync_replicas="2")
        words = Words(client, application.source, fresh("id"))
        words.send(10)
        stays = application.start(java)
        goes = application.start(client_pool.start("java"))
        eventually(lambda: tasks_of(stays, goes), are_shared, 60)
        words.send(40)
        group = cluster.state().group(application.id)
        assert group.coordinator is not None
        victim = cluster.brokers[group.coordinator - 1]
        victim.kill()
        words.send(10)
        assert application.counts(300) == once_each(words)
        eventually(lambda: tasks_of(stays, goes), are_shared, 60)
        goes.process.kill()
        words.send(10)
        victim.start()
        words.send(10)
        assert application.counts(400) == once_each(words)
        eventually(lambda: tasks_of(stays), [TASKS].__eq__, 60)
        stays.call("wordcount_stop")
        client.call("txn_close", producer="words")
