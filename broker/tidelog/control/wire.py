"""Control calls between processes: one JSON object a line.

A parent writes `{"id", "call", "args"}` to the standard input of the process of its brokers. The
process writes `{"id", "result"}` or `{"id", "error": {"message", "field", "status"}}` to its
standard output when the call is done: calls run side by side, and may be answered in any order.
"""

# ruff: noqa: PLC0415 - a process that gets no calls needs no JSON

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from tidelog.control.errors import INVALID, REFUSED, UNANSWERED, ControlError
from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["ANSWER_BYTES_MAX", "Asker", "CallReader", "answer_of", "call_line", "error_form"]

log = logging.getLogger("tidelog.control")

ANSWER_BYTES_MAX = 64 << 20
ANSWER_S_MAX = 60.0
CALLS_MAX = 64
READ_BYTES = 64 << 10
INTERNAL = 500


def call_line(number: int, call: str, args: Mapping[str, Any]) -> bytes:
    """Return the line of a call."""
    import json

    return json.dumps({"id": number, "call": call, "args": dict(args)}).encode() + b"\n"


def answer_of(line: bytes | str) -> tuple[int, Any, ControlError | None] | None:
    """Return a call's number and its result or its error; None if the line is no answer."""
    import json

    if line[:1] not in (b"{", "{"):
        return None
    answer = json.loads(line)
    error = answer.get("error")
    if error is None:
        return answer["id"], answer["result"], None
    return answer["id"], None, ControlError(**error)


class Asker:
    """The calls to one process that are not answered yet."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` sends a line."""
        self._write = write
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Make a call and return its result in its JSON form."""
        self._number += 1
        number = self._number
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._write(call_line(number, call, args))
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await future
        except TimeoutError:
            text = f"no answer to {call} within {ANSWER_S_MAX:g} s"
            raise ControlError(text, status=UNANSWERED) from None
        finally:
            self._waiting.pop(number, None)

    def take(self, line: bytes) -> bool:
        """Take a line of the process; return whether it is an answer."""
        answer = answer_of(line)
        if answer is None:
            return False
        number, result, error = answer
        future = self._waiting.get(number)
        if future is not None and not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        return True

    def end(self, reason: str) -> None:
        """Fail all calls: the process has ended."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ControlError(reason, status=REFUSED))


class CallReader:
    """Reads calls from a descriptor of the loop and writes their answers."""

    def __init__(
        self,
        descriptor: int,
        perform: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
        *,
        write: Callable[[str], None],
        at_end: Callable[[], None],
    ) -> None:
        """`perform` returns a result in its JSON form; `at_end` is called at the input's end."""
        self._descriptor = descriptor
        self._perform = perform
        self._write = write
        self._at_end = at_end
        self._rest = b""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_reading = True
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        data = os.read(self._descriptor, READ_BYTES)
        if not data:
            self._stop_reading()
            self._at_end()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._begin(line)

    def _begin(self, line: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(line), name="control call")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _answer(self, line: bytes) -> None:
        import json

        number = -1
        try:
            number, call, args = _parsed(line)
            if len(self._tasks) > CALLS_MAX:
                raise ControlError(f"more than {CALLS_MAX} calls at once", status=REFUSED)
            answer: dict[str, Any] = {"result": await self._perform(call, args)}
        except Exception as error:  # noqa: BLE001 - reported to the parent
            answer = {"error": error_form(error)}
        self._write(json.dumps({"id": number, **answer}))

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            asyncio.get_running_loop().remove_reader(self._descriptor)

    async def stop(self) -> None:
        """Take no more calls, and cancel those that run."""
        self._stop_reading()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parsed(line: bytes) -> tuple[int, str, dict[str, Any]]:
    import json

    try:
        given = json.loads(line)
        return int(given["id"]), str(given["call"]), dict(given.get("args", {}))
    except (ValueError, TypeError, KeyError):
        text = f"not a call: {line[:80].decode(errors='replace')}"
        raise ControlError(text, status=INVALID) from None


def error_form(error: Exception) -> dict[str, Any]:
    """Return an error's message, field and status; a fault of ours is logged."""
    if isinstance(error, ControlError):
        return {"message": error.message, "field": error.field, "status": error.status}
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, TidelogError):
        log.error("a control call failed", exc_info=error)
        return {"message": f"{type(error).__name__}: {text}", "field": None, "status": INTERNAL}
    return {"message": text, "field": None, "status": REFUSED}
