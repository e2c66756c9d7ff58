"""An actor in its own process: a whole broker that takes requests on its standard input, one a
line, and answers on its standard output.

    {"id": 1, "verb": "look", "arguments": {}}  ->  {"id": 1, "result": {...}}, or an "error"

Verbs are those of `Inside`. The process ends like any node of a cluster: in order on SIGTERM or at
the end of its input, or killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, cast

from tidelog.embedded.cluster_settings import READY_WORDS
from tidelog.embedded.nodes import Node, ProcessNode
from tidelog.embedded.settings_pipe import read_settings
from tidelog_scenarios.actor import Actor
from tidelog_scenarios.fetch_gate import FetchGate
from tidelog_scenarios.inside import Inside
from tidelog_scenarios.vocabulary import PlayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.control.wire import Asker

__all__ = ["ActorNode"]

_LINE_BYTES_MAX = 1 << 24


# -- the play's side -------------------------------------------------------------------------------


class ActorNode(ProcessNode):
    """The stage's side of an actor's process."""

    PROGRAM = ("tidelog_scenarios.process",)

    def __init__(self, properties: Any, **rest: Any) -> None:
        super().__init__(properties, **rest)
        self._line: _Line | None = None

    @property
    def inside(self) -> Inside:
        """Return the inside of the running broker."""
        assert self._running
        assert self._line is not None
        return cast("Inside", _Remote(self._line))

    async def _begin(self) -> asyncio.subprocess.Process:
        process = await super()._begin()
        self._line = _Line(process)
        return process

    async def _stop(
        self, life: asyncio.subprocess.Process, *, controlled: bool, keeps_data: bool
    ) -> None:
        await super()._stop(life, controlled=controlled, keeps_data=keeps_data)
        self._hang_up()

    async def _kill(self, life: asyncio.subprocess.Process) -> None:
        await super()._kill(life)
        self._hang_up()

    def _take(self, line: bytes, asker: Asker) -> bool:
        if self._line is None:
            return super()._take(line, asker)
        self._line.take(line)
        return True

    async def _watch(self, process: asyncio.subprocess.Process, asker: Asker) -> None:
        await super()._watch(process, asker)
        if self._line is not None and self._line.process is process:
            self._hang_up()

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()


class _Line:
    """Sends requests to a process and reads its answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Return the result; PlayError if the verb fails or the process is gone."""
        stdin = self.process.stdin
        assert stdin is not None
        if self.process.returncode is not None:
            raise PlayError(f"{verb}: the process is gone")
        number = self._last = self._last + 1
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        request = {"id": number, "verb": verb, "arguments": arguments}
        stdin.write(json.dumps(request).encode() + b"\n")
        try:
            return await future
        finally:
            del self._waiting[number]

    def take(self, line: bytes) -> None:
        """Give an answer to the request that awaits it."""
        answer = json.loads(line)
        future = self._waiting.get(answer["id"])
        if future is None or future.done():
            return
        if "error" in answer:
            future.set_exception(PlayError(answer["error"]))
        else:
            future.set_result(answer["result"])

    def close(self) -> None:
        """Fail what still waits; the process has ended."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PlayError("the process is gone"))


class _Remote:
    """`Inside` of a broker in another process."""

    def __init__(self, line: _Line) -> None:
        self._line = line

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        names = _parameters(verb)

        def ask(*values: Any, **more: Any) -> Awaitable[Any]:
            return self._line.ask(verb, dict(zip(names, values, strict=False)) | more)

        return ask


def _parameters(verb: str) -> tuple[str, ...]:
    code = getattr(Inside, verb).__code__
    return tuple(code.co_varnames[1 : code.co_argcount])


# -- the actor's side ------------------------------------------------------------------------------


class _Actor:
    """The broker in this process; requests come over standard input."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._gate = FetchGate()
        self._ended = asyncio.Event()
        self._is_left = False  # its parent is gone, so no other broker can take over
        self._node = Actor(
            properties,
            self._gate,
            durable=False,
            on_start=self._started,
            on_end=lambda _: self._ended.set(),
        )
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def _started(self, node: Node[Any]) -> None:
        _say(f"{READY_WORDS}{node.bootstrap_server}")

    async def run(self) -> None:
        """Serve until SIGTERM or the end of the input."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ended.set)
        reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await self._node.start()
        reading = loop.create_task(self._read(reader))
        await self._ended.wait()
        for task in (reading, *self._tasks):
            task.cancel()
        await asyncio.gather(reading, *self._tasks, return_exceptions=True)
        await self._node.stop(controlled=not self._is_left)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            task = asyncio.get_running_loop().create_task(self._answer(json.loads(line)))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        self._is_left = True
        self._ended.set()

    async def _answer(self, request: dict[str, Any]) -> None:
        answer = {"id": request["id"]}
        try:
            verb = getattr(Inside(self._node.server, self._gate), request["verb"])
            answer["result"] = await verb(**request["arguments"])
        except Exception as error:  # noqa: BLE001 - the answer carries it
            answer["error"] = str(error) or type(error).__name__
        _say(json.dumps(answer))


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main() -> None:
    """Run an actor, whose settings come first on standard input, as `ProcessNode` sends them."""
    properties = read_settings()

    async def run() -> None:
        await _Actor(properties).run()

    logging.getLogger("tidelog").addHandler(logging.NullHandler())  # the report shows it
    asyncio.run(run())


if __name__ == "__main__":
    main()
