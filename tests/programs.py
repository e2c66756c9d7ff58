"""Fetches Kafka's jars and builds what tests run of Go, before any test: their time limits are not
made for downloads and compilers.

`make test` calls it. What can't be had (no Go, no Maven, no registry) is named; its tests skip.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog_bench.peers import versitygw
from tidelog_bench.peers.go_programs import SOURCES, GoBuildError, GoUnavailableError, go_program
from tidelog_bench.peers.kafka_jars import JarsUnavailableError, classpath

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENT = Path(__file__).parent / "compat" / "go"


def main() -> int:
    """Returns 1 when one of ours does not compile."""
    ours = [(file, sources) for sources in (SOURCES, CLIENT) for file in sources.glob("*/main.go")]
    builds: list[Callable[[], object]] = [classpath, versitygw.program]
    builds += [partial(go_program, file.parent.name, sources) for file, sources in sorted(ours)]
    for build in builds:
        try:
            build()
        except GoBuildError as error:
            print(error)
            return 1
        except (GoUnavailableError, JarsUnavailableError) as missing:
            print(missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
