"""Where tidelog's tools may print something else than Kafka's, each with its reason.

An expectation is Kafka's transcript after these replacements: a row that no longer holds fails.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from compat.conformance.allowed import NEWER

if TYPE_CHECKING:
    from collections.abc import Sequence


class Allowed(NamedTuple):
    """In a session, what Kafka prints (a regular expression, or whole lines) and tidelog does."""

    session: str
    kafka: str
    tidelog: str
    why: str


ALLOWED = (
    Allowed("cluster-and-quorum", r"(?<=ApiVersions\(18\): 0 to )4", "5", NEWER),
    Allowed("cluster-and-quorum", r"(?<=DeleteGroups\(42\): 0 to )2", "3", NEWER),
)


def expected_of(session: str, text: str, rows: Sequence[Allowed] = ALLOWED) -> str:
    """What tidelog's transcript has to be."""
    for row in rows:
        if row.session == session:
            text = re.sub(row.kafka, row.tidelog, text)
    return text
