"""A broker's life in its cluster: registration, heartbeats and shutdown (KIP-631).

It owns the broker epoch, and the one task that talks to the active controller about it. `server.py`
calls it. The states follow in this order (the controller may fence a RUNNING broker and unfence it
again, which changes no state here):

- REGISTERING: asks for a broker epoch until it gets one; not longer than
  `initial.broker.registration.timeout.ms`.
- FENCED: registered; leads nothing, and clients do not see it. It sends heartbeats once it has read
  its own registration from the metadata log, after which it may be unfenced.
- RUNNING: unfenced, also in its own image. It sends a heartbeat every
  `broker.heartbeat.interval.ms`, and at once when its image shows that one is awaited: it is fenced
  although alive, or another broker waits to stop until all others have applied that.
- SHUTTING_DOWN: asks to stop with every heartbeat, while the controller moves its leaderships, as
  long as another broker can take them.
- GONE: may stop; no more heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.features import (
    CORDONED_SINCE,
    DIRECTORIES_SINCE,
    METADATA_FEATURE,
    has_directories,
    supported_levels,
    unsupported,
)
from tidelog.config.security_keys import PROTOCOLS
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from tidelog.cluster.metadata.delta import BrokerDelta, MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig, Endpoint
    from tidelog.seams import Runtime
    from tidelog_protocol.schema import Message
    from tidelog_storage.manager import LogManager

    Ask = Callable[[Message], Coroutine[Any, Any, Any]]

__all__ = ["BrokerLifecycle", "LifecycleError", "State"]

_log = logging.getLogger("tidelog.lifecycle")

RETRY_S = 0.05  # after a failed attempt; with jitter and growing
SHUT_DOWN_RETRY_S = 0.02  # between requests to shut down
UNREACHABLE_S_MAX = 1.0  # without a controller for this long, it stops without permission

# The cluster will not take this broker, whatever it does.
_FATAL = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the cluster has another id than the log directories here",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster's features are of another version",
    ErrorCode.INVALID_REGISTRATION: "the active controller does not take this registration",
}


class LifecycleError(StorageError):
    """The broker cannot join the cluster; the text is one line."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, text)


class State(Enum):
    """See the module's docstring."""

    REGISTERING = auto()
    FENCED = auto()
    RUNNING = auto()
    SHUTTING_DOWN = auto()
    GONE = auto()


TRANSITIONS: dict[State, frozenset[State]] = {
    State.REGISTERING: frozenset({State.FENCED, State.GONE}),
    State.FENCED: frozenset({State.RUNNING, State.SHUTTING_DOWN, State.GONE}),
    State.RUNNING: frozenset({State.SHUTTING_DOWN, State.GONE}),
    State.SHUTTING_DOWN: frozenset({State.GONE}),
    State.GONE: frozenset(),
}


