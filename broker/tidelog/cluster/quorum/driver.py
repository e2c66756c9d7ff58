"""Perform the decisions of this node's state machine: timers, requests, the copy of the log.

It owns the `QuorumCore` of this node, its timer, and the tasks that send requests to other voters.
Every event passes through `step`, which performs the effects before it returns, so no await
separates a check from its use. The server (start, stop) and `api/quorum.py` call it.

Tasks: one that fetches while this node follows (one per epoch and leader; `fetcher.py`), one that
flushes while it leads, and one for each request to another voter (`requests.py`). After each await
they check the core's role and epoch again.

The only voter elects itself when it starts, with one durable write of its election and without
timers or requests: nothing about other voters is imported.
"""

# ruff: noqa: PLC0415 - requests to other voters are imported if there are any

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.log import NotControllerError
from tidelog.cluster.quorum import events as e
from tidelog.cluster.quorum.core import QuorumCore, Role, Timeouts
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.cluster.quorum.fetcher import Fetcher
    from tidelog.cluster.quorum.requests import Requests
    from tidelog.network.peers import PeerChannel
    from tidelog.seams import Clock, Rng

__all__ = ["Quorum"]

log = logging.getLogger("tidelog.cluster.quorum")

FETCH_WAIT_S_MAX = 0.5  # how long a leader may park a fetch, as in Kafka
LEAVE_S_MAX = 0.5  # how long a stopping leader waits for the others' answers


