"""The cases of SASL."""

from __future__ import annotations

from compat.conformance import registry

CASES: list[registry.Case] = []


def case(api: str, first: int = 0, last: int = 99) -> object:
    """Register a case in the versions of its API."""
    return registry.case(api, first, last, into=CASES)
