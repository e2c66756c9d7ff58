"""Applies the rules of request faults on one broker.

While there are rules, the handlers of the APIs they match are wrapped (`Dispatcher.intercept`);
other APIs, and all of them without rules, are served as ever. A request that a rule applies to is
performed by a coroutine: later requests of its connection wait for it, as behind any slow request.
"""

from __future__ import annotations

import asyncio
import contextlib
from fnmatch import fnmatchcase
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from tidelog.control.faults.answers import fail_topics, spoil, stale
from tidelog.control.faults.rules import BETWEEN_BROKERS, Count, error_code
from tidelog.network.dispatch import Deferred, RequestContext
from tidelog.network.observer import is_of_broker
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.error_answers import add_answers, error_answer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchResponse
from tidelog_protocol.naming import names_of, only

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.control.faults.rules import Rule
    from tidelog.network.dispatch import Dispatcher, Handler, Peer
    from tidelog_protocol.apis import Api

__all__ = ["Questions", "RequestFaults"]

_LOOK_S = 0.1
DECISION_S_MAX = 10.0
LOOK_S_MAX = 20.0


class RequestFaults:
    """The request faults of one broker."""

    def __init__(
        self,
        node_id: int,
        dispatchers: Sequence[Dispatcher],
        topic_names: Callable[[], Mapping[bytes, str]],
        counts: dict[int, Count],
    ) -> None:
        """Brokers of one process share `counts`, so that `times(1)` is once in all of them."""
        self._node_id = node_id
        self._dispatchers = dispatchers
        self._topic_names = topic_names
        self._counts = counts
        self.questions = Questions()
        self._asks = False
        self._rules: list[Rule] = []
        self._ways_held: frozenset[str] = frozenset()
        self._held: Callable[[str], None] | None = None
        self._released = asyncio.Event()

    def set_rules(self, rules: Sequence[Rule], *, asks: bool = False) -> None:
        """Apply these rules from now on, in their order, and no others.

        With `asks`, the cluster decides about those with a trigger (`shared_counts.py`).
        """
        self._asks = asks
        self._rules = [
            rule for rule in rules if rule.is_enabled and rule.match.broker in (None, self._node_id)
        ]
        kept = {rule.id for rule in rules}
        for gone in self._counts.keys() - kept:
            del self._counts[gone]
        self._intercept()

    def hold_clients(self, ways: frozenset[str], held: Callable[[str], None]) -> None:
        """Let the requests of clients wait before their work (`received`), after it (`sent`), or
        no more. `held` is called with the way of each that waits."""
        self._ways_held, self._held = ways, held
        self._released.set()
        self._released = asyncio.Event()
        self._intercept()

    def _intercept(self) -> None:
        is_idle = not (self._rules or self._ways_held)
        for dispatcher in self._dispatchers:
            dispatcher.intercept(None if is_idle else self._wrapped)

    def counts(self) -> dict[int, Count]:
        """Return how often each rule matched and applied."""
        return self._counts

    def _wrapped(self, key: ApiKey, handler: Handler) -> Handler:
        """Return the handler with its faults; itself if no rule is for this API."""
        api = API[key]
        rules = [rule for rule in self._rules if rule.is_for(api)]
        if not (rules or self._ways_held):
            return handler

        def serve(context: RequestContext, request: Any) -> Any:
            is_brokers = is_of_broker(context)
            if rules and key == ApiKey.FETCH and not is_brokers:
                if request.session_epoch > 0:
                    return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                request.session_epoch = -1  # so that each request names all its partitions
            matching = [rule for rule in rules if self._matches(rule, api, context, request)]
            asked = [rule for rule in matching if self._asks and rule.trigger.is_limited]
            applied = [rule for rule in matching if rule not in asked and self._count(rule)]
            may_wait = bool(self._ways_held) and not is_brokers
            if not (asked or applied or may_wait):
                return handler(context, request)
            faulty = _Faulty(api, handler, context, self._topic_names())
            if asked or may_wait:
                return self._wait(faulty, request, applied, asked, may_wait=may_wait)
            return faulty.perform(request, applied)

        return serve

    async def _wait(
        self,
        faulty: _Faulty,
        request: Any,
        applied: list[Rule],
        asked: Sequence[Rule],
        *,
        may_wait: bool,
    ) -> Any:
        """Perform a request once the cluster has decided about some rules, or over a link that is
        cut."""
        applied += [rule for rule in asked if await self.questions.ask(rule.id)]
        if may_wait:
            await self._pass("received")
        answer = await faulty.perform(request, applied)
        if may_wait:
            await self._pass("sent")
        return answer

    async def _pass(self, way: str) -> None:
        """Wait while a link that is cut holds a client's request, or its answer."""
        if way in self._ways_held and self._held is not None:
            self._held(way)
        while way in self._ways_held:
            await self._released.wait()

    def _matches(self, rule: Rule, api: Api, context: RequestContext, request: Any) -> bool:
        match = rule.match
        if match.client_id is None:
            if is_of_broker(context) and api.name not in BETWEEN_BROKERS:
                return False
        elif not fnmatchcase(context.client_id or "", match.client_id):
            return False
        client = f"{context.client_host}:{context.client_port}"
        if match.connection not in (None, client) or request is None:
            return False
        names = names_of(request, self._topic_names())
        if api.key == ApiKey.METADATA and request.topics is None:
            names.partitions.extend((name, None) for name in self._topic_names().values())
        return match.accepts(names)

    def _count(self, rule: Rule) -> bool:
        """Count a request that matches; return whether the rule applies to it."""
        return self._counts.setdefault(rule.id, Count()).applies(rule.trigger)


