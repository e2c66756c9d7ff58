"""Shared parts of the console tools: options, one-line errors, tables."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class CommandError(Exception):
    """The command failed; the text is one line for the user."""


class Help(argparse.HelpFormatter):
    """Asks for the terminal's width itself: argparse imports shutil for it, and bz2 and lzma."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size().columns or 80
    except OSError:
        return 80


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest word of a misspelled one, and completes for shells."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Help, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, or answer a shell that completes a line and end (`completion.py`)."""
        if "_ARGCOMPLETE" in os.environ:
            self._complete()
        return super().parse_args(args, namespace)

    def _complete(self) -> None:
        os.environ["_ARGCOMPLETE"] = str(len(self.prog.split()))  # words before the arguments
        try:
            from argcomplete import autocomplete  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            sys.exit(1)
        autocomplete(self)
        sys.exit(1)

    def error(self, message: str) -> NoReturn:
        """Print usage and the error with a hint, and exit with 2."""
        super().error(f"{message}{self._hint(message)}")

    def _hint(self, message: str) -> str:
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice is not None:
            return did_you_mean(choice[1], re.findall(r"[^', ]+", choice[2]))
        option = re.search(r"unrecognized arguments: (--[^ =]+)", message)
        return "" if option is None else did_you_mean(option[1], _options_of(self))


def _options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the long options of a parser and of its subcommands."""
    found: set[str] = set()
    for action in parser._actions:
        found.update(each for each in action.option_strings if each.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                found |= _options_of(each)
    return found


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return an argument parser with the options of all console tools."""
    made = Parser(prog=f"tidelog {command}", description=description)
    add_connection(made, None)
    return made


def subcommands(parser: argparse.ArgumentParser) -> Callable[..., argparse.ArgumentParser]:
    """Return the function that adds a subcommand; it takes the shared options after its name
    too."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, **how: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, **how)
        add_connection(made, argparse.SUPPRESS)  # a default would hide the option before the name
        return made

    return add


def add_connection(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Add the options of `connection.py`."""
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        default=default,
        metavar="HOST:PORT",
        help=f"a broker of the cluster (bootstrap.servers of the file, or {DEFAULT_BOOTSTRAP})",
    )
    add_command_config(parser, default)


def add_command_config(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add `--command-config`."""
    parser.add_argument(
        "--command-config",
        default=default,
        metavar="FILE",
        help="properties of a client, with Kafka's names, for brokers that ask for security",
    )


def run(command: str, action: Callable[[], None]) -> int:
    """Run a command's action; an expected error is one line on standard error and exit code 1."""
    try:
        action()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe: `tidelog consume | head`
        sys.stdout = None  # else flushing at exit complains
        return 0
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        if error.name not in ("aiokafka", "argcomplete"):
            raise
        return _failed(command, f"{error.name} is not installed; run: pip install 'tidelog[cli]'")
    except (CommandError, TidelogError, OSError) as error:
        return _failed(command, error)
    return 0


def _failed(command: str, reason: object) -> int:
    print(f"tidelog {command}: {reason}", file=sys.stderr)
    return 1


def check(what: str, error_code: int, message: str | None = None) -> None:
    """Raise CommandError if the broker answered with an error."""
    if error_code != 0:
        raise CommandError(f"{what}: {describe_error(error_code, message)}")


def describe_error(error_code: int, message: str | None = None) -> str:
    """Return the broker's error message, or the name of the error."""
    from tidelog_protocol.errors import ErrorCode  # noqa: PLC0415 - errors are rare

    try:
        name = ErrorCode(error_code).name
    except ValueError:
        name = f"error {error_code}"
    return f"{message} ({name})" if message else name


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Return the end of an error that names the nearest of these names; empty if none is near."""
    import difflib  # noqa: PLC0415 - errors are rare

    near = difflib.get_close_matches(given, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def check_settings(what: str, result: Any, keys: Iterable[str], names: Iterable[str]) -> None:
    """As `check`, for a result of setting these keys; names the nearest one of a misspelled key."""
    try:
        check(what, result.error_code, result.error_message)
    except CommandError as error:
        known = set(names)
        hints = [did_you_mean(key, known) for key in keys if key not in known]
        raise CommandError(f"{error}{''.join(hints)}") from None


def key_values(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Parse `key=value` words into a dictionary."""
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CommandError(f"{what} {pair!r} is not of the form KEY=VALUE")
        result[key] = value
    return result


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; numbers are aligned to the right."""
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
    """Print one JSON document."""
    import json  # noqa: PLC0415 - only when asked for

    print(json.dumps(value, indent=2, ensure_ascii=False))
