"""One node of a `Cluster`: a broker in this event loop, or in a process of its own.

Both have the same verbs and keep their place (settings, data, ports) over their lives: `start`,
`stop` in order, `kill` as a crash does. Built by `cluster.py`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tidelog.config.broker import BrokerConfig
from tidelog.doors.cluster_settings import READY_WORDS, ClusterError
from tidelog.runtime import system_runtime, volume_bytes
from tidelog.server import BrokerServer, StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.seams import Runtime

__all__ = ["LocalNode", "ProcessNode"]

STOP_S_MAX = 10.0


class LocalNode:
    """A broker in the running event loop."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        cluster_id: str,
        runtime: Runtime | None,
        durable: bool,
        on_end: Callable[[], None],
    ) -> None:
        """`on_end` is called when it ended by itself; `cluster_id` is for new directories, "" for
        one of their own; without `durable` nothing is forced to disk."""
        self.config = BrokerConfig.from_properties(properties)
        self.failure: BaseException | None = None
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._durable = durable
        self._on_end = on_end
        self._server: BrokerServer | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def node_id(self) -> int:
        """Its id in the cluster."""
        return self.config.node_id

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended."""
        return self._server is not None

    @property
    def bootstrap_server(self) -> str:
        """Its `host:port`."""
        if self._server is None:
            raise ClusterError(f"broker {self.node_id} is not running")
        return self._server.bootstrap_servers

    @property
    def server(self) -> BrokerServer:
        """The broker itself, for tests that look inside."""
        if self._server is None:
            raise ClusterError(f"broker {self.node_id} is not running")
        return self._server

    async def start(self) -> None:
        """Start; StartError says in one line why it can't."""
        if self._server is not None:
            raise ClusterError(f"broker {self.node_id} is running already")
        self.failure = None
        server = BrokerServer(
            self.config,
            self._runtime or system_runtime(durable=self._durable),
            volume_bytes=volume_bytes,
            cluster_id=self._cluster_id or None,
        )
        server.on_failure = self._failed
        await server.start()
        self._server = server

    def _failed(self) -> None:
        """Its disk can't be trusted any more: it has to go, as if its process had ended."""
        assert self._server is not None
        self.failure = self._server.failure
        self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        try:
            await self.kill()
        finally:
            self._on_end()

    async def stop(self, *, controlled: bool = True) -> None:
        """Stop in order, leaderships moved before if `controlled`; nothing if it doesn't run."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(controlled=controlled)

    async def kill(self) -> None:
        """End without a word to anybody; the next start recovers."""
        server, self._server = self._server, None
        if server is not None:
            await server.kill()


class ProcessNode:
    """A broker in a process of its own, `tidelog broker`, which ends with this one."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        cluster_id: str,
        durable: bool,
        on_end: Callable[[], None],
    ) -> None:
        """As for `LocalNode`."""
        self.config = BrokerConfig.from_properties(properties)
        self.failure: BaseException | None = None
        self._cluster_id = cluster_id
        self._durable = durable
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._bootstrap_server = ""

    @property
    def node_id(self) -> int:
        """Its id in the cluster."""
        return self.config.node_id

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended."""
        return self._process is not None

    @property
    def bootstrap_server(self) -> str:
        """Its `host:port`."""
        if self._process is None:
            raise ClusterError(f"broker {self.node_id} is not running")
        return self._bootstrap_server

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise ClusterError(f"broker {self.node_id} is not running")
        return self._process.pid

    async def start(self) -> None:
        """Start and wait until it is ready; StartError when it ends before (it says why)."""
        if self._process is not None:
            raise ClusterError(f"broker {self.node_id} is running already")
        self.failure = None
        arguments = [f"--set={key}={value}" for key, value in self.config.given.items()]
        if self._cluster_id:
            arguments.append(f"--cluster-id={self._cluster_id}")
        if not self._durable:
            arguments.append("--no-fsync")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "tidelog", "broker", "--until-stdin-ends"),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for who looks after it
        )
        assert process.stdout is not None
        try:
            line = (await process.stdout.readline()).decode().strip()
        except BaseException:
            process.kill()
            raise
        if not line.startswith(READY_WORDS):
            await _end(process, "kill")
            raise StartError(f"broker {self.node_id} did not start")
        self._bootstrap_server = line.removeprefix(READY_WORDS)
        self._process = process
        self._watching = asyncio.get_running_loop().create_task(self._watch(process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Notice when it ends by itself."""
        code = await process.wait()
        if self._process is process:
            self._process = None
            self.failure = ClusterError(f"broker {self.node_id} ended by itself ({code})")
            self._on_end()

    async def stop(self, *, controlled: bool = True) -> None:
        """Stop in order, leaderships moved before if `controlled`; nothing if it doesn't run."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process, "terminate" if controlled else "end of input")

    async def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process, "kill")


async def _end(process: asyncio.subprocess.Process, how: str) -> None:
    assert process.stdin is not None
    if process.returncode is None:
        if how == "kill":
            process.kill()
        elif how == "terminate":
            process.terminate()
    if how != "terminate":  # the end of its input beside SIGTERM would say: all stop, move nothing
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), STOP_S_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
    finally:
        process.stdin.close()
