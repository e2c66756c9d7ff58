"""Looks for new inputs of all targets, by chance: each seed gives the same inputs again."""

from __future__ import annotations

import logging
import random
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.file_targets import FILE_TARGETS
from fuzz.mutation import mutated
from fuzz.oracles import find_fault
from fuzz.record_targets import RECORD_TARGETS
from fuzz.security_targets import SECURITY_TARGETS
from fuzz.store_targets import STORE_TARGETS
from fuzz.wire_targets import WIRE_TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fuzz.lines import Lines
    from fuzz.oracles import Fault, Target

_ALL = (*WIRE_TARGETS, *SECURITY_TARGETS, *STORE_TARGETS, *RECORD_TARGETS, *FILE_TARGETS)
TARGETS = {each.name: each for each in _ALL}
CORPUS = Path(__file__).parent / "corpus"
MEMORY_EVERY = 20  # inputs


def corpus_of(target: Target) -> dict[str, bytes]:
    """Inputs that found a bug, by the name of their file."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / target.name).glob("*"))}


def new_input(target: Target, starts: list[bytes], seed: str) -> bytes:
    """An input; the seed decides on all of it."""
    rng = random.Random(f"{target.name}:{seed}")
    return (target.mutate or mutated)(rng.choice(starts), rng.getrandbits(32))


def starts_of(target: Target) -> list[bytes]:
    """What inputs are made of."""
    return [*target.seeds(), *corpus_of(target).values()]


@contextmanager
def silent() -> Iterator[None]:
    """What the broker says of damaged input is not looked at: thousands of lines."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def campaign(
    target: Target, seed: str, numbers: Iterable[int], lines: Lines | None = None
) -> Iterator[Fault]:
    """The faults of new inputs, one a kind. With `lines`, what reaches new code is changed
    further."""
    starts, kinds = starts_of(target), set[str]()
    for number in numbers:
        data = new_input(target, starts, f"{seed}:{number}")
        fault = find_fault(target, data, with_memory=number % MEMORY_EVERY == 0)
        if lines is not None and lines.has_new():
            starts.append(data)
        if fault is not None and fault.kind not in kinds:
            kinds.add(fault.kind)
            yield fault
