"""A real S3 server for tests: the one of the benchmarks; who cannot have it skips."""

from __future__ import annotations

import pytest

from tidelog_bench.peers import versitygw
from tidelog_bench.peers.go_programs import GoBuildError, GoUnavailableError
from tidelog_bench.peers.versitygw import ENVIRONMENT

__all__ = ["ENVIRONMENT", "Versitygw"]


class Versitygw(versitygw.Versitygw):
    """As the benchmarks have it."""

    def start(self) -> None:
        """Skips the test when Go is missing or the module cannot be had."""
        try:
            super().start()
        except GoBuildError:
            raise
        except GoUnavailableError as missing:
            pytest.skip(str(missing))
