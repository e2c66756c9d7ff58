"""`tidelog completion`: print what makes a shell complete commands, options and their values.

argcomplete asks the program itself at each Tab, with the line so far in the environment. The
program then prints what may come next and ends before it does anything: `complete` for the name of
a command, `common.Parser` for the rest. Without that request argcomplete is not imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.cli import common

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["complete", "main"]

_OWN_PARSER = "demo"  # it would run: it uses tidelog as others do, without `common.Parser`

SHELLS = ("bash", "zsh", "fish")


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    parser = common.Parser(
        prog="tidelog completion",
        description="Print what makes a shell complete tidelog's commands and options. bash, zsh:"
        " source <(tidelog completion bash). fish: tidelog completion fish | source.",
    )
    parser.add_argument("shell", choices=SHELLS)
    options = parser.parse_args(arguments)
    return common.run("completion", lambda: _print_code(options.shell))


def _print_code(shell: str) -> None:
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - an extra

    print(shellcode(["tidelog"], shell=shell))


def complete(names: Iterable[str]) -> list[str]:
    """Return the words of the line that is being completed, if the first of these names is whole.

    Otherwise print the names that it may become, and end.
    """
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT") or 1 << 20)]
    words = line.split()[1:]
    if words and words[0] in names and (len(words) > 1 or line[-1:].isspace()):
        if words[0] == _OWN_PARSER:
            raise SystemExit(1)
        return words
    parser = common.Parser(prog="tidelog")
    parser.add_argument("command", choices=list(names))
    parser.parse_args([])
    raise SystemExit(1)
