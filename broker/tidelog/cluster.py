"""The users' doors: `run()`, a broker in a process of its own, and `Cluster`, one in this event
loop.

Settings are Kafka's `server.properties` names, given as a mapping or as keywords with underscores
for dots: `run({"log.retention.ms": 1000})` is `run(log_retention_ms=1000)`. Without `data_dir` the
data lives in a temporary folder, which is removed at the end.
"""

# ruff: noqa: PLC0415 - `import tidelog` and its users pay for what they use

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from types import TracebackType
    from typing import IO, Self

    from tidelog.seams import Rng, Runtime
    from tidelog.server import BrokerServer

__all__ = ["Cluster", "ClusterError", "RunningCluster", "run"]

Setting = str | int | float | bool | None
READY_WORDS = "tidelog ready bootstrap.servers="
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0


class ClusterError(Exception):
    """A cluster did not start, or ended by itself; the text says what the broker said."""


def run(
    settings: Mapping[str, Setting] | None = None,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    **more: Setting,
) -> RunningCluster:
    """A broker in a process of its own, to be used by `with`; safe for tests without asyncio."""
    return RunningCluster(
        host=host, port=port, data_dir=data_dir, settings=properties_of(settings, more)
    )


class RunningCluster:
    """One broker process: started by `with` or `start()`, ended by their ends.

    The broker also ends when this process does, whatever way: it watches its standard input.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._arguments = ["--host", host, "--port", str(port), "--until-stdin-ends"]
        self._has_own_data_dir = data_dir is not None or has_data_dir(settings or {})
        self._temporary: str | None = None
        if data_dir is not None:
            self._arguments += ["--data-dir", os.fspath(data_dir)]
        for key, value in (settings or {}).items():
            self._arguments += ["--set", f"{key}={value}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._bootstrap_servers: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What clients need: `host:port`."""
        if self._bootstrap_servers is None:
            raise ClusterError("the cluster is not running")
        return self._bootstrap_servers

    @property
    def pid(self) -> int:
        """Process id of the broker."""
        if self._process is None:
            raise ClusterError("the cluster is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the broker has written to its standard error so far."""
        if self._errors is None:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

    def _forget(self) -> None:
        """Nothing is left of this cluster but what the user asked to keep."""
        self._close_log()
        if self._temporary is not None:
            import shutil

            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _close_log(self) -> None:
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def start(self) -> Self:
        """Start the broker and wait until it answers; ClusterError says why it did not."""
        import subprocess
        import sys
        import tempfile

        if self._process is not None:
            raise ClusterError("the cluster is running already")
        arguments = self._arguments
        if not self._has_own_data_dir:
            if self._temporary is None:
                self._temporary = tempfile.mkdtemp(prefix="tidelog-")
            # The broker removes it as well, in case we are gone by then.
            arguments = [*arguments, "--data-dir", self._temporary, "--temporary"]
        self._close_log()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - a full pipe would block it
        # -P: files of the current folder named like modules of ours stay out of the way.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            [sys.executable, "-P", "-m", "tidelog", "serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        try:
            self._bootstrap_servers = self._wait_until_ready(self._process)
        except BaseException:
            self._end(self._process, at_once=True)
            self._forget()
            raise
        return self

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> str:
        import select

        assert process.stdout is not None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        said = b""
        while not said.endswith(b"\n"):
            if not poll.poll(START_SECONDS_MAX * 1000):
                raise ClusterError(f"not ready after {START_SECONDS_MAX:.0f} s: {self.log.strip()}")
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                process.wait()
                reason = self.log.strip() or f"exit code {process.returncode}"
                raise ClusterError(f"the broker did not start: {reason}")
            said += chunk
        line = said.decode().strip()
        if not line.startswith(READY_WORDS):
            raise ClusterError(f"the broker did not start: it said {line!r}")
        return line.removeprefix(READY_WORDS)

    def stop(self) -> None:
        """End the broker cleanly; ClusterError if it ended by itself or had to be killed."""
        process = self._process
        if process is None:
            self._forget()
            return
        ended_before = process.poll()
        self._end(process)
        said = self.log.strip()
        self._forget()
        if ended_before is not None:
            raise ClusterError(f"the broker ended by itself, exit code {ended_before}: {said}")
        if process.returncode != 0:
            raise ClusterError(f"the broker did not stop well ({process.returncode}): {said}")

    def kill(self) -> None:
        """End the broker as a power cut would (SIGKILL); `start()` begins anew on the same data."""
        if self._process is not None:
            self._end(self._process, at_once=True)

    def _end(self, process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
        import subprocess

        self._process = None
        self._bootstrap_servers = None
        if at_once:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, Setting] | None = None
    ) -> None:
        """Create a topic and return when clients can use it; ClusterError if the broker refuses."""
        from tidelog.simple_client import create_topic

        create_topic(self.bootstrap_servers, name, partitions, properties_of(configs, {}))

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic; ClusterError if the broker refuses."""
        from tidelog.simple_client import delete_topic

        delete_topic(self.bootstrap_servers, name, missing_ok=missing_ok)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except ClusterError as stop_error:
            if error is None:
                raise
            error.add_note(str(stop_error))  # often the cause of the user's own error


class Cluster:
    """One broker in the running event loop, used by `async with` or `start()` and `stop()`."""

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        /,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | os.PathLike[str] | None = None,
        runtime: Runtime | None = None,
        **more: Setting,
    ) -> None:
        self._host = host
        self._port = port
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._settings = properties_of(settings, more)
        self._runtime = runtime
        self._server: BrokerServer | None = None
        self._temporary: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What clients need: `host:port`."""
        if self._server is None:
            raise ClusterError("the cluster is not running")
        return self._server.bootstrap_servers

    async def start(self) -> Self:
        """Start the broker; ConfigError or StartError say in one line why it can't."""
        from tidelog.config.broker import BrokerConfig
        from tidelog.runtime import SystemRng, system_runtime, volume_bytes
        from tidelog.server import BrokerServer

        if self._server is not None:
            raise ClusterError("the cluster is running already")
        properties = broker_properties(
            self._settings, host=self._host, port=self._port, data_dir=self._data_dir
        )
        if not has_data_dir(properties):
            self._temporary = temporary_data_dir(SystemRng())
            properties["log.dirs"] = self._temporary
        runtime = self._runtime or system_runtime(durable=self._temporary is None)
        server = BrokerServer(
            BrokerConfig.from_properties(properties), runtime, volume_bytes=volume_bytes
        )
        try:
            if self._temporary is not None:
                runtime.files.make_dirs(self._temporary)
            await server.start()
        except BaseException:
            self._remove_temporary(runtime)
            raise
        self._server = server
        self._started_runtime = runtime
        return self

    async def stop(self) -> None:
        """Stop the broker and remove its temporary data."""
        server, self._server = self._server, None
        if server is None:
            return
        try:
            await server.stop()
        finally:
            self._remove_temporary(self._started_runtime)

    def _remove_temporary(self, runtime: Runtime) -> None:
        if self._temporary is not None:
            runtime.files.remove_tree(self._temporary)
            self._temporary = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()


