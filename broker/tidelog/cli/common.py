"""What the console tools share: options, errors as one line, tables."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.doors.cluster_client import ClusterClient

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class CommandError(Exception):
    """The command can't do what was asked; the text is one line for the person who asked."""


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """An argument parser with the options of all console tools."""
    made = argparse.ArgumentParser(prog=f"tidelog {command}", description=description)
    _add_bootstrap(made, DEFAULT_BOOTSTRAP)
    return made


def subcommands(parser: argparse.ArgumentParser) -> Callable[..., argparse.ArgumentParser]:
    """How to add one (`add_parser`); it takes the shared options behind its name too."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, **how: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, **how)
        _add_bootstrap(made, argparse.SUPPRESS)  # else it would hide the one before its name
        return made

    return add


def _add_bootstrap(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=default,
        metavar="HOST:PORT",
        help=f"a broker of the cluster ({DEFAULT_BOOTSTRAP})",
    )


def run(command: str, action: Callable[[], None]) -> int:
    """Run a command's action; an expected error is one line on standard error and exit code 1."""
    try:
        action()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough: `tidelog consume | head`
        sys.stdout = None  # else flushing at exit complains
        return 0
    except KeyboardInterrupt:
        return 130
    except (CommandError, OSError) as error:
        print(f"tidelog {command}: {error}", file=sys.stderr)
        return 1
    return 0


def connect(bootstrap_server: str) -> ClusterClient:
    """A client connected to the first of the given brokers that answers; CommandError if nobody
    does."""
    from tidelog.doors.cluster_client import ClusterClient  # noqa: PLC0415 - after the arguments are good

    return connected(ClusterClient, bootstrap_server)


def connected(make: Callable[[str], T], bootstrap_server: str) -> T:
    """What `make` makes of these brokers; CommandError if nobody answers."""
    try:
        return make(bootstrap_server)
    except ValueError:
        raise CommandError(f"{bootstrap_server!r} is not of the form HOST:PORT") from None
    except OSError as error:
        text = f"no broker at {bootstrap_server}: {error.strerror or error}"
        raise CommandError(text) from None


def check(what: str, error_code: int, message: str | None = None) -> None:
    """CommandError unless the broker agreed."""
    if error_code != 0:
        raise CommandError(f"{what}: {describe_error(error_code, message)}")


def describe_error(error_code: int, message: str | None = None) -> str:
    """The broker's own words, or the name of the error."""
    from tidelog_protocol.errors import ErrorCode  # noqa: PLC0415 - errors are rare

    try:
        name = ErrorCode(error_code).name
    except ValueError:
        name = f"error {error_code}"
    return f"{message} ({name})" if message else name


def key_values(pairs: Iterable[str], what: str) -> dict[str, str]:
    """`key=value` words as a dictionary."""
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CommandError(f"{what} {pair!r} is not of the form KEY=VALUE")
        result[key] = value
    return result


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest word; numbers to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    numeric = [
        bool(rows) and all(isinstance(row[index], int) or row[index] == "-" for row in rows)
        for index in range(len(titles))
    ]
    for line in [[title.upper() for title in titles], *texts]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def print_json(value: object) -> None:
    """One JSON document."""
    import json  # noqa: PLC0415 - only when asked for

    print(json.dumps(value, indent=2, ensure_ascii=False))
