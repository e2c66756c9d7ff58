"""The report of records that are gone, as `failOnDataLoss` says (Kafka source's words)."""

from __future__ import annotations

import logging

__all__ = ["DataLossError", "lost"]

_log = logging.getLogger(__name__)


class DataLossError(RuntimeError):
    """Records of the range are gone, and `failOnDataLoss` is true."""


def lost(what: str, *, fails: bool) -> None:
    """Raise a DataLossError, or warn."""
    text = (
        f"{what}. Some data may have been lost because they are not available in Kafka any "
        "more; either the data was aged out by Kafka or the topic may have been deleted before "
        "all the data in the topic was processed."
    )
    if fails:
        raise DataLossError(
            f"{text} If you don't want your streaming query to fail on such cases, set the "
            'source option "failOnDataLoss" to "false".'
        )
    _log.warning(text)