def properties_of(
    settings: Mapping[str, Setting] | None, more: Mapping[str, Setting]
) -> dict[str, str]:
    """Settings as Kafka's properties; None leaves a key to its default."""
    named = dict(settings or {})
    named.update((key.replace("_", "."), value) for key, value in more.items())
    properties = {}
    for key, value in named.items():
        if isinstance(value, bool):
            properties[key] = "true" if value else "false"
        elif value is not None:
            properties[key] = str(value)
    return properties


def broker_properties(
    settings: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
) -> dict[str, str]:
    """A developer's broker: its profile, the user's settings over it, the listener and data folder.

    `host` and `port` go before `listeners`; without any of them the broker is 127.0.0.1:9092.
    """
    from tidelog.config.broker import DEVELOPER_PROFILE

    properties = {**DEVELOPER_PROFILE, **settings}
    if host is not None or port is not None or "listeners" not in settings:
        name = "127.0.0.1" if host is None else host
        if name in ("0.0.0.0", "::"):  # noqa: S104 - the user asked for all interfaces
            name = ""
        elif ":" in name and not name.startswith("["):
            name = f"[{name}]"
        properties["listeners"] = f"PLAINTEXT://{name}:{9092 if port is None else port}"
    if data_dir is not None:
        properties["log.dirs"] = os.path.abspath(data_dir)
    return properties


def has_data_dir(properties: Mapping[str, str]) -> bool:
    """Whether the settings name a place for the data."""
    return "log.dirs" in properties or "log.dir" in properties


def temporary_data_dir(rng: Rng) -> str:
    """Name a folder for data that nobody wants to keep, without the start-up cost of `tempfile`."""
    parent = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - the name is random, the mode ours alone
    return f"{os.path.abspath(parent)}/tidelog-{os.getpid()}-{rng.bytes(6).hex()}"
