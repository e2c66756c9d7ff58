"""A user at a terminal with Kafka's tools: runs commands, and keeps what they print."""

from __future__ import annotations

import re
import shlex
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from compat.console.normalise import lines_of
from compat.jvm import tool_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from compat.jvm import Jvm, ToolResult

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
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "ReplicaVerificationTool",
    "kafka-share-consumer-perf-test": "ShareConsumerPerformance",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
    "kafka-verifiable-share-consumer": "VerifiableShareConsumer",
}
ALONE = re.compile("kafka-(verifiable-|metadata-shell)")  # each in a JVM of its own
WITHOUT_BROKER = ("kafka-metadata-shell", "kafka-storage")
READS = re.compile(r" (--)?(describe|list|find-hanging)\b|kafka-(get-offsets|metadata-shell)")
SAME_S_MAX = 20.0
SHELL_S_MAX = 120.0  # some of its runs never end, others find nothing (tests of metadata tools)
SHELL_RUN_S_MAX = 15.0
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
        self._places = {"bootstrap": bootstrap, "folder": str(folder)}
        self.entries: list[Entry] = []
        self._expected = expected

    def file(self, name: str, text: str) -> None:
        """A file that commands name as {folder}/NAME."""
        (self.folder / name).write_text(text)

    def bind(self, **values: Any) -> None:
        """What commands name as {NAME}."""
        self._places |= {name: str(value) for name, value in values.items()}

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
        is_shell = entry.command.startswith("kafka-metadata-shell")
        end_s = time.monotonic() + (SHELL_S_MAX if is_shell else SAME_S_MAX)
        while time.monotonic() < end_s and wanted not in ([], [entry]):
            time.sleep(PAUSE_S)
            before, entry = entry, once()
            if wanted is None and before == entry:
                break
        return entry

    def _once(self, command: str, stdin: str, *, numbers: bool, ordered: bool) -> list[str]:
        main, *args = self._words(command)
        if ALONE.match(command):
            is_shell = command.startswith("kafka-metadata-shell")
            timeout_s = SHELL_RUN_S_MAX if is_shell else DONE_S_MAX
            result = tool_alone(main, *args, timeout_s=timeout_s)
        else:
            result = self.jvm.tool(main, *args, stdin=stdin)
        return self._lines(result, numbers=numbers, ordered=ordered)

    def watch(self, command: str, until: str) -> None:
        """Run a tool that does not end by itself until a line of its output has a pattern."""
        result = tool_alone(*self._words(command), until=until)
        self.entries.append(Entry(command, self._lines(result)))

    def _words(self, command: str) -> list[str]:
        """The main class and its arguments."""
        name, *rest = shlex.split(command)
        args = [self._filled(each) for each in rest]
        at = ["--bootstrap-server", self.bootstrap]
        if name == "kafka-cluster":  # behind its subcommand
            args += at
        elif name not in WITHOUT_BROKER and "{bootstrap}" not in command:
            args = [*at, *args]
        return [TOOLS[name], *args]

    def _lines(
        self, result: ToolResult, *, numbers: bool = False, ordered: bool = True
    ) -> list[str]:
        own = [
            (rf"{re.escape(str(self.folder))}[\w/.]*", "<folder>"),
            (re.escape(self.bootstrap), "<broker>"),
        ]
        lines = lines_of(result.out, own, numbers=numbers, ordered=ordered)
        lines += [f"! {each}" for each in lines_of(result.err, own, numbers=numbers)]
        return lines if result.exit == 0 else [*lines, f"(exit {result.exit})"]

    def _filled(self, arg: str) -> str:
        for place, value in self._places.items():
            arg = arg.replace(f"{{{place}}}", value)
        return arg
