"""The HTTP door of the control calls, used from another thread by the standard library's client."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple

from support.processes import END_S_MAX
from tidelog.control.http import Address, HttpDoor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

LOOPBACK = Address("127.0.0.1", 0, None)


class Answer(NamedTuple):
    status: int
    kind: str
    body: Any


def send(url: str, args: object = None, *, body: bytes | None = None, **headers: str) -> Answer:
    """GET without arguments, POST with some."""
    data = body if args is None else json.dumps(args).encode()
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    request = urllib.request.Request(url, data, named)
    try:
        with urllib.request.urlopen(request, timeout=END_S_MAX) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers["Content-Type"], json.load(error))


def with_door(
    use: Callable[[str], None],
    ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
    address: Address = LOOPBACK,
) -> None:
    """Use a door from another thread."""

    async def test() -> None:
        door = HttpDoor(address, ask)
        await door.start()
        try:
            await asyncio.to_thread(use, door.url)
        finally:
            await door.stop()

    asyncio.run(test())
