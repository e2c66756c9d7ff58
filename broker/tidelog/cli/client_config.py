"""`tidelog client-config`: print what a client of a secured cluster needs, for its library."""

# ruff: noqa: PLC0415 - after the arguments are good

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog.cli import common

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tidelog.control.credentials.wishes import Wishes


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
    return parser


def _print(options: argparse.Namespace) -> None:
    import os

    from tidelog.control.credentials.state import SecurityState, client_config

    wishes: Wishes = {}
    if options.user is not None:
        wishes["user"] = options.user
    if options.mechanism is not None:
        wishes["mechanism"] = options.mechanism
    folder = os.path.abspath(options.security_dir)
    if not os.path.isdir(folder):
        raise common.CommandError(f"{options.security_dir}: no such folder")
    state = SecurityState(options.bootstrap_server, "", folder)
    print(_text(client_config(state, options.client, wishes), options.client))


def _text(config: Any, client: str) -> str:
    if isinstance(config, str):
        return config.rstrip("\n")
    try:
        return json.dumps(config, indent=2)
    except TypeError:  # a function that makes tokens
        raise common.CommandError(f"{client} takes its tokens from a function") from None
