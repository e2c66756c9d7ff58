"""`tidelog serve`: run one broker or several until SIGTERM, Ctrl-C or the end of its parent.

This module parses the options; `serve_cluster.py` runs the brokers.

Standard output gets one line, `tidelog ready bootstrap.servers=HOST:PORT`, once the brokers answer
clients; with `--control` it ends with ` control=URL`. Everything else goes to standard error. The
exit code is 0 after a clean stop. It is 1, with one line that gives the reason, if a broker cannot
start or the disks of all brokers have failed.
"""

# ruff: noqa: PLC0415 - what takes long to import waits until the arguments are known to be good

from __future__ import annotations

import argparse
import os
import stat
from typing import TYPE_CHECKING

from tidelog.cli import common, heap
from tidelog.cli.ending import Ending
from tidelog.cli.streams import refuse
from tidelog.embedded.settings_pipe import SETTINGS_ON_STDIN, read_settings

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return _main(options, Ending())


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="tidelog serve", description="Run a broker until SIGTERM or Ctrl-C."
    )
    parser.add_argument("--host", help="address to listen on (127.0.0.1; 0.0.0.0 for all)")
    parser.add_argument(
        "--port",
        type=_ports,
        metavar="PORT[,...]",
        help="port to listen on (9092), of the first broker or one for each; 0 takes free ones",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the data (a temporary one)")
    parser.add_argument(
        "--temporary", action="store_true", help="remove the folder of --data-dir at the end"
    )
    parser.add_argument(
        "--brokers", type=_count, default=1, metavar="N", help="how many brokers to run (1)"
    )
    parser.add_argument(
        "--isolated", action="store_true", help="run each broker in its own process"
    )
    parser.add_argument("--racks", metavar="A,B,...", help="the rack of each broker")
    parser.add_argument(
        "--tiered",
        nargs="?",
        const=True,
        default=False,
        metavar="DIR | s3://BUCKET/PREFIX",
        help="add a remote tier (KIP-405) here, or in a folder beside the data",
    )
    parser.add_argument(
        "--tiered-topics",
        metavar="PATTERN,...",
        help="set remote.storage.enable on topics with these names (* and ? are wildcards)",
    )
    parser.add_argument(
        "--control",
        metavar="HOST:PORT",
        help="take control calls (faults, time, state) over HTTP here; port 0 takes a free one;"
        " elsewhere than on loopback, clients send the token of TIDELOG_CONTROL_TOKEN",
    )
    _add_security_options(parser)
    add_common_options(parser)
    return parser


def _add_security_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--security",
        metavar="KIND",
        help="ssl, mtls, sasl_plaintext or sasl_ssl: make certificates and users for tests, and ask"
        " clients for them",
    )
    parser.add_argument(
        "--security-dir",
        metavar="DIR",
        help="where certificates and passwords are (the folder security of the data)",
    )
    parser.add_argument(
        "--bad-certificates",
        nargs="?",
        const=0,
        type=int,
        metavar="PORT",
        help="with TLS, also listen with expired, wrong-host and self-signed certificates: at this"
        " port and the next ones, three for each broker, else at free ones",
    )


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `given_settings` reads."""
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="settings in Kafka's server.properties format"
    )
    parser.add_argument(
        "--kafka-env",
        action="store_true",
        help="settings of KAFKA_* environment variables, named as Kafka's image names them;"
        " overrides the file",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a setting by its Kafka name; overrides the others; can be repeated",
    )


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that run brokers: settings, logging and how to stop."""
    add_settings_options(parser)
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="what to log on standard error (warning)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="lines of text, or JSON objects, one a line (text)",
    )
    parser.add_argument(
        "--until-stdin-ends",
        action=_UntilStdinEnds,
        nargs=0,
        default=False,
        help="also stop when standard input ends, so as not to outlive the parent process",
    )
    # For parents of ours: settings may be secrets, which arguments of a process show.
    parser.add_argument(SETTINGS_ON_STDIN, action="store_true", help=argparse.SUPPRESS)


class _UntilStdinEnds(argparse.Action):
    """Refuses an input that a loop cannot watch; /dev/null would end at once."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object
    ) -> None:
        try:
            mode = os.fstat(0).st_mode
            is_watchable = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)
        except OSError:
            is_watchable = False
        if not is_watchable:
            parser.error(
                f"{self.option_strings[0]}: standard input is neither a pipe nor a terminal"
            )
        setattr(namespace, self.dest, True)


def _main(options: argparse.Namespace, ending: Ending) -> int:
    heap.start()
    from tidelog.cli.serve_cluster import serve_cluster
    from tidelog.config.vocabulary import ConfigError

    try:
        settings = _settings(options)
    except ConfigError as error:
        return refuse(f"{error.key}: {error.message}")
    except (OSError, UnicodeDecodeError) as error:
        return refuse(f"{options.config}: {getattr(error, 'strerror', None) or error}")
    return serve_cluster(settings, options, ending)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _ports(text: str) -> int | list[int]:
    """Parse the port of the first broker, or those of all."""
    ports = [_port(each) for each in text.split(",")]
    return ports if len(ports) > 1 else ports[0]


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of --tiered, overridden by those of the file and --set."""
    from tidelog.config.vocabulary import ConfigError
    from tidelog.embedded.cluster_settings import ClusterError
    from tidelog.embedded.tiered import tiered_settings

    patterns = options.tiered_topics.split(",") if options.tiered_topics else ()
    try:
        return tiered_settings(options.tiered, patterns) | given_settings(options)
    except ClusterError as error:
        raise ConfigError("--tiered", str(error)) from None


def given_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the file, the environment and --set, a later one over an earlier.

    ConfigError, OSError or UnicodeDecodeError.
    """
    from tidelog.config.vocabulary import ConfigError

    settings: dict[str, str] = {}
    if options.config is not None:
        from tidelog.config.properties import parse_properties

        with open(options.config, "rb") as file:
            settings.update(parse_properties(file.read()))
    if options.kafka_env:
        from tidelog.config.environment import environment_settings

        named, ignored = environment_settings(os.environ)
        settings.update(named)
        for variable in ignored:
            refuse(f"{variable} is ignored: it names no setting of tidelog's")
    for setting in options.settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--set", f"{setting!r} is not of the form KEY=VALUE")
        settings[key.strip()] = value.strip()
    if getattr(options, "settings_on_stdin", False):  # no command but serve and broker has it
        settings.update(read_settings())
    return settings
