"""Record the transcripts anew from a live Apache Kafka, or print where tidelog differs."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from compat.console.recording import (
    differences,
    load,
    new_kafka,
    new_tidelog,
    played,
    save,
)
from compat.console.transcripts import SESSIONS
from compat.jvm import Jvm


def main() -> None:
    """All sessions, or the named ones."""
    parser = argparse.ArgumentParser(prog="compat.console")
    parser.add_argument("--record", action="store_true", help="from Apache Kafka")
    parser.add_argument("names", nargs="*", choices=[[], *SESSIONS])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jvm = Jvm(Path(folder) / "jvm.log")
        try:
            for name in args.names or SESSIONS:
                one = SESSIONS[name]
                (own := Path(folder) / name).mkdir()
                if args.record:
                    save(name, played(one, new_kafka(one, own), jvm, None))
                    continue
                expected = load(name)
                found = played(one, new_tidelog(one, own), jvm, expected)
                print(f"== {name}", *differences(expected, found))
        finally:
            jvm.kill()


if __name__ == "__main__":
    main()