class Quorum:
    """This node's part in the metadata quorum."""

    def __init__(
        self,
        metadata: MetadataLog,
        channels: Mapping[int, PeerChannel],
        *,
        node_id: int,
        clock: Clock,
        rng: Rng,
        timeouts: Timeouts | None = None,
    ) -> None:
        """`channels` lead to the CONTROLLER listener of each voter but this node. Static voters are
        these, and this node unless it only observes (then it isn't in `metadata`'s voters)."""
        self.metadata = metadata
        self.channels = channels
        self.node_id = node_id
        self.cluster_id = metadata.image.cluster_id
        self.clock = clock
        self.rng = rng
        self._timeouts = timeouts or Timeouts()
        self.request_timeout_s = self._timeouts.request_s
        # A parked fetch must be answered well before a follower, or the leader itself (check
        # quorum), takes the silence for a failure of the leader.
        patience_s = min(self.request_timeout_s, self._timeouts.fetch_s)
        self.fetch_wait_s = min(FETCH_WAIT_S_MAX, patience_s / 2)
        self._core: QuorumCore | None = None
        self._noted = e.Election()  # on disk, as far as this node knows
        self._timer: asyncio.TimerHandle | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._fetcher: Fetcher | None = None
        self._requests: Requests | None = None
        if channels or metadata.own_entry is not None:
            from tidelog.cluster.quorum.fetcher import Fetcher
            from tidelog.cluster.quorum.requests import Requests

            self._fetcher, self._requests = Fetcher(self), Requests(self)
        self._stopped = self._is_held = False
        self.learn: Callable[[int, str, int], None] = lambda node_id, host, port: None
        """Called with the address of a leader that another node has named (KIP-853)."""
        self.on_progress: list[Callable[[], None]] = []
        """Called when records were appended, the high watermark moved or the role changed: parked
        fetches look again."""

    @property
    def has_started(self) -> bool:
        """Whether it takes part in the quorum, or did."""
        return self._core is not None

    @property
    def core(self) -> QuorumCore:
        """The state machine; only after `start`."""
        assert self._core is not None, "start() comes first"
        return self._core

    # ---- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to take part; the metadata log is open, and requests may arrive."""
        self._noted = self.metadata.read_election()
        self._begin()
        if self._is_alone:
            self.step(e.Tick())  # its first commit flushes what it appends
        self.metadata.on_append = self._appended
        self.metadata.on_applied = self._applied
        self.metadata.on_voters.append(self._voters_changed)

    @property
    def _is_alone(self) -> bool:
        """Whether this is the only voter of the settings; one that the log names may get others."""
        return self.core.is_voter and not self.core.others and self.metadata.own is None

    def _begin(self) -> None:
        self._core = QuorumCore(
            node_id=self.node_id,
            voters=self.metadata.voters,
            stored=self._noted,
            log_end=lambda: e.LogEnd(*self.metadata.log_end()),
            rng=self.rng,
            timeouts=self._timeouts,
        )
        self._core.start(self.clock.monotonic(), self._seat())
        self.metadata.leader_is(self._core.leader_id, self._core.epoch)
        if not self._is_alone:
            self._arm()
            self._follow()

    def _follow(self) -> None:
        if self._fetcher is not None:
            self._fetcher.follow()

    def _begin_again(self) -> None:
        """Restart from the state on disk, as after a crash: no other node knows anything newer."""
        log.warning("node %d has no descriptor left to note a vote with", self.node_id)
        self.metadata.step_down()
        self._begin()
        self._progress()

    def _voters_changed(self) -> None:
        """Work with the voters that the log names now (KIP-853)."""
        if self.is_out:
            return
        seat, were_named = self._seat(), self.core.is_dynamic
        if seat is None and not were_named:
            return
        self.step(e.VotersChanged(tuple(self.metadata.voters), seat))
        if self.core.is_dynamic != were_named:  # the next start reads the file before the log
            self._note(self._noted)

    def _seat(self) -> e.Seat | None:
        """Return this node's part if the log names the voters."""
        metadata = self.metadata
        if metadata.own is None:
            return None
        from tidelog.cluster.metadata.voters import has_key

        is_voter = has_key(metadata.voter_set, metadata.own)
        return e.Seat(is_voter, is_voter or has_key(metadata.previous_voters, metadata.own))

    async def stop(self) -> None:
        """Leave the quorum. A leader notifies the others, so that one of them takes over at
        once."""
        if self._core is not None and self._core.role is Role.LEADER and not self.is_out:
            if self._requests is not None and not self._is_alone:
                self.step(e.Leave())
                await self._requests.finish_leaving(LEAVE_S_MAX)
            elif self._flusher is not None:  # no other node will have what is appended
                await asyncio.wait([self._flusher])
        self.abandon()
        tasks = [self._flusher] if self._flusher is not None else []
        if self._requests is not None:
            tasks = [*self._requests.tasks, *tasks]
        if self._fetcher is not None and self._fetcher.task is not None:
            tasks.append(self._fetcher.task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Leave the quorum without notice."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for channel in self.channels.values():
            channel.close()
        self._progress()

    @property
    def is_out(self) -> bool:
        """Whether this node has left the quorum."""
        return self._stopped or self.metadata.has_failed

    # ---- steps --------------------------------------------------------------------------------

    def step(self, event: e.Event) -> e.Reply:
        """Pass an event to the core and perform its effects.

        The reply answers events that are requests. NotControllerError if this node takes part no
        more or cannot note its vote now, OSError if its disk fails.
        """
        if self.is_out:
            raise NotControllerError("this node has left the quorum")
        core = self.core
        reply = e.Reply()
        for effect in core.step(event, self.clock.monotonic()):
            if isinstance(effect, e.Reply):
                reply = effect
            else:
                self._perform(effect)
        self._lead_if_due()
        self._arm()
        return reply

    def _lead_if_due(self) -> None:
        """Begin to decide, once all that may have been committed is applied."""
        core, metadata = self.core, self.metadata
        if not core.leads_committed or metadata.is_leader or metadata.has_failed:
            return
        if metadata.has_applied_all:
            log.info("node %d is the active controller, epoch %d", self.node_id, core.epoch)
            metadata.lead()

    def _applied(self) -> None:
        if not self.is_out:
            self._leave_if_removed()
            self._lead_if_due()

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Persist(election):
                self._note(election)
            case e.RoleChanged():
                self._role_changed()
            case e.HighWatermarkMoved(offset):
                self.metadata.advance(offset)
                self._progress()
                self._leave_if_removed()
            case _:
                if self._requests is not None:
                    self._requests.send(effect)

    def _leave_if_removed(self) -> None:
        """Resign once the voters without this leader are committed (KIP-853)."""
        is_removed = not self.core.is_voter and not self.metadata.has_uncommitted_voters
        if self.core.role is Role.LEADER and is_removed:
            log.info("node %d leads no more: it was removed from the voters", self.node_id)
            asyncio.get_running_loop().call_soon(self.resign)

    def counts(self, replica_id: int, directory_id: bytes) -> bool:
        """Return whether a fetch is by the replica that its id names: a voter of the log with
        another disk than that of its record does not count (KIP-853)."""
        voter = self.metadata.voter(replica_id)
        return voter is None or voter.directory_id in (directory_id, e.NO_DIRECTORY)

    def _note(self, election: e.Election) -> None:
        """Make it durable. A process without descriptors is no failure of the disk."""
        try:
            self.metadata.write_election(election)
        except OSError as error:
            if self._is_alone or not lacks_descriptors(error):
                raise
            self._begin_again()
            raise NotControllerError("this node cannot note its vote now") from error
        self._noted = election

    def _role_changed(self) -> None:
        """Apply the core's current role. If a step changed it twice, only the last one counts."""
        core, metadata = self.core, self.metadata
        if core.role is not Role.LEADER:
            metadata.step_down()
        leader_id = e.NO_NODE if core.role is Role.RESIGNED else core.leader_id
        metadata.leader_is(leader_id, core.epoch)
        if core.role is Role.LEADER and metadata.log_end()[0] < core.epoch:
            try:
                metadata.begin_epoch(core.epoch)
            except (OSError, StorageError) as error:
                if self._is_alone:
                    raise
                log.error("node %d cannot lead: %s", self.node_id, error)
                asyncio.get_running_loop().call_soon(self.resign)
        self._follow()
        self._progress()

    def _arm(self) -> None:
        """Set the timer to the core's deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.core.deadline
        if deadline != float("inf") and not (self.is_out or self._is_held):
            delay_s = max(0.0, deadline - self.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.is_out:
            try:
                self.step(e.Tick())
            except (NotControllerError, OSError):
                log.error("cannot record the vote")  # the reason was logged

    def hold(self, *, is_held: bool) -> None:
        """Let no deadline pass, because a tester lets this node stand still; or go on."""
        self._is_held = is_held
        if self.has_started:
            self._arm()

    def resign(self) -> None:
        """Let another voter lead, if this one does."""
        if not self.is_out:
            self.step(e.Leave())

    def _progress(self) -> None:
        for listener in list(self.on_progress):
            listener()

    # ---- the leader's own records -------------------------------------------------------------

    def _appended(self) -> None:
        if self._flusher is None:
            loop = asyncio.get_running_loop()
            self._flusher = loop.create_task(self._flush(), name="quorum-flush")
        self._progress()

    async def _flush(self) -> None:
        """Flush this node's appends: then they count for the majority."""
        try:
            while not self.is_out and self.core.role is Role.LEADER:
                end = self.metadata.next_offset
                durable = await self.metadata.flush()
                if self.is_out:
                    return
                self.step(e.LocalFlushed(durable))
                if self.metadata.next_offset == end:
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, the image is not right now
            self.metadata.fail(error)
        finally:
            self._flusher = None

    # ---- catching up --------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Wait until `image` has everything that the leader has committed so far.

        PeerError or NotControllerError if no leader answers; the caller limits the time.
        """
        if self.metadata.is_leader:
            await self.metadata.wait_for(self.metadata.high_watermark - 1)
            return
        if self._requests is None:
            raise NotControllerError("no controller is known")
        await self.metadata.wait_for(await self._requests.committed() - 1)
