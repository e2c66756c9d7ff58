"""Why an authentication failed."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """An authentication failed. `shown` is for the client; if it is None, the client learns only
    that its credentials are invalid."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        super().__init__(reason)
        self.shown = shown

    @classmethod
    def openly(cls, reason: str) -> RefusedError:
        """Return one whose reason the client may know."""
        return cls(reason, reason)
