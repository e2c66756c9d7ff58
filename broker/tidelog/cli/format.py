"""`tidelog format`: mark new directories as those of one node of one cluster.

Works like Apache Kafka's `kafka-storage format`. A node of a cluster (`tidelog broker`) only starts
on formatted directories, because a node that lost its disk must not vote as if it were new. Files
in a directory are kept. The exit code is 1, with one line that gives the reason, if a directory is
formatted already or belongs to another node.
"""

# ruff: noqa: PLC0415 - what takes long to import waits until the arguments are known to be good

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cli import common
from tidelog.cli.serve import add_settings_options, given_settings
from tidelog.cli.streams import refuse, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from tidelog.cluster.formatting import FirstVoters
    from tidelog.cluster.metadata.voters import Voters
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    from tidelog.config.vocabulary import ConfigError
    from tidelog.start_error import StartError, one_line

    try:
        return _format(_config(options), options)
    except ConfigError as error:
        return refuse(f"{error.key}: {error.message}")
    except (StartError, OSError, UnicodeDecodeError) as error:
        return refuse(one_line(error))


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="tidelog format", description="Format the directories of one node of a cluster."
    )
    parser.add_argument(
        "-t",
        "--cluster-id",
        metavar="ID",
        help="id of the cluster, the same for all its nodes; by default a new id, which is printed",
    )
    parser.add_argument("--node-id", type=int, metavar="N", help="id of this node")
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the data")
    parser.add_argument(
        "-g",
        "--ignore-formatted",
        action="store_true",
        help="skip directories that are formatted already",
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument(
        "-s",
        "--standalone",
        action="store_true",
        help="begin a quorum whose voters can change, with this controller alone",
    )
    quorum.add_argument(
        "-I",
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY,...",
        help="begin a quorum whose voters can change, with these; the same for each of them",
    )
    quorum.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="for a node that joins a quorum whose voters can change",
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[...]",
        help="add a SCRAM user, such as 'SCRAM-SHA-256=[name=alice,password=secret]'; also with"
        " iterations=N, salt=BASE64, and saltedpassword=BASE64 in the place of a password",
    )
    add_settings_options(parser)
    return parser


def _config(options: argparse.Namespace) -> BrokerConfig:
    """Return a configuration; formatting uses only the node's id and directories."""
    from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
    from tidelog.config.vocabulary import ConfigError
    from tidelog.embedded.cluster_settings import has_data_dir, log_dirs_in

    settings = given_settings(options)
    if options.node_id is not None:
        settings["node.id"] = str(options.node_id)
        settings.pop("broker.id", None)
    if "node.id" not in settings:
        raise ConfigError("--node-id", "is missing")
    if options.data_dir is not None:
        settings["log.dirs"] = ",".join(log_dirs_in(options.data_dir, settings))
    if not has_data_dir(settings):
        raise ConfigError("--data-dir", "is missing")
    return BrokerConfig.from_properties({**DEVELOPER_PROFILE, **settings})


def _first_voters(config: BrokerConfig, options: argparse.Namespace) -> FirstVoters | None:
    """Return how the metadata log begins; None if the settings name the voters. ConfigError."""
    from tidelog.cluster.formatting import FirstVoters
    from tidelog.config.vocabulary import ConfigError

    if options.no_initial_controllers:
        return FirstVoters()
    if not options.standalone and options.initial_controllers is None:
        return None
    if not config.controller_listeners():
        names = ",".join(config.controller_listener_names)
        raise ConfigError("listeners", f"has none of controller.listener.names ({names})")
    if options.standalone:
        return FirstVoters(is_standalone=True)
    voters = parse_controllers(options.initial_controllers, config.controller_listener_names[0])
    if config.node_id not in [voter.node_id for voter in voters]:
        raise ConfigError("--initial-controllers", f"node {config.node_id} is not among them")
    return FirstVoters(voters)


def parse_controllers(text: str, listener: str) -> Voters:
    """Parse voters as `kafka-storage` does (Kafka's DynamicVoters); ConfigError."""
    from tidelog.cluster.metadata.voters import Voter
    from tidelog.config.vocabulary import ConfigError
    from tidelog_protocol.primitives import uuid_from_str

    voters = {}
    for entry in text.split(","):
        node_id, _, rest = entry.strip().partition("@")
        host, _, rest = rest.rpartition("]:") if rest.startswith("[") else rest.partition(":")
        port, _, directory = rest.partition(":")
        try:
            voter = Voter(
                int(node_id),
                uuid_from_str(directory),
                ((listener, host.strip("["), int(port)),),
            )
        except ValueError:
            voter = None
        if voter is None or not (host and voter.node_id >= 0 and 0 < int(port) < 65536):
            raise ConfigError(
                "--initial-controllers", f"{entry!r} is not of the form ID@HOST:PORT:DIRECTORY"
            )
        voters[voter.node_id] = voter
    return tuple(voters[node_id] for node_id in sorted(voters))


def _users(
    arguments: Sequence[str], draw: Callable[[int], bytes]
) -> list[UserScramCredentialRecord]:
    """Return the SCRAM users that a new cluster has; ConfigError."""
    if not arguments:
        return []
    from tidelog.cli.scram_users import parse_scram

    return [parse_scram(text, draw) for text in arguments]


def _format(config: BrokerConfig, options: argparse.Namespace) -> int:
    from tidelog.cluster.formatting import format_directories, look, random_cluster_id
    from tidelog.runtime import system_runtime
    from tidelog_protocol.primitives import uuid_to_str

    runtime = system_runtime()
    first = _first_voters(config, options)
    users = _users(options.add_scram, runtime.rng.bytes)
    found = look([config], runtime.files)
    if found.unread:
        raise found.unread[0]
    given = options.cluster_id
    if given is not None and (not given or given != "".join(given.split())):
        return refuse(f"--cluster-id: {given!r} is not an id")
    if found.cluster_id is not None and given not in (None, found.cluster_id):
        return refuse(f"{found.formatted[0]} belongs to cluster {found.cluster_id}, not to {given}")
    if found.formatted and not options.ignore_formatted:
        return refuse(
            f"{found.formatted[0]} is formatted already; --ignore-formatted formats the others"
        )
    cluster_id = found.cluster_id or given or random_cluster_id(runtime.rng.uuid)
    for path in found.formatted:
        say(f"{path} is formatted already, for node {config.node_id} of cluster {cluster_id}")
    for path, directory_id in format_directories(found, runtime, cluster_id, first, users):
        kind = "metadata" if path == config.metadata_directory() else "data"
        say(
            f"formatted {kind} directory {path} for node {config.node_id} of cluster {cluster_id}"
            f" with directory id {uuid_to_str(directory_id)}"
        )
    return 0
