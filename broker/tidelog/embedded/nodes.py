"""One node of a `Cluster`: a broker in this event loop, or in its own process.

Both have the same methods and keep their settings, data and ports across restarts: `start`, `stop`
cleanly, `kill` like a crash. `cluster.py` builds them.

A broker is ready when it knows that it is unfenced; the other brokers learn of it a moment later.
Clients may ask any of them, so a start ends when all brokers know each other (`until_whole`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tidelog.awaiting import uninterrupted
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster_settings import (
    FAILED_WORDS,
    READY_WORDS,
    TELL_STARTER,
    ClusterError,
)
from tidelog.embedded.settings_pipe import SETTINGS_ON_STDIN, settings_bytes
from tidelog.runtime import system_runtime, volume_bytes
from tidelog.server import FLUSH_SECONDS_MAX, BrokerServer, StartError
from tidelog.start_error import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster_time import ClockSetting
    from tidelog.control.faults.rules import Count
    from tidelog.control.wire import Asker
    from tidelog.replication.replica_fetcher import ReplicaFetcher
    from tidelog.seams import Runtime

__all__ = ["LocalNode", "Node", "ProcessNode", "start_together", "until_whole"]

Life = TypeVar("Life")

STOP_S_MAX = 45.0  # the process has limits of its own, below this (cli/ending.py)
WHOLE_S_MAX = 30.0
LOOK_AGAIN_S = 0.01


class Node(ABC, Generic[Life]):
    """A handle on one broker of a `Cluster`, in this event loop or in its own process."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        durable: bool,
        on_start: Callable[[Node[Any]], Awaitable[None]],
        on_end: Callable[[Node[Any]], None],
    ) -> None:
        """`on_start` is called when the broker is ready, and ends its start; `on_end` when it
        stopped on its own, with the reason in `failure`. Without `durable` it skips fsync."""
        self.config = BrokerConfig.from_properties(properties)
        self.failure: BaseException | None = None
        self._durable = durable
        self._on_start = on_start
        self._on_end = on_end
        self._life: Life | None = None
        self._is_frozen = False
        self.clock: Callable[[int], ClockSetting | None] = lambda _node_id: None
        """Returns the clock with which the broker of that id starts, if a tester has moved it."""

    @property
    def node_id(self) -> int:
        """Its id in the cluster."""
        return self.config.node_id

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._life is not None

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still."""
        return self._is_frozen

    @property
    @abstractmethod
    def is_isolated(self) -> bool:
        """Whether it has its own process."""

    @property
    def _running(self) -> Life:
        self._raise_failure()
        if self._life is None:
            raise ClusterError(f"broker {self.node_id} is not running")
        return self._life

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise ClusterError(f"broker {self.node_id} is gone: {one_line(self.failure)}")

    @property
    def is_voter(self) -> bool:
        """Whether it votes in the metadata quorum."""
        return not self.config.is_alone() and "controller" in self.config.process_roles

    @property
    @abstractmethod
    def bootstrap_server(self) -> str:
        """Its `host:port`; ClusterError if it is not running."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """Id of its process; ClusterError if it is not running."""

    @property
    @abstractmethod
    def flush_seconds_max(self) -> float:
        """How long its logs may take to become durable when it stops."""

    async def start(self) -> None:
        """Start it on its data and its ports; StartError gives the reason if it fails."""
        if self._life is not None:
            raise ClusterError(f"broker {self.node_id} is already running")
        self.failure = None
        self._life = await self._begin()
        try:
            await self._on_start(self)
        except BaseException:
            await uninterrupted(self.kill())
            raise

    @abstractmethod
    async def _begin(self) -> Life:
        """Start, and return when it answers clients; clean up after a failure."""

    @abstractmethod
    async def known(self) -> set[int]:
        """Return the ids of the live brokers that it knows; empty if it does not answer."""

    @abstractmethod
    async def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Perform a control call of scope "broker" on it, and return the result.

        ControlError if it refuses; ClusterError if it is not running.
        """

    async def stop(self, *, controlled: bool = True, keeps_data: bool = True) -> None:
        """Stop it; with `controlled`, move its leaderships to other brokers first.

        Does nothing if it is not running. Without `keeps_data` its files are not closed cleanly,
        which saves time if they are removed next. ClusterError if it had stopped on its own, did
        not stop cleanly or had to be killed.
        """
        self._raise_failure()
        if self._is_frozen:
            await self.thaw()
        life, self._life = self._life, None
        if life is not None:
            await uninterrupted(self._stop(life, controlled=controlled, keeps_data=keeps_data))

    @abstractmethod
    async def _stop(self, life: Life, *, controlled: bool, keeps_data: bool) -> None: ...

    async def kill(self) -> None:
        """End it like a crash; the next start recovers. Does nothing if it is not running."""
        life, self._life = self._life, None
        self._is_frozen = False
        if life is not None:
            await uninterrupted(self._kill(life))

    async def freeze(self) -> None:
        """Let it stand still until `thaw`: nothing passes its connections, no timer fires."""
        if self._is_frozen:
            raise ClusterError(f"broker {self.node_id} is frozen already")
        await self._freeze(self._running, is_frozen=True)
        self._is_frozen = True

    async def thaw(self) -> None:
        """Let it go on after `freeze`."""
        if self._life is not None and not self._is_frozen:
            raise ClusterError(f"broker {self.node_id} is not frozen")
        await self._freeze(self._running, is_frozen=False)
        self._is_frozen = False
        setting = self.clock(self.node_id)
        if setting is not None:
            await self.ask("broker.clock_set", vars(setting))

    @abstractmethod
    async def _freeze(self, life: Life, *, is_frozen: bool) -> None: ...

    @abstractmethod
    async def _kill(self, life: Life) -> None: ...


