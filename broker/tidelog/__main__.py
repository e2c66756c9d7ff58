"""`tidelog` and `python -m tidelog`: find a command, import only that one and run it."""

from __future__ import annotations

import os
import sys

COMMANDS = {
    "serve": ("tidelog.cli.serve", "run a broker, or several"),
    "broker": ("tidelog.cli.broker", "run one node of a cluster"),
    "format": ("tidelog.cli.format", "format the directories of one node of a cluster"),
    "topics": ("tidelog.cli.topics", "list, create, describe, alter and delete topics"),
    "groups": ("tidelog.cli.groups", "list, describe, reset and delete consumer groups"),
    "produce": ("tidelog.cli.produce", "write lines of standard input to a topic"),
    "consume": ("tidelog.cli.consume", "print the records of a topic"),
    "records": ("tidelog.cli.records", "delete the records before an offset or a time"),
    "leaders": ("tidelog.cli.leaders", "elect the leaders of partitions"),
    "partitions": ("tidelog.cli.partitions", "move a partition to other brokers"),
    "transactions": ("tidelog.cli.transactions", "list transactions and abort one"),
    "configs": ("tidelog.cli.configs", "describe and alter settings of topics and brokers"),
    "tiers": (
        "tidelog.cli.tiers",
        "show where a topic's segments are, local and remote; verify them",
    ),
    "verify": ("tidelog.cli.verify", "read all records back and check them, in a directory too"),
    "scenario": (
        "tidelog_scenarios.cli",
        "play scenarios of replication and tiering on a live cluster, step by step",
    ),
    "client-config": (
        "tidelog.cli.client_config",
        "print the configuration of a client of a secured cluster",
    ),
    "completion": (
        "tidelog.cli.completion",
        "print completions of commands and options for a shell",
    ),
    "spark": (
        "tidelog_pipeline.spark_command",
        "export, replay, audit and measure a topic's whole history by Spark",
    ),
    "demo": ("tidelog_pipeline.demo", "real flights through tiered brokers, by Spark, checked"),
}

EXIT_CODES = (
    "exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage, 130 Ctrl-C"
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a line
        from tidelog.cli.completion import complete  # noqa: PLC0415 - not in usual runs

        words = complete(COMMANDS)
    if words and words[0] in COMMANDS:
        from importlib import import_module  # noqa: PLC0415 - the one command that is asked for

        return int(import_module(COMMANDS[words[0]][0]).main(words[1:]))
    if words and words[0] in ("--version", "-V"):
        import tidelog  # noqa: PLC0415 - reads the distribution's metadata

        print(f"tidelog {tidelog.__version__}")  # noqa: T201 - command line
        return 0
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage())  # noqa: T201 - command line
        return 0
    from tidelog.cli.common import did_you_mean  # noqa: PLC0415 - errors are rare

    near = did_you_mean(words[0], COMMANDS) or "; see tidelog --help"
    print(f"tidelog: unknown command {words[0]!r}{near}", file=sys.stderr)  # noqa: T201
    return 2


def usage() -> str:
    """The overview of all commands."""
    lines = ["usage: tidelog COMMAND [OPTIONS]", "", "A Kafka-compatible broker.", "", "commands:"]
    lines += [f"  {name:<13} {purpose}" for name, (_, purpose) in COMMANDS.items()]
    lines += ["", "`tidelog COMMAND --help` lists the options of a command.", "", EXIT_CODES]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
