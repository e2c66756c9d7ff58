"""The base of the errors that users of tidelog catch; `tidelog.TidelogError`.

It is here because settings, the lowest room with such an error, raise it too. It imports nothing,
so that `tidelog.run` stays as fast as it is.
"""

from __future__ import annotations

__all__ = ["TidelogError"]


class TidelogError(Exception):
    """Base of the errors that tidelog raises on purpose; the text is for the user."""
