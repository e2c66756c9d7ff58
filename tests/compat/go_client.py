"""The programs of the Go client (franz-go), built once into the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError, go_program

SOURCES = Path(__file__).parent / "go"


def build_go_program(name: str) -> Path:
    """The program; skips the test when Go is missing or its modules cannot be had."""
    try:
        return go_program(name, SOURCES)
    except GoBuildError:
        raise
    except GoUnavailableError as missing:
        pytest.skip(f"the Go client: {missing}")
