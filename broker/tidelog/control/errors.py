"""The error of a control call that is refused; nothing is changed then."""

from __future__ import annotations

from tidelog_storage.base_error import TidelogError

__all__ = ["INVALID", "MISSING", "REFUSED", "UNANSWERED", "ClusterError", "ControlError"]

# What HTTP answers.
INVALID = 400  # an argument is wrong
MISSING = 404  # no such call, broker, topic or rule
REFUSED = 409  # not possible in the present state
UNANSWERED = 504  # no answer, or the awaited state did not come in time


class ClusterError(TidelogError):
    """A cluster did not start, stopped on its own or refused; the text has the broker's reason."""


class ControlError(ClusterError):
    """A control call was refused or failed; the text says why and what to do.

    `field` names the argument at fault, if one is; `status` is the HTTP status of this error.
    """

    def __init__(self, message: str, *, field: str | None = None, status: int = INVALID) -> None:
        super().__init__(message if field is None else f"{field}: {message}")
        self.message = message
        self.field = field
        self.status = status
