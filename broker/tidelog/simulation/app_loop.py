"""The loop of a run with an application: asyncio's network and thread calls, simulated.

Connections go through the simulated network, `run_in_executor` runs its function whole at a later
step, and `time.sleep` holds up the process that calls it. What has no simulated form is refused
with an error that says what to do.

Each step takes a microsecond: clients such as aiokafka ask again and again for a deadline that a
rounding error keeps from them, and time would stand still meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, Unpack

from tidelog.simulation.loop import LANE, SimLoop
from tidelog.simulation.sealing import SimulationRefusedError

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable

    from tidelog.simulation.network import SimNetwork

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEP_S = 1e-6
THREAD_S = (0.0001, 0.002)  # what a function of an executor takes


def host_of_lane(lane: str) -> str:
    """Return the host of a lane: `shipping.2` is the second life of the process on `shipping`."""
    return lane.partition(".")[0]


class AppLoop(SimLoop):
    """A `SimLoop` that asyncio's clients can use."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed)
        self.network: SimNetwork | None = None
        self.hosts: set[str] = set()  # that a connection may be made to
        self._threads = random.Random(f"{seed}:threads")
        self._numbers = itertools.count()

    # time

    def time(self) -> float:
        """Virtual seconds, with those that `time.sleep` took in this step."""
        return self._now + self._stall_s

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> Any:
        """Run at `delay` virtual seconds from now."""
        return super().call_later(delay + self._stall_s, callback, *args, context=context)

    def _step(self) -> None:
        super()._step()
        self._now += STEP_S

    # futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future whose place in a set does not depend on its address."""
        return _Future(next(self._numbers), loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Return a task whose place in a set does not depend on its address."""
        options.pop("eager_start", None)
        name = options.pop("name", None) or getattr(coro, "__qualname__", "task")
        return _Task(next(self._numbers), coro, loop=self, name=name, **options)

    # what an application asks of its loop

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        **_options: Any,
    ) -> Any:
        """Connect from the host of the process that asks to a host of the simulation."""
        assert self.network is not None
        if ssl:
            raise SimulationRefusedError("the simulated brokers speak PLAINTEXT: use no TLS")
        if host not in self.hosts:
            raise SimulationRefusedError(
                f"the application connects to {host}:{port}, which is not in the simulation:"
                f" use bootstrap_servers of the simulation, and replace other services by fakes"
            )
        door = self.network.door(host_of_lane(LANE.get()))
        return await door.connect(host, port, protocol_factory)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> Any:
        """Resolve a name to itself."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> Any:
        """Run a function whole at a later step, in place of a thread."""
        future = self.create_future()

        def work() -> None:
            if future.done():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - for the task that waits
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._threads.uniform(*THREAD_S), work)
        return future

    def add_signal_handler(
        self, sig: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> None:
        """Accept a handler; a simulated process gets no signals."""

    def remove_signal_handler(self, sig: int) -> bool:
        """There is none to remove."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Stay out of debug mode: it reads the real clock."""

    def set_exception_handler(self, handler: Any) -> None:
        """Accept a handler; the loop keeps the failures itself."""

    def get_exception_handler(self) -> Any:
        """There is none."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an exception that nothing awaits, for the timeline."""
        super().call_exception_handler(context)
        if not self._closed:
            self.remark("asyncio", f"{context.get('message')}: {context.get('exception')!r}")

    def get_task_factory(self) -> Any:
        """There is none."""


class _Future(asyncio.Future[Any]):
    """A future with a hash of its own."""

    def __init__(self, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(**options)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """A task with a hash of its own: a TaskGroup cancels its tasks in the order of a set."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


def _refused(verb: str) -> Callable[..., NoReturn]:
    def refuse(*_args: Any, **_options: Any) -> NoReturn:
        raise SimulationRefusedError(
            f"loop.{verb}() has no simulated form: replace what calls it by a fake in this test"
        )

    return refuse


for _verb in (
    *("create_server", "create_unix_connection", "create_unix_server", "create_datagram_endpoint"),
    *("subprocess_exec", "subprocess_shell", "connect_read_pipe", "connect_write_pipe"),
    *("add_reader", "add_writer", "remove_reader", "remove_writer", "start_tls", "sendfile"),
    *("sock_recv", "sock_recv_into", "sock_sendall", "sock_connect", "sock_accept"),
    *("sock_recvfrom", "sock_recvfrom_into", "sock_sendto", "sock_sendfile"),
    *("set_task_factory", "set_default_executor", "connect_accepted_socket"),
):
    setattr(AppLoop, _verb, _refused(_verb))
