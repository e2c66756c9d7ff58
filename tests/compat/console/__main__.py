"""Record the transcripts anew from a live Apache Kafka, or print where tidelog differs."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from compat.brokers import Tidelog
from compat.console.recording import differences, load, played, save
from compat.console.sessions import SESSIONS
from compat.jvm import Jvm
from compat.reference import ApacheKafka


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
                    save(name, played(one, ApacheKafka(own / "broker", one.settings), jvm, None))
                    continue
                broker = Tidelog(own / "broker", one.settings, has_controller_listener=True)
                expected = load(name)
                print(f"== {name}", *differences(expected, played(one, broker, jvm, expected)))
        finally:
            jvm.kill()


if __name__ == "__main__":
    main()