class LocalNode(Node[BrokerServer]):
    """A broker in the running event loop."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        runtime: Runtime | None,
        new_fetcher: Callable[..., ReplicaFetcher] | None = None,
        fault_counts: dict[int, Count] | None = None,
        **rest: Any,
    ) -> None:
        """`runtime` replaces the real seams; the brokers of a process share `fault_counts`.
        `BrokerServer` takes `new_fetcher`, `Node` the `rest`."""
        super().__init__(properties, **rest)
        self._runtime = runtime
        self._new_fetcher = new_fetcher
        self._ending: asyncio.Task[None] | None = None
        self._control: BrokerControl | None = None
        self._fault_counts = fault_counts

    @property
    def is_isolated(self) -> bool:
        """It runs in this process."""
        return False

    @property
    def bootstrap_server(self) -> str:
        """Its `host:port`."""
        return self._running.bootstrap_servers

    @property
    def pid(self) -> int:
        """Id of this process."""
        assert self._running
        return os.getpid()

    @property
    def flush_seconds_max(self) -> float:
        """By the number of its logs."""
        return self._running.flush_seconds_max

    @property
    def server(self) -> BrokerServer:
        """The broker itself, for tests that look inside."""
        return self._running

    async def _begin(self) -> BrokerServer:
        runtime = self._runtime or system_runtime(durable=self._durable)
        setting = self.clock(self.node_id)
        if setting is not None:
            from tidelog.control.broker_clock import MovableTime  # noqa: PLC0415 - rarely moved

            MovableTime(runtime).set(setting)
        server = BrokerServer(
            self.config,
            runtime,
            volume_bytes=volume_bytes,
            new_fetcher=self._new_fetcher,
        )
        server.on_failure = self._failed
        await server.start()
        return server

    async def known(self) -> set[int]:
        """Read the brokers from its image."""
        if self._life is None:
            return set()
        image = self._life.metadata.image
        return {node_id for node_id in image.brokers if image.is_alive(node_id)}

    async def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Perform it in this loop."""
        from tidelog.control.broker import BrokerControl  # noqa: PLC0415 - on the first call
        from tidelog.control.table import perform  # noqa: PLC0415

        server = self._running
        if self._control is None or self._control.server is not server:
            self._control = BrokerControl(server, self._fault_counts)
        return await perform(self._control, call, args)

    async def _freeze(self, life: BrokerServer, *, is_frozen: bool) -> None:
        """Hold its connections, its periodic work and the sessions of clients. What it sends to
        other brokers waits, so its heartbeats stop."""
        await self.ask("broker.freeze", {"is_frozen": is_frozen})

    def _failed(self) -> None:
        """End it like a crash: the state of its disk is unknown."""
        if self._life is None:
            return  # `stop` is running, and reports the failure
        self.failure = self._life.failure
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        try:
            await self.kill()
        finally:
            self._on_end(self)

    async def _stop(self, life: BrokerServer, *, controlled: bool, keeps_data: bool) -> None:
        await life.stop(controlled=controlled, keeps_data=keeps_data)
        if life.failure is not None:
            raise life.failure

    async def _kill(self, life: BrokerServer) -> None:
        await life.kill()


