"""The call `logs.level`: what the parts of running brokers log.

A part is a logger below `tidelog`: `requests`, which has a line for each request at debug, or a
package with all that it logs. Levels count for brokers that start later too. Brokers of one process
share their loggers.
"""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import ControlError
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "PARTS", "LogLevels", "SetLevel", "install", "reset"]

PARTS = (
    "all",
    "api",
    "cluster",
    "control",
    "coordinators",
    "dynamic_settings",
    "healing",
    "lifecycle",
    "maintenance",
    "membership",
    "network",
    "replication",
    "requests",
    "security",
    "server",
    "shares",
    "tiered",
    "timeline",
)


@dataclass(frozen=True)
class SetLevel:
    """A part and its new level; `inherited` is that of `all`, and of the process for `all`."""

    part: str
    level: Literal["debug", "info", "warning", "error", "inherited"]


@dataclass(frozen=True)
class LogLevels:
    """The level of each part."""

    levels: dict[str, str]


def _logger(part: str) -> logging.Logger:
    return logging.getLogger("tidelog" if part == "all" else f"tidelog.{part}")


def _set(args: SetLevel) -> LogLevels:
    level = logging.NOTSET if args.level == "inherited" else args.level.upper()
    _logger(args.part).setLevel(level)
    return LogLevels(
        {part: logging.getLevelName(_logger(part).getEffectiveLevel()).lower() for part in PARTS}
    )


def _set_here(control: BrokerControl, args: SetLevel) -> LogLevels:
    """Set what a part of this broker logs."""
    levels = _set(args)
    control.server.requests.follow_level()
    return levels


async def _level(control: ClusterControl, args: SetLevel) -> LogLevels:
    """Set what a part of the brokers logs; return the levels of all parts."""
    if args.part not in PARTS:
        near = difflib.get_close_matches(args.part, PARTS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        text = f"there is no part {args.part!r}{hint} (parts: {', '.join(PARTS)})"
        raise ControlError(text, field="part")
    levels = _set(args)
    control.log_levels[args.part] = args.level
    await control.ask_all("broker.log_level", to_json(args))
    return levels


async def reset(control: ClusterControl, _: Nothing) -> Nothing:
    """Let all parts log again what the process logs."""
    for part in list(control.log_levels):
        await _level(control, SetLevel(part, "inherited"))
    control.log_levels.clear()
    return Nothing()


async def install(control: ClusterControl, node: ControlledNode) -> None:
    """Set up a broker that has just started or thawed."""
    for part, level in control.log_levels.items():
        await node.ask("broker.log_level", {"part": part, "level": level})


CALLS = (
    Call("broker.log_level", "broker", SetLevel, LogLevels, _set_here),
    Call("logs.level", "cluster", SetLevel, LogLevels, _level),
    Call("logs.reset", "cluster", Nothing, Nothing, reset),
)
