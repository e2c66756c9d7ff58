"""Fetches Kafka's jars and the examples' packages, and builds what tests run of Go and Java, before
any test: their time limits are not made for downloads and compilers.

`make test` calls it. What can't be had (no Go, no Maven, no registry) is named; its tests skip.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from support.examples import EXAMPLES, UNAVAILABLE, needs_of
from tidelog_bench.peers import versitygw
from tidelog_bench.peers.go_programs import SOURCES, GoBuildError, go_program
from tidelog_bench.peers.kafka_jars import classpath

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENT = Path(__file__).parent / "compat" / "go"


def main() -> int:
    """Returns 1 when one of ours does not compile."""
    ours = [(file, sources) for sources in (SOURCES, CLIENT) for file in sources.glob("*/main.go")]
    builds: list[Callable[[], object]] = [classpath, versitygw.program]
    builds += [partial(go_program, file.parent.name, sources) for file, sources in sorted(ours)]
    builds += [partial(needs_of, example.name) for example in sorted(EXAMPLES.iterdir())]
    for build in builds:
        try:
            build()
        except GoBuildError as error:
            print(error)
            return 1
        except UNAVAILABLE as missing:
            print(missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
