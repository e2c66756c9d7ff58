"""`run()` and `RunningCluster`: brokers in another process, and handles on them.

The process is `tidelog serve --until-stdin-ends`, which ends with this process. It reads control
calls as lines of standard input and answers each with a line on standard output
(`control/wire.py`). The methods block, for code without asyncio.
"""

# ruff: noqa: PLC0415 - `import tidelog` and its users pay for what they use

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.control.running_broker import RunningBroker, RunningBrokers
from tidelog.embedded.cluster_settings import (
    READY_WORDS,
    ClusterError,
    Setting,
    beside,
    has_data_dir,
    properties_of,
)
from tidelog.embedded.settings_pipe import SETTINGS_ON_STDIN, settings_bytes
from tidelog.embedded.tiered import Tiered, tiered_settings

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import IO, Any, Self

    from tidelog.control.brokers import Brokers
    from tidelog.embedded.pipe import Pipe

__all__ = ["RunningBroker", "RunningCluster", "run"]

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 45.0  # the process has limits of its own, below this (cli/ending.py)


class RunningCluster(RunningBrokers):
    """Brokers in another process, started by `with` or `start()`; made by `run`.

    `brokers` has a handle for each broker. The process watches its standard input, so it ends
    whenever this process ends.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        address: tuple[str | None, int | None] = (None, None),
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """`options` are further ones of `tidelog serve`."""
        if brokers < 1:
            raise ClusterError(f"a cluster needs at least one broker, not {brokers}")
        host, port = address
        self._arguments = ["--until-stdin-ends", *options]
        self._free_ports = "0"  # the chosen ports: the next start takes them again
        self._was_stopped = False
        self._has_free_port = not port and "listeners" not in (settings or {})
        if port is not None and not self._has_free_port:
            self._arguments += ["--port", str(port)]
        if host is not None:
            self._arguments += ["--host", host]
        # With several brokers, `log.dirs` names folders in the data folder of each broker.
        named = brokers == 1 and has_data_dir(settings or {})
        self._has_own_data_dir = data_dir is not None or named
        self._temporary: str | None = None
        named_id = (settings or {}).get("node.id", (settings or {}).get("broker.id", "1"))
        first = int(named_id) if brokers == 1 and named_id.isdecimal() else 1
        self._brokers = [RunningBroker(self, first + index) for index in range(brokers)]
        if brokers != 1:
            self._arguments += ["--brokers", str(brokers)]
        if data_dir is not None:
            self._arguments += ["--data-dir", os.fspath(data_dir)]
        self._settings = dict(settings or {})
        if self._settings:
            self._arguments += [SETTINGS_ON_STDIN]
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._errors: IO[bytes] | None = None
        self._bootstrap_servers: str | None = None

    @property
    def brokers(self) -> list[RunningBroker]:
        """A handle for each broker, whether it runs or not."""
        return self._brokers

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the running brokers, for clients."""
        if not self._bootstrap_servers:
            raise ClusterError("the cluster is not running")
        return self._bootstrap_servers

    @property
    def pid(self) -> int:
        """Id of the brokers' process."""
        if self._process is None:
            raise ClusterError("the cluster is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """Return what the brokers' process has written to standard error so far."""
        if self._errors is None:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

    def _forget(self) -> None:
        """Remove everything of this cluster except data that the user keeps."""
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
        """Start the brokers and wait until they answer; ClusterError says why they do not.

        It takes the ports of the last start. After `stop` others may have taken them: then it takes
        other free ones.
        """
        if self._process is not None:
            raise ClusterError("the cluster is already running")
        may_move = self._was_stopped and self._free_ports != "0"
        self._was_stopped = False
        try:
            self._launch()
        except ClusterError as error:
            if not may_move or "cannot listen" not in str(error):
                raise
            self._free_ports = "0"
            self._launch()
        return self

    def _launch(self) -> None:
        import subprocess
        import sys
        import tempfile

        from tidelog.embedded.pipe import Pipe

        arguments = self._arguments
        if self._has_free_port:
            arguments = [*arguments, "--port", self._free_ports]
        if not self._has_own_data_dir:
            if self._temporary is None:
                self._temporary = tempfile.mkdtemp(prefix="tidelog-")
            # The broker removes it as well, in case this process has ended by then.
            arguments = [*arguments, "--data-dir", self._temporary, "--temporary"]
        self._close_log()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - a full pipe would block it
        # -P: the current folder may hold files named like modules of tidelog.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            [sys.executable, "-P", "-m", "tidelog", "serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        try:
            self._give_settings(self._process)
            self._pipe = Pipe(self._process)
            self._bootstrap_servers = self._wait_until_ready(self._process, self._pipe)
        except BaseException:
            self._end(self._process, at_once=True)
            self._forget()
            raise
        servers = self._bootstrap_servers.split(",")
        self._free_ports = ",".join(server.rpartition(":")[2] for server in servers)

    def _give_settings(self, process: subprocess.Popen[bytes]) -> None:
        stdin = process.stdin
        assert stdin is not None
        if self._settings:
            with suppress(BrokenPipeError):  # the log says why it has ended
                stdin.write(settings_bytes(self._settings))
                stdin.flush()

    def _wait_until_ready(self, process: subprocess.Popen[bytes], pipe: Pipe) -> str:
        try:
            line = pipe.read_line(START_SECONDS_MAX)
        except TimeoutError:
            limit = f"{START_SECONDS_MAX:.0f} s"
            raise ClusterError(f"not ready after {limit}: {self.log.strip()}") from None
        if line is None:
            process.wait()
            reason = self.log.strip() or f"exit code {process.returncode}"
            raise ClusterError(f"the broker did not start: {reason}")
        if not line.startswith(READY_WORDS):
            raise ClusterError(f"the broker did not start: it printed {line!r}")
        return line.removeprefix(READY_WORDS)

    def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Perform it in the brokers' process; threads may call at the same time."""
        from tidelog.control.table import find
        from tidelog.control.values import from_json

        known = find(call, "cluster")
        if self._pipe is None:
            raise ClusterError("the cluster is not running")
        return from_json(known.result, self._pipe.ask(call, args))

    def change_brokers(self, call: str, **args: Any) -> Brokers:
        """Perform a call on brokers, which may start or end; return all of them."""
        brokers = super().change_brokers(call, **args)
        self._bootstrap_servers = brokers.bootstrap_servers
        return brokers

    def add_broker(
        self, *, rack: str | None = None, advertised_listeners: str | None = None
    ) -> RunningBroker:
        """Start one more broker and return its handle, as `brokers` does from then on."""
        added = super().add_broker(rack=rack, advertised_listeners=advertised_listeners)
        self._brokers.append(added)
        return added

    def stop(self) -> None:
        """Stop all brokers cleanly; ClusterError if one had already ended or had to be killed."""
        process, self._was_stopped = self._process, True
        if process is None:
            self._forget()
            return
        ended_before = process.poll()
        self._end(process)
        said = self.log.strip()
        self._forget()
        if ended_before is not None:
            raise ClusterError(f"the broker exited on its own with code {ended_before}: {said}")
        if process.returncode != 0:
            raise ClusterError(
                f"the broker did not stop cleanly (exit code {process.returncode}): {said}"
            )

    def kill(self) -> None:
        """Kill the process (SIGKILL). `start()` starts it again on the same data."""
        if self._process is not None:
            self._end(self._process, at_once=True)

    def _end(self, process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
        import subprocess

        self._process = self._pipe = None
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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with beside(error):
            self.stop()


def run(
    settings: Mapping[str, Setting] | None = None,
    /,
    *,
    brokers: int = 1,
    isolated: bool = False,
    racks: Sequence[str] | None = None,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    tiered: Tiered = False,
    tiered_topics: Sequence[str] = (),
    security: str | None = None,
    **more: Setting,
) -> RunningCluster:
    """Return brokers that run in another process; `with` starts them.

    - `settings` and further keywords: the brokers' settings by their Kafka names.
    - `brokers`: how many; `isolated` gives each broker its own process.
    - `racks`: the rack of each broker.
    - `host`, `port`: where the first broker listens; broker N listens on port + N - 1.
      Without host, port and the setting `listeners`, each takes a free port of 127.0.0.1.
    - `data_dir`: folder of the data; without it the data is temporary.
    - `tiered`: the remote tier: True for a folder beside the data, a directory, or
      "s3://bucket/prefix". Topics join by `remote.storage.enable=true`, or if their names match one
      of `tiered_topics` (`*` and `?` for any characters).
    - `security`: "ssl", "mtls", "sasl_plaintext" or "sasl_ssl" makes certificates and users, and
      `client_config` has what clients need (the extra [security]).
    """
    options = ["--isolated"] if isolated else []
    if racks is not None:
        options += ["--racks", ",".join(racks)]
    if security is not None:
        options += ["--security", security, "--bad-certificates"]
    return RunningCluster(
        brokers=brokers,
        address=(host, port),
        data_dir=data_dir,
        settings=tiered_settings(tiered, tiered_topics) | properties_of(settings, more),
        options=options,
    )
