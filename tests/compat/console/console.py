"""A user at a terminal with Kafka's tools: runs commands, and keeps what they print."""

from __future__ import annotations

import re
import shlex
import time
from typing import TYPE_CHECKING, NamedTuple

from compat.console.normalise import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from compat.jvm import Jvm

TOOLS = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-console-share-consumer": "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-e2e-latency": "EndToEndLatency",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "ReplicaVerificationTool",
    "kafka-share-consumer-perf-test": "ShareConsumerPerformance",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
}
WITHOUT_BROKER = ("kafka-storage",)
PLACES = ("{bootstrap}", "{folder}")
READS = re.compile(r" (--)?(describe|list|find-hanging)\b|kafka-get-offsets")
SAME_S_MAX = 20.0
DONE_S_MAX = 60.0
PAUSE_S = 0.25


class Entry(NamedTuple):
    """One command and what it left."""

    command: str
    lines: Sequence[str]

    def __str__(self) -> str:
        return "\n".join((f"$ {self.command}", *self.lines, ""))


def entries_of(text: str) -> Iterator[Entry]:
    """Those of a transcript."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        yield Entry(command, [line for line in lines if line])


class Console:
    """The commands of one session. `expected`: the transcript they are compared with; None to
    record it.

    Brokers learn some things a little after they are decided: a command that only reads is
    repeated until it prints what is expected, or (to record) the same twice.
    """

    def __init__(
        self, jvm: Jvm, bootstrap: str, folder: Path, expected: Sequence[Entry] | None
    ) -> None:
        self.jvm, self.bootstrap, self.folder = jvm, bootstrap, folder
        self.entries: list[Entry] = []
        self._expected = expected

    def file(self, name: str, text: str) -> None:
        """A file that commands name as {folder}/NAME."""
        (self.folder / name).write_text(text)

    def note(self, text: str) -> None:
        """A comment."""
        self.entries.append(Entry(f"# {text}", []))

    def run(
        self,
        command: str,
        stdin: str = "",
        *,
        numbers: bool = False,
        ordered: bool = True,
        until: str = "",
    ) -> None:
        """Run a tool. `--bootstrap-server` is added, unless the command says where. `until` is a
        pattern of the output that the command is repeated for."""

        def once() -> Entry:
            return Entry(command, self._once(command, stdin, numbers=numbers, ordered=ordered))

        entry = once()
        end_s = time.monotonic() + DONE_S_MAX
        while not re.search(until, str(entry), re.DOTALL) and time.monotonic() < end_s:
            time.sleep(PAUSE_S)
            entry = once()
        if READS.search(command):
            entry = self._settled(entry, once)
        self.entries.append(entry)

    def _settled(self, entry: Entry, once: Callable[[], Entry]) -> Entry:
        """What it prints when it is as expected, or at last."""
        index = len(self.entries)
        wanted = None if self._expected is None else [*self._expected[index : index + 1]]
        end_s = time.monotonic() + SAME_S_MAX
        while time.monotonic() < end_s and wanted not in ([], [entry]):
            time.sleep(PAUSE_S)
            before, entry = entry, once()
            if wanted is None and before == entry:
                break
        return entry

    def _once(self, command: str, stdin: str, *, numbers: bool, ordered: bool) -> list[str]:
        name, *rest = shlex.split(command)
        args = [self._filled(each) for each in rest]
        at = ["--bootstrap-server", self.bootstrap]
        if name == "kafka-cluster":  # behind its subcommand
            args += at
        elif name not in WITHOUT_BROKER and "{bootstrap}" not in command:
            args = [*at, *args]
        result = self.jvm.tool(TOOLS[name], *args, stdin=stdin)
        own = [
            (rf"{re.escape(str(self.folder))}[\w/.]*", "<folder>"),
            (re.escape(self.bootstrap), "<broker>"),
        ]
        lines = lines_of(result.out, own, numbers=numbers, ordered=ordered)
        lines += [f"! {each}" for each in lines_of(result.err, own, numbers=numbers)]
        return lines if result.exit == 0 else [*lines, f"(exit {result.exit})"]

    def _filled(self, arg: str) -> str:
        for place, value in zip(PLACES, (self.bootstrap, str(self.folder)), strict=True):
            arg = arg.replace(place, value)
        return arg
