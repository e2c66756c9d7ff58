"""`tidelog configs`: describe and change the settings of topics, groups, brokers and subscriptions
of clients' metrics."""

# ruff: noqa: PLC0415 - message tables are imported by the subcommand that needs them

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidelog.cli import common, connection

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from tidelog.embedded.cluster_client import ClusterClient
    from tidelog.embedded.simple_client import SimpleClient

RESOURCE_TYPES = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
SET, UNSET = 0, 1
SOURCES = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster (dynamic)",
    4: "broker",
    5: "default",
    6: "logger (dynamic)",
    7: "client-metrics",
    8: "group",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("configs", lambda: options.action(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("configs", "Look at settings and change them.")
    add_parser = common.subcommands(parser)

    describe = add_parser("describe", help="settings, values and where they come from")
    _resource(describe)
    describe.add_argument(
        "--all", action="store_true", help="include defaults, and what a topic has of brokers"
    )
    describe.add_argument("--json", action="store_true", help="print JSON")
    describe.set_defaults(action=describe_configs)

    change = add_parser("set", help="change settings")
    _resource(change)
    change.add_argument("setting", nargs="+", metavar="KEY=VALUE")
    change.set_defaults(action=set_configs)

    unset = add_parser("unset", help="return settings to their defaults")
    _resource(unset)
    unset.add_argument("setting", nargs="+", metavar="KEY")
    unset.set_defaults(action=unset_configs)
    return parser


def _resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", choices=RESOURCE_TYPES, help="type of resource")
    parser.add_argument("name", help="name of the topic, group or subscription, id of the broker")


def describe_configs(options: argparse.Namespace) -> None:
    """Print the settings of one resource."""
    from tidelog_protocol.messages.configs import DescribeConfigsRequest

    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=RESOURCE_TYPES[options.type],
        resource_name=options.name,
        configuration_keys=None,
    )
    with connection.connect(options) as client:
        request = DescribeConfigsRequest(resources=[resource])
        (result,) = _asked_of(client, options).ask(request).results
    common.check(f"{options.type} {options.name}", result.error_code, result.error_message)
    inherited = {2, 3, 4, 5} if options.type == "topic" else {4, 5}
    rows = [
        (
            config.name,
            "(hidden)"
            if config.is_sensitive
            else config.value
            if config.value is not None
            else "-",
            SOURCES.get(config.config_source, "-"),
        )
        for config in sorted(result.configs, key=lambda config: config.name)
        if options.all or config.config_source not in inherited
    ]
    titles = ("setting", "value", "from")
    if options.json:
        common.print_json([dict(zip(titles, row, strict=True)) for row in rows])
    elif rows:
        common.print_table(titles, rows)
    else:
        print("no settings of its own; --all shows the defaults", file=sys.stderr)


def _asked_of(client: ClusterClient, options: argparse.Namespace) -> SimpleClient | ClusterClient:
    """Return the broker to ask: only the broker itself describes and changes its settings."""
    name = options.name
    if options.type != "broker" or not (name.isascii() and name.isdigit()):
        return client
    return client.broker(int(name))


def set_configs(options: argparse.Namespace) -> None:
    """Change settings of one resource."""
    changes = common.key_values(options.setting, "setting")
    _alter(options, [(key, SET, value) for key, value in changes.items()])


def unset_configs(options: argparse.Namespace) -> None:
    """Remove settings of one resource."""
    _alter(options, [(key, UNSET, None) for key in options.setting])


def _alter(options: argparse.Namespace, changes: list[tuple[str, int, str | None]]) -> None:
    from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest

    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=RESOURCE_TYPES[options.type],
        resource_name=options.name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=operation, value=value
            )
            for key, operation, value in changes
        ],
    )
    with connection.connect(options) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = _asked_of(client, options).ask(request).responses
    keys = [key for key, _, _ in changes]
    common.check_settings(f"{options.type} {options.name}", result, keys, _names(options.type))
    print(f"{options.type} {options.name}: changed {', '.join(keys)}")


def _names(resource_type: str) -> Iterable[str]:
    """Return the settings of a type of resource that tidelog knows: Kafka's names."""
    from tidelog.config.broker import ALTERABLE_KEYS
    from tidelog.config.client_metrics import CLIENT_METRICS_KEYS
    from tidelog.config.group_settings import GROUP_KEYS
    from tidelog_storage.config import TOPIC_KEYS

    return {
        "topic": TOPIC_KEYS,
        "broker": ALTERABLE_KEYS,
        "client-metrics": CLIENT_METRICS_KEYS,
        "group": GROUP_KEYS,
    }[resource_type]
