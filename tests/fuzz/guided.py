"""`python -m fuzz.guided TARGET SECONDS FOUND CORPUS`: inputs that reach new code, with atheris.

A process of its own for each target, as libFuzzer ends it. It writes each kind of fault to FOUND
and goes on; CORPUS is an empty folder for what reaches far. atheris has wheels for Python 3.11 on
Linux; elsewhere `campaign.py` does without coverage.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from pathlib import Path

INPUT_BYTES_MAX = 16 << 10  # more is rarely new, and slower


def is_there() -> bool:
    """Whether this Python has atheris."""
    return importlib.util.find_spec("atheris") is not None


def write(folder: Path, target: str, kind: str, data: bytes, text: str) -> None:
    """Write a fault's input, ready for the corpus, and what was raised."""
    name = hashlib.sha256(kind.encode()).hexdigest()[:12]
    (folder / target).mkdir(parents=True, exist_ok=True)
    (folder / target / name).write_bytes(data)
    (folder / target / f"{name}.txt").write_text(f"{kind}\n\n{text}")


def main(name: str, seconds: int, found: Path, corpus: Path) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["tidelog", "tidelog_protocol", "tidelog_storage"]):
        from fuzz.campaign import TARGETS, starts_of
    from fuzz.mutation import mutated
    from fuzz.oracles import find_fault

    logging.disable(logging.CRITICAL)
    target, kinds = TARGETS[name], set[str]()
    change = target.mutate or mutated

    def one(data: bytes) -> None:
        fault = find_fault(target, data)
        if fault is not None and fault.kind not in kinds:
            kinds.add(fault.kind)
            write(found, name, fault.kind, data, fault.text)

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        return change(bytes(data), seed)[:size_max]

    for number, data in enumerate(starts_of(target)):
        (corpus / str(number)).write_bytes(data)
    options = [f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}"]
    options += ["-rss_limit_mb=4096", "-timeout=60"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
