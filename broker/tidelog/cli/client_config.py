"""`tidelog client-config`: print what a client of a secured cluster needs, for its library."""

# ruff: noqa: PLC0415 - after the arguments are good

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog.cli import common

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tidelog.control.credentials.state import SecurityState
    from tidelog.control.credentials.wishes import Wishes

BAD_CERTIFICATES = ("expired", "wrong-host", "self-signed")
WISHES = ("user", "mechanism", "password", "token", "certificate", "client_certificate")


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("client-config", lambda: _print(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="tidelog client-config",
        description="Print the configuration of a client of brokers with --security: a file of"
        " properties or of kcat, else JSON. It has secrets: redirect it to a file that only you"
        " may read.",
    )
    from tidelog.control.credentials.clients import CLIENTS

    names = [name for name in CLIENTS if name != "aiokafka"]  # takes an object, not a text
    parser.add_argument("client", choices=names, help="the client's library; java: properties")
    parser.add_argument(
        "--security-dir",
        required=True,
        metavar="DIR",
        help="the folder of `serve --security-dir`, or the folder security of the data",
    )
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=common.DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"a broker of the cluster ({common.DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument("--user", help="admin, alice or bob (alice)")
    parser.add_argument("--mechanism", help="a mechanism of SASL (PLAIN)")
    wrong = parser.add_argument_group("what is wrong, to see a client refuse or be refused")
    wrong.add_argument("--password", help="in the place of the user's")
    wrong.add_argument("--token", help="expired, or one in the place of the user's")
    wrong.add_argument(
        "--certificate",
        choices=BAD_CERTIFICATES,
        help="the brokers' (of `serve --bad-certificates`, which must run)",
    )
    wrong.add_argument(
        "--client-certificate",
        choices=("expired", "self-signed", "none"),
        help="the client's own, of brokers that ask for one",
    )
    return parser


def _print(options: argparse.Namespace) -> None:
    import os
    from dataclasses import replace

    from tidelog.control.credentials.state import SecurityState, client_config

    folder = os.path.abspath(options.security_dir)
    if not os.path.isdir(folder):
        raise common.CommandError(f"{options.security_dir}: no such folder")
    wishes: Any = {name: value for name in WISHES if (value := getattr(options, name)) is not None}
    state = SecurityState(options.bootstrap_server, "", folder)
    if options.certificate is not None:
        state = replace(state, bad_certificates=_bad_certificates(state, folder))
    print(_text(client_config(state, options.client, wishes), options.client))


def _bad_certificates(state: SecurityState, folder: str) -> dict[str, str]:
    """Ask each broker for the addresses of its listeners with bad certificates."""
    from tidelog.cluster.metadata.image import RESOURCE_BROKER
    from tidelog.config.broker import parse_endpoints
    from tidelog.control.credentials.folder import USERS, Credentials
    from tidelog.control.credentials.listeners import listener_of
    from tidelog.control.credentials.state import client_config
    from tidelog.embedded.cluster_client import opened
    from tidelog_protocol.messages.configs import DescribeConfigsRequest

    kind = Credentials.read(folder).kind
    has_users = kind.is_sasl or kind.has_client_certificates
    wishes: Wishes = {"user": USERS[0]} if has_users else {}
    found: dict[str, list[str]] = {}
    with opened(client_config(state, "tidelog", wishes)) as client:
        for node_id in client.nodes():
            resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=RESOURCE_BROKER,
                resource_name=str(node_id),
                configuration_keys=["listeners", "advertised.listeners"],
            )
            asked = DescribeConfigsRequest(resources=[resource])
            (result,) = client.broker(node_id).ask(asked).results
            settings = {setting.name: setting.value for setting in result.configs}
            listed = settings["advertised.listeners"] or settings["listeners"]
            for endpoint in parse_endpoints("listeners", listed.split(",")):
                found.setdefault(endpoint.name, []).append(f"{endpoint.host}:{endpoint.port}")
    known = {bad: ",".join(found.get(listener_of(bad), ())) for bad in BAD_CERTIFICATES}
    return {bad: addresses for bad, addresses in known.items() if addresses}


def _text(config: Any, client: str) -> str:
    if isinstance(config, str):
        return config.rstrip("\n")
    try:
        return json.dumps(config, indent=2)
    except TypeError:  # a function that makes tokens
        raise common.CommandError(f"{client} takes its tokens from a function") from None