class Questions:
    """Requests that wait for the cluster's decision about a rule."""

    def __init__(self) -> None:
        self._number = 0
        self._new: dict[int, int] = {}
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._has_new = asyncio.Event()

    async def ask(self, rule_id: int) -> bool:
        """Return whether a rule applies; False if no decision comes in time."""
        self._number += 1
        number = self._number
        decision = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._new[number] = rule_id
        self._has_new.set()
        try:
            async with asyncio.timeout(DECISION_S_MAX):
                applies: bool = await decision
                return applies
        except TimeoutError:
            return False
        finally:
            del self._waiting[number]
            self._new.pop(number, None)

    async def taken(self) -> dict[int, int]:
        """Wait for questions, not too long; return the rules by the numbers of the questions."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S_MAX):
                await self._has_new.wait()
        self._has_new.clear()
        new, self._new = self._new, {}
        return new

    def decide(self, applies: Mapping[int, bool]) -> None:
        """Answer questions."""
        for number, decision in applies.items():
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(decision)


class _Faulty:
    """One request that rules apply to."""

    def __init__(
        self, api: Api, handler: Handler, context: RequestContext, topic_names: Mapping[bytes, str]
    ) -> None:
        self._api = api
        self._handler = handler
        self._context = context
        self._topic_names = topic_names

    async def perform(self, request: Any, rules: Sequence[Rule]) -> Any:
        """Perform the request with the effects of all rules; return its answer."""
        effects = [rule.effect.kind for rule in rules]
        await _pause(rules, "delay")
        drops = {rule.effect.after_work for rule in rules if rule.effect.kind == "drop_connection"}
        if False in drops:
            self._drop()
        if self._api.key == ApiKey.PRODUCE:
            for rule in rules:
                if rule.effect.kind == "corrupt_records":
                    spoil(request, rule.match, self._topic_names)
        answer = await self._work(request, rules)
        if answer is not None:
            for rule in rules:
                self._change(answer, rule)
        await _pause(rules, "delay_answer")
        if True in drops:
            self._drop()
        if "swallow_answer" in effects:
            await self._until_closed()
        return answer

    async def _until_closed(self) -> None:
        """Let the client wait until it closes the connection."""
        peer: Any = self._context.peer
        while not peer.closing:  # noqa: ASYNC110 - connections have no event for their end
            await asyncio.sleep(_LOOK_S)

    def _drop(self) -> None:
        """Close the connection without an answer."""
        self._context.close()
        raise asyncio.CancelledError

    async def _work(self, request: Any, rules: Sequence[Rule]) -> Any:
        """Do the work of all parts of the request that no error is for; return the answer."""
        errors = [rule for rule in rules if rule.effect.error is not None]
        if not errors or self._api.key == ApiKey.METADATA:
            return await self._result(request)
        if getattr(request, "acks", -1) == 0:
            self._drop()  # as Kafka does: the client awaits no answer
        answers = []
        for rule in errors:
            code = error_code(rule.effect.error or 0)
            if not rule.match.is_partial:
                return error_answer(self._api, request, code)
            failed, _ = only(request, rule.match.names, self._topic_names)
            answers.append(error_answer(self._api, failed, code))
            request, left = only(request, _others(rule), self._topic_names)
            if not left:
                break
        else:
            if self._api.key == ApiKey.FETCH:
                request.max_wait_ms = 0  # an error is answered at once
            answers.insert(0, await self._result(request))
        for more in answers[1:]:
            add_answers(answers[0], more)
        return answers[0]

    def _change(self, answer: Any, rule: Rule) -> None:
        effect = rule.effect
        match effect.kind:
            case "throttle":
                answer.throttle_time_ms = round((effect.seconds or 0) * 1000)
            case "stale_leader":
                stale(answer, rule.match, self._topic_names)
            case "error" if self._api.key == ApiKey.METADATA:
                code = error_code(effect.error or 0)
                fail_topics(answer, rule.match, code, self._topic_names)
            case "corrupt_records" if self._api.key == ApiKey.FETCH:
                spoil(answer, rule.match, self._topic_names)
            case "cut_short":
                spoil(answer, rule.match, self._topic_names, effect.size, cuts=True)

    async def _result(self, request: Any) -> Any:
        """Return the message that the handler answers; None if it answers nothing."""
        context = self._context
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        inner = RequestContext(
            _Answered(context.peer, answered),
            context.api_key,
            context.api_version,
            context.correlation_id,
            context.client_id,
        )
        answer = self._handler(inner, request)
        if isinstance(answer, Deferred):
            answer = await answered
        elif isinstance(answer, CoroutineType):
            answer = await answer
        if isinstance(answer, list):  # a body that is encoded already
            codec = self._api.response_codec(context.api_version)
            return codec.decode(memoryview(b"".join(answer)), 0)
        return answer


def _others(rule: Rule) -> Callable[[str, int | None], bool]:
    """Return what the rule does not match."""
    return lambda topic, partition: not rule.match.names(topic, partition)


async def _pause(rules: Sequence[Rule], kind: str) -> None:
    seconds = sum(rule.effect.seconds or 0 for rule in rules if rule.effect.kind == kind)
    if seconds:
        await asyncio.sleep(seconds)


class _Answered:
    """The connection as a handler sees it, whose answers come here first."""

    def __init__(self, peer: Peer, answered: asyncio.Future[Any]) -> None:
        self.client_host = peer.client_host
        self.client_port = peer.client_port
        self.listener = peer.listener
        self.principal = peer.principal
        self.is_forwarded = peer.is_forwarded
        self._peer = peer
        self._answered = answered

    @property
    def software(self) -> tuple[str, str]:
        """The client's software."""
        return self._peer.software

    @software.setter
    def software(self, given: tuple[str, str]) -> None:
        self._peer.software = given

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()

    def at_close(self, callback: Callable[[], None]) -> None:
        """Call back once the connection is closed."""
        self._peer.at_close(callback)

    def throttle(self, seconds: float) -> None:
        """Read no further request for this long."""
        self._peer.throttle(seconds)

    def complete(self, context: RequestContext, response: Any) -> None:
        """Take the answer of a parked request."""
        if not self._answered.done():
            self._answered.set_result(response)
