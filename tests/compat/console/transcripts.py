"""All sessions by name."""

from __future__ import annotations

from compat.console import sessions_clients, sessions_cluster, sessions_metadata
from compat.console.sessions import SESSIONS

__all__ = ["SESSIONS", "sessions_clients", "sessions_cluster", "sessions_metadata"]
