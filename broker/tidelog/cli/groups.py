"""`tidelog groups`: list, describe, reset and delete consumer groups."""

# ruff: noqa: PLC0415 - message tables are imported by the subcommand that needs them

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli import common, connection, positions
from tidelog.cli.topics import LATEST, metadata, offsets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(positions.join_past(arguments, ["--to"]))
    return common.run("groups", lambda: options.action(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("groups", "Look at consumer groups, reset and delete them.")
    add_parser = common.subcommands(parser)

    listing = add_parser("list", help="names and states of groups")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(action=list_groups)

    describe = add_parser("describe", help="offsets, lag and members of groups")
    describe.add_argument("group", nargs="+")
    describe.add_argument("--members", action="store_true", help="members in place of offsets")
    describe.add_argument("--json", action="store_true", help="print JSON")
    describe.set_defaults(action=describe_groups)

    reset = add_parser("reset", help="commit other offsets for a group without members")
    reset.add_argument("group")
    reset.add_argument("topic", nargs="*", help="all topics with offsets of the group if none")
    reset.add_argument("--to", required=True, metavar="PLACE", help=positions.FORM)
    reset.add_argument("--partition", type=int, help="this partition only, of one topic")
    reset.add_argument("--dry-run", action="store_true", help="print the offsets only")
    reset.set_defaults(action=reset_group)

    delete = add_parser("delete", help="delete groups without members")
    delete.add_argument("group", nargs="+")
    delete.set_defaults(action=delete_groups)
    return parser


def list_groups(options: argparse.Namespace) -> None:
    """Print the groups by name."""
    from tidelog_protocol.messages.group_admin import ListGroupsRequest

    with connection.connect(options) as client:
        groups = []
        for node_id in client.nodes():  # each broker lists the groups that it coordinates
            response = client.broker(node_id).ask(ListGroupsRequest())
            common.check(f"broker {node_id}", response.error_code)
            groups += response.groups
    rows = sorted((g.group_id, g.group_state or "-", g.protocol_type) for g in groups)
    titles = ("group", "state", "protocol")
    if options.json:
        common.print_json([dict(zip(titles, row, strict=True)) for row in rows])
    elif rows:
        common.print_table(titles, rows)


def describe_groups(options: argparse.Namespace) -> None:
    """Print the offsets and lag of groups, or their members."""
    rows: list[dict[str, object]] = []
    for group in options.group:
        with coordinator(options, group) as client:
            described = _describe(client, group)
            rows += _members(described) if options.members else _offsets(client, described)
    if options.json:
        common.print_json(rows)
    elif rows:
        common.print_table(list(rows[0]), [list(row.values()) for row in rows])


def _describe(client: Any, group: str) -> Any:
    from tidelog_protocol.messages.group_admin import DescribeGroupsRequest

    (described,) = client.ask(DescribeGroupsRequest(groups=[group])).groups
    common.check(f"group {group}", described.error_code, described.error_message)
    return described


def _members(described: Any) -> list[dict[str, object]]:
    return [
        {
            "group": described.group_id,
            "state": described.group_state,
            "member": member.member_id,
            "instance": member.group_instance_id or "-",
            "client": member.client_id,
            "host": member.client_host,
        }
        for member in described.members
    ]


def _committed(client: Any, group_id: str) -> list[Any]:
    """Return the topics with offsets of a group."""
    from tidelog_protocol.messages.group_offsets import OffsetFetchRequest

    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None,
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)],
    )
    # Version 9 has topic names; later versions have ids, which mean nothing in this table.
    (fetched,) = client.ask(request, version_max=9).groups
    common.check(f"group {group_id}", fetched.error_code)
    return sorted((t for t in fetched.topics if t.partitions), key=lambda topic: topic.name)


def _offsets(client: Any, described: Any) -> list[dict[str, object]]:
    group_id = described.group_id
    committed = _committed(client, group_id)
    names = [topic.name for topic in committed]
    ends = offsets(client, client.topics(names) if names else [], LATEST)
    rows: list[dict[str, object]] = []
    for topic in committed:
        for partition in sorted(topic.partitions, key=lambda p: p.partition_index):
            end = ends.get((topic.name, partition.partition_index))
            rows.append(
                {
                    "group": group_id,
                    "state": described.group_state,
                    "topic": topic.name,
                    "partition": partition.partition_index,
                    "committed": partition.committed_offset,
                    "end": "-" if end is None else end,
                    "lag": "-" if end is None else max(end - partition.committed_offset, 0),
                }
            )
    return rows


def reset_group(options: argparse.Namespace) -> None:
    """Commit offsets for a group without members, and print them."""
    from tidelog_protocol.messages.group_offsets import OffsetCommitRequest as Request

    group = options.group
    with coordinator(options, group) as client:
        committed = _committed(client, group)
        if not options.topic and not committed:
            raise common.CommandError(f"group {group} has no offsets; name the topics")
        old = {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in committed
            for partition in topic.partitions
        }
        topics = metadata(client, options.topic or [topic.name for topic in committed])
        positions.only(topics, options.partition)
        new = positions.resolve(client, topics, options.to)
        if not options.dry_run:
            request = Request(
                group_id=group,
                topics=[
                    Request.OffsetCommitRequestTopic(
                        name=topic.name,
                        partitions=[
                            Request.OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_metadata="",
                            )
                            for (name, partition), offset in sorted(new.items())
                            if name == topic.name
                        ],
                    )
                    for topic in topics
                ],
            )
            # Version 9 has topic names; later versions have ids.
            for answered in client.ask(request, version_max=9).topics:
                for result in answered.partitions:
                    _check_commit(group, result.error_code)
    rows = [(*place, old.get(place, "-"), offset) for place, offset in sorted(new.items())]
    common.print_table(("topic", "partition", "old", "new"), rows)


def _check_commit(group: str, error_code: int) -> None:
    from tidelog_protocol.errors import ErrorCode

    if error_code == ErrorCode.UNKNOWN_MEMBER_ID:  # only members may commit while there are some
        raise common.CommandError(f"group {group} has members; stop them first")
    common.check(f"group {group}", error_code)


def delete_groups(options: argparse.Namespace) -> None:
    """Delete groups and their offsets."""
    from tidelog_protocol.messages.group_admin import DeleteGroupsRequest

    for group in options.group:
        with coordinator(options, group) as client:
            response = client.ask(DeleteGroupsRequest(groups_names=[group]))
        (result,) = response.results
        common.check(f"group {group}", result.error_code, result.error_message)
        print(f"{group}: deleted")


def coordinator(options: argparse.Namespace, key: str, kind: str = "group") -> Any:
    """Connect to the coordinator of a group or of a transactional id (kind "transaction")."""
    from tidelog_protocol.messages.groups import FindCoordinatorRequest

    with connection.connect(options) as client:
        key_type = int(kind == "transaction")
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        (found,) = client.ask(request).coordinators
    common.check(f"{kind} {key}", found.error_code, found.error_message)
    host = f"[{found.host}]" if ":" in found.host else found.host
    return connection.connect(options, f"{host}:{found.port}")