class BrokerLifecycle:
    """One incarnation of one broker."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        ask: Ask,
        metadata: MetadataLog,
        runtime: Runtime,
        endpoints: Sequence[Endpoint],
        logs: LogManager,
    ) -> None:
        """`ask` sends a request to the active controller. Clients reach this broker at `endpoints`,
        other brokers at the first of them. `logs` have the ids of the log directories, and the
        epochs of this broker's earlier registrations."""
        self.state = State.REGISTERING
        self.broker_epoch = -1
        self._config = config
        self._ask = ask
        self._metadata = metadata
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._logs = logs
        self._told_offline: set[bytes] = set()  # directories that a controller knows to be offline
        self._told_cordoned: list[bytes] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._ended_epoch = logs.ended_broker_epoch
        self._heartbeat_s = config.broker_heartbeat_interval_ms / 1000
        self._registration = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=metadata.image.cluster_id,
            incarnation_id=runtime.rng.uuid(),
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=PROTOCOLS.index(
                        config.listener_settings(endpoint.name).protocol
                    ),
                )
                for endpoint in endpoints
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in supported_levels().items()
            ],
            rack=config.broker_rack,
            log_dirs=[one.directory_id for one in logs.directories if one.failure is None],
            previous_broker_epoch=logs.clean_broker_epoch,
        )
        self._registered = frozenset(self._registration.log_dirs)
        self._changed = asyncio.Event()  # the image, or the wanted state, has changed
        self._awaited = asyncio.Event()  # a heartbeat is awaited
        self._may_go = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def incarnation_id(self) -> bytes:
        """The id of this process."""
        return self._registration.incarnation_id

    def _refusal(self, code: ErrorCode) -> str:
        names = unsupported(self._metadata.image.features)
        if code is not ErrorCode.UNSUPPORTED_VERSION or not names:
            return _FATAL[code]
        return f"{_FATAL[code]}; tidelog does not know {', '.join(names)}"

    def _become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} to {state}"
        _log.info("broker %d: %s", self._config.node_id, state.name)
        self.state = state

    def on_image(self, delta: MetadataDelta, _image: ClusterImage) -> None:
        """Send a heartbeat at once if the image shows that one is awaited."""
        self._changed.set()
        if any(self._is_awaited(change) for change in delta.brokers.values()):
            self._awaited.set()

    def _is_awaited(self, change: BrokerDelta) -> bool:
        """Return whether a heartbeat is awaited after this change."""
        old, new = change
        if old is None or old.fenced:
            return False
        if old.node_id == self._config.node_id:
            return new is None or new.fenced
        return new is not None and new.in_controlled_shutdown and not old.in_controlled_shutdown

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register, and return when this broker is unfenced and knows it; LifecycleError if the
        cluster refuses it.

        Images are published from its own registration on.
        """
        seconds_max = self._config.initial_broker_registration_timeout_ms / 1000
        await self._register(seconds_max)
        try:
            async with asyncio.timeout(seconds_max):
                await self._metadata.wait_for(self.broker_epoch)
                self._check_directories()
                self._metadata.start_publishing(self.broker_epoch)
                await self._beat_until_unfenced()
        except TimeoutError:
            raise LifecycleError(f"registered, but still fenced after {seconds_max:g} s") from None
        # The end is BrokerLifecycleManager's line, for which testcontainers waits.
        _log.info(
            "broker %d: the broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
            self._config.node_id,
        )
        self._become(State.RUNNING)
        self._task = asyncio.get_running_loop().create_task(
            self._beat(), name=f"heartbeats of {self._config.node_id}"
        )

    def _check_directories(self) -> None:
        """Refuse several log directories where the metadata names none (Kafka's
        MetadataVersionConfigValidator)."""
        features = self._metadata.image.features
        if len(self._config.log_directories()) > 1 and not has_directories(features):
            raise LifecycleError(
                f"log.dirs: several directories need {METADATA_FEATURE} {DIRECTORIES_SINCE} "
                f"(3.7-IV2), and the cluster has {features[METADATA_FEATURE]}: set one, or upgrade "
                "the cluster with `kafka-features upgrade --release-version 4.3` first"
            )

    async def _register(self, seconds_max: float) -> None:
        deadline = self._clock.monotonic() + seconds_max
        is_told = False
        while True:
            try:
                response = await self._ask(self._registration)
            except PeerError as error:
                reason = str(error)
            else:
                code = ErrorCode(response.error_code)
                if code is ErrorCode.NONE:
                    break
                if code in _FATAL:
                    raise LifecycleError(f"{self._refusal(code)} ({code.name})")
                reason = code.name
                if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    reason = f"another process runs as broker {self._config.node_id} ({reason})"
                    if await self._end_previous_life():
                        continue
                    if not is_told:
                        _log.warning("waiting to register, up to %g s: %s", seconds_max, reason)
                        is_told = True
            if self._clock.monotonic() >= deadline:
                raise LifecycleError(
                    f"could not register with an active controller in time: {reason}"
                )
            await asyncio.sleep(self._retry_s())
        self.broker_epoch = response.broker_epoch
        self._become(State.FENCED)

    async def _end_previous_life(self) -> bool:
        """Fence the previous life of this broker, if it has certainly ended: the session of a
        killed process lasts until then. Return whether to register again at once."""
        if self._ended_epoch < 0:
            return False
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self._ended_epoch,
            current_metadata_offset=-1,
            want_fence=True,
            want_shut_down=True,
        )
        try:
            response = await self._ask(request)
        except PeerError as error:
            _log.debug("heartbeat of the previous registration: %s", error)
            return False
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            return False
        self._ended_epoch = -1  # fenced, or not the life that has the session
        return not response.error_code

    async def _beat_until_unfenced(self) -> None:
        """Send heartbeats until the image shows this broker unfenced. A slow broker would lose its
        session otherwise, and stay fenced."""
        while True:
            if await self._heartbeat() is not False:
                await asyncio.sleep(self._retry_s())
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_s):
                    while not self._metadata.image.is_alive(self._config.node_id):
                        await self._next_change()
                    return

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _retry_s(self) -> float:
        return RETRY_S * self._rng.uniform(0.8, 1.2)

    # -- heartbeats --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Send heartbeats until the end; retry failed ones soon. A lone broker has no session that
        could end (`Sessions`), and no other broker waits for what it has applied."""
        interval_s = None if self._config.is_alone() else self._heartbeat_s
        while self.state is not State.GONE:
            self._awaited.clear()
            if await self._heartbeat() is None:
                await asyncio.sleep(self._retry_s())
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._awaited.wait()

    def directory_failed(self, log_dir: str, _error: OSError) -> None:
        """Tell the controller of a failed log directory at once (KIP-858). If no controller answers
        within `log.dir.failure.timeout.ms`, the broker ends: the cluster would wait for replicas
        that are offline."""
        if self._logs.directory_id(log_dir) not in self._registered:
            return
        self._awaited.set()
        timeout_s = self._config.log_dir_failure_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(timeout_s, self._end_untold, log_dir))

    def _end_untold(self, log_dir: str) -> None:
        if self._logs.directory_id(log_dir) not in self._told_offline:
            key = "log.dir.failure.timeout.ms"
            self._metadata.fail(
                StorageError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"log directory {log_dir} failed, and no controller answered within {key}",
                )
            )

    def _offline_directories(self) -> list[bytes]:
        failed = [one.directory_id for one in self._logs.directories if one.failure is not None]
        return [directory_id for directory_id in failed if directory_id in self._registered]

    def reconfigured(self) -> None:
        """Tell the controller at once if other directories are cordoned (KIP-1066)."""
        if self._cordoned_directories() not in (None, self._told_cordoned):
            self._awaited.set()

    def _cordoned_directories(self) -> list[bytes] | None:
        """Return the ids of the cordoned directories; None while they are not known, because
        settings are read from the image, or not supported."""
        image = self._metadata.image
        if image.offset < self.broker_epoch:
            return None
        if image.features.get(METADATA_FEATURE, 0) < CORDONED_SINCE:
            return None
        cordoned = self._logs.cordoned
        return [one.directory_id for one in self._logs.directories if one.path in cordoned]

    async def _heartbeat(self) -> bool | None:
        """Send a heartbeat; return whether this broker is fenced, None without an answer."""
        offline, cordoned = self._offline_directories(), self._cordoned_directories()
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata.image.offset,
            want_shut_down=self.state is State.SHUTTING_DOWN,
            offline_log_dirs=offline,
            cordoned_log_dirs=cordoned,
        )
        try:
            response = await self._ask(request)
        except PeerError as error:
            _log.debug("heartbeat: %s", error)
            return None
        if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._end_here()
            return None
        if response.error_code:
            _log.info("heartbeat: %s", ErrorCode(response.error_code).name)
            return None
        self._told_offline.update(offline)
        if cordoned is not None:
            self._told_cordoned = cordoned
        if response.should_shut_down:
            self._may_go.set()
        return bool(response.is_fenced)

    def _end_here(self) -> None:
        """End this process, because the cluster knows another life of this broker, or none.

        Kafka's brokers keep sending heartbeats.
        """
        node_id = self._config.node_id
        if self.state is State.FENCED:
            raise LifecycleError(f"another process has since registered as broker {node_id}")
        self._may_go.set()
        if self.state is State.RUNNING:
            self._become(State.GONE)
            self._metadata.fail(
                StorageError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"the cluster has no broker {node_id} with epoch {self.broker_epoch} any more:"
                    " another process has registered as it, or it was unregistered",
                )
            )

    # -- stop --------------------------------------------------------------------------------------

    async def shut_down(self, seconds_max: float) -> bool:
        """Have all leaderships moved; return whether the controller allowed the shutdown.

        Without an active controller they are not moved, and without other active brokers there is
        no place to move them to: then the broker stops as it is.
        """
        if self.state is not State.RUNNING:
            return False
        self._become(State.SHUTTING_DOWN)
        self._stop_beating()
        begun = answered_at = self._clock.monotonic()
        while self._somebody_stays() and not self._may_go.is_set():
            if await self._heartbeat_within(seconds_max) is not None:
                answered_at = self._clock.monotonic()
            now = self._clock.monotonic()
            if now - begun > seconds_max or now - answered_at > UNREACHABLE_S_MAX:
                break
            if not self._may_go.is_set():
                await asyncio.sleep(SHUT_DOWN_RETRY_S)
        return self._may_go.is_set()

    def _somebody_stays(self) -> bool:
        """Return whether there is a broker that could take over, by this broker's image."""
        image, own_id = self._metadata.image, self._config.node_id
        return any(node_id != own_id and image.is_active(node_id) for node_id in image.brokers)

    async def _heartbeat_within(self, seconds: float) -> bool | None:
        try:
            return await asyncio.wait_for(self._heartbeat(), seconds)
        except TimeoutError:
            return None

    def _stop_beating(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """Stop sending heartbeats."""
        self._stop_beating()
        for timer in self._timers:
            timer.cancel()
        if self.state is not State.GONE:
            self._become(State.GONE)