class ProcessNode(Node["asyncio.subprocess.Process"]):
    """A broker in its own process, `tidelog broker`, which ends with this one."""

    PROGRAM: ClassVar[tuple[str, ...]] = ("tidelog", "broker")
    """The module to run, and its first arguments."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        log_level: str = "warning",
        log_format: str = "text",
        **rest: Any,
    ) -> None:
        """The log is that of its standard error; `rest` is that of `Node`."""
        super().__init__(properties, **rest)
        self._log_level = log_level
        self._log_format = log_format
        self._watching: asyncio.Task[None] | None = None
        self._asker: Asker | None = None
        self._bootstrap_server = ""

    @property
    def is_isolated(self) -> bool:
        """It runs in its own process."""
        return True

    @property
    def bootstrap_server(self) -> str:
        """Its `host:port`."""
        assert self._running
        return self._bootstrap_server

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running.pid

    @property
    def flush_seconds_max(self) -> float:
        """The most of any broker: its own process has the limit by the number of its logs."""
        return FLUSH_SECONDS_MAX

    async def _begin(self) -> asyncio.subprocess.Process:
        """StartError, with the broker's reason, if it ends before it is ready."""
        from tidelog.control.wire import ANSWER_BYTES_MAX, Asker  # noqa: PLC0415 - processes alone

        arguments = [SETTINGS_ON_STDIN]
        if not self._durable:
            arguments.append("--no-fsync")
        setting = self.clock(self.node_id)
        if setting is not None:
            import json  # noqa: PLC0415 - seldom needed

            arguments.append(f"--clock={json.dumps(vars(setting))}")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", *self.PROGRAM, "--until-stdin-ends", TELL_STARTER),
            f"--log-level={self._log_level}",
            f"--log-format={self._log_format}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=ANSWER_BYTES_MAX,
            start_new_session=True,  # Ctrl-C goes only to the parent process
        )
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(settings_bytes(self.config.given))
        try:
            line = (await process.stdout.readline()).decode().strip()
        except BaseException:
            await uninterrupted(_give_up(process))
            raise
        if not line.startswith(READY_WORDS):
            await uninterrupted(_give_up(process))
            reason = line.removeprefix(FAILED_WORDS)
            raise StartError(reason if reason != line else f"broker {self.node_id} did not start")
        self._bootstrap_server = line.removeprefix(READY_WORDS)
        asker = self._asker = Asker(process.stdin.write)
        self._watching = asyncio.get_running_loop().create_task(self._watch(process, asker))
        return process

    async def known(self) -> set[int]:
        """Ask it for Metadata, as a client does."""
        from tidelog.network.peer_securities import PeerSecurities  # noqa: PLC0415 - clusters alone
        from tidelog.network.peers import PeerChannel, PeerError  # noqa: PLC0415 - too
        from tidelog_protocol.messages.cluster import MetadataRequest  # noqa: PLC0415

        # As another broker does: clients may use a mapped port, and have other secrets.
        name = self.config.inter_broker_listener()
        (inner,) = [each for each in self.config.advertised_endpoints() if each.name == name]
        host, _, port = self._bootstrap_server.rpartition(":")
        address = (inner.host or host.strip("[]"), inner.port or int(port))
        runtime = system_runtime()
        securities = PeerSecurities(self.config, runtime)
        channel = PeerChannel(runtime.network, runtime.clock, address, client_id="tidelog")
        channel.security = securities.of_brokers()
        try:
            answer = await channel.ask(MetadataRequest(topics=[]))
        except PeerError:
            return set()
        finally:
            channel.close()
            securities.close()
        return {broker.node_id for broker in answer.brokers}

    async def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Send it to the process."""
        from tidelog.control.table import find  # noqa: PLC0415
        from tidelog.control.values import from_json  # noqa: PLC0415 - on the first call

        known = find(call, "broker")
        assert self._running
        assert self._asker is not None
        return from_json(known.result, await self._asker.ask(call, args))

    async def _freeze(self, life: asyncio.subprocess.Process, *, is_frozen: bool) -> None:
        life.send_signal(signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def _take(self, line: bytes, asker: Asker) -> bool:
        """Take a line of the process; False if it is no answer."""
        return asker.take(line)

    async def _watch(self, process: asyncio.subprocess.Process, asker: Asker) -> None:
        """Take its answers, and notice when it ends on its own."""
        assert process.stdout is not None
        printed = b""
        async for line in process.stdout:
            if not self._take(line, asker):
                printed += line
        said = printed.decode(errors="replace").strip()
        code = await process.wait()
        asker.end(f"broker {self.node_id} ended during the call")
        if self._life is process:
            self._life = None
            reason = said.removeprefix(FAILED_WORDS)
            self.failure = ClusterError(reason if reason != said else _how_it_ended(code))
            self._on_end(self)

    async def _stop(
        self, life: asyncio.subprocess.Process, *, controlled: bool, keeps_data: bool
    ) -> None:
        await _end(life, "terminate" if controlled else "end of input")
        if life.returncode:
            how = _how_it_ended(life.returncode)
            raise ClusterError(f"broker {self.node_id} did not stop cleanly: {how}")

    async def _kill(self, life: asyncio.subprocess.Process) -> None:
        await _end(life, "kill")


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return f"its process was killed by {name}"


async def _end(process: asyncio.subprocess.Process, how: str) -> None:
    assert process.stdin is not None
    if process.returncode is None:
        if how == "kill":
            process.kill()
        elif how == "terminate":
            process.terminate()
    if how != "terminate":  # with SIGTERM it would mean: all stop, move no leaderships
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), STOP_S_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
    finally:
        process.stdin.close()


async def _give_up(process: asyncio.subprocess.Process) -> None:
    """Kill a process, and wait for the end of its pipe: asyncio complains of an open one."""
    await _end(process, "kill")
    assert process.stdout is not None
    await process.stdout.read()


async def start_together(nodes: Collection[Node[Any]]) -> None:
    """Start nodes at once, because none is ready before most are; kill all if one fails."""
    tasks = [asyncio.ensure_future(node.start()) for node in nodes]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(node.kill() for node in nodes))
        raise


async def until_whole(nodes: Sequence[Node[Any]]) -> None:
    """Return when each running node knows all the other running nodes.

    StartError after a limit of time.
    """
    try:
        async with asyncio.timeout(WHOLE_S_MAX):
            while True:
                if await _are_whole(nodes):
                    return
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise StartError(
            f"some brokers do not know all the others after {WHOLE_S_MAX:g} s"
        ) from None


async def _are_whole(nodes: Sequence[Node[Any]]) -> bool:
    running = [node for node in nodes if node.is_running]
    if len(running) > 1:
        node_ids = {node.node_id for node in running}
        for node in running:
            if not node_ids <= await node.known():
                return False
    return True
