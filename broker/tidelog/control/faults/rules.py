"""The values of request faults: what a rule matches, when it applies and what it does.

The words of triggers are those of Kafka's own fault proxy (KAFKA-21074). `checked` refuses a rule
that could never apply, with the field at fault.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from random import Random
from typing import TYPE_CHECKING, Literal

from tidelog.control.errors import ControlError
from tidelog_protocol.apis import API
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.naming import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_protocol.apis import Api
    from tidelog_protocol.naming import Names

__all__ = ["Effect", "Match", "Rule", "Trigger", "check_trigger", "checked", "error_code"]

Kind = Literal[
    "error",
    "delay",
    "delay_answer",
    "drop_connection",
    "swallow_answer",
    "stale_leader",
    "throttle",
    "corrupt_records",
    "cut_short",
]
_OF_APIS: dict[str, tuple[str, ...]] = {
    "stale_leader": ("Metadata",),
    "corrupt_records": ("Produce", "Fetch"),
    "cut_short": ("Fetch",),
}
_NEEDS_SECONDS = ("delay", "delay_answer", "throttle")
SECONDS_MAX = 3600.0
# Asked by brokers only: rules without a client id match these and no other request of a broker.
BETWEEN_BROKERS = frozenset(
    {
        "AllocateProducerIds",
        "AlterPartition",
        "AssignReplicasToDirs",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "EndQuorumEpoch",
        "Envelope",
        "FetchSnapshot",
        "Vote",
        "WriteTxnMarkers",
    }
)


@dataclass(frozen=True)
class Match:
    """What a request must have; None matches any. `*` and `?` in names stand for any characters.

    `connection` is the client's `host:port`. The requests of brokers to each other match if the API
    is theirs alone or `client_id` is given.
    """

    api: str | int | None = None
    client_id: str | None = None
    connection: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    broker: int | None = None

    def names(self, topic: str, partition: int | None) -> bool:
        """Return whether this topic and partition match."""
        if self.topic is not None and not fnmatchcase(topic, self.topic):
            return False
        return self.partition is None or partition is None or partition == self.partition

    @property
    def is_partial(self) -> bool:
        """Whether it may match some partitions of a request and not others."""
        return self.topic is not None or self.partition is not None

    def accepts(self, names: Names) -> bool:
        """Return whether a request with these names matches."""
        if self.is_partial and not any(self.names(*each) for each in names.partitions):
            return False
        return _any(self.group, names.groups) and _any(
            self.transactional_id, names.transactional_ids
        )


def _any(pattern: str | None, names: Iterable[str]) -> bool:
    return pattern is None or any(fnmatchcase(name, pattern) for name in names)


@dataclass(frozen=True)
class Trigger:
    """Which of the matching requests it applies to: all of them without a limit.

    `times`: the first so many; `on_call`: that one; `every`: each so many; `probability`: each by
    chance, drawn from `seed`. One of them at most.
    """

    times: int | None = None
    on_call: int | None = None
    every: int | None = None
    probability: float | None = None
    seed: int = 0

    @property
    def is_limited(self) -> bool:
        """Whether it leaves any request out, so that counting matters."""
        return self != Trigger(seed=self.seed)


@dataclass(frozen=True)
class Effect:
    """What happens to the request.

    - `error`: it is answered with this error code, and its work is not done
    - `delay`, `delay_answer`: it waits `seconds` before or after its work
    - `drop_connection`: its connection closes, before its work or `after_work`
    - `swallow_answer`: its work is done; nothing more is answered on its connection
    - `stale_leader`: Metadata names another broker as leader, of the epoch before
    - `throttle`: the answer asks the client to wait `seconds`
    - `corrupt_records`: a byte of each batch is changed, sent (Produce) or answered (Fetch)
    - `cut_short`: the records of a Fetch end after `size` bytes (without: in the middle)
    """

    kind: Kind
    error: str | int | None = None
    seconds: float | None = None
    size: int | None = None
    after_work: bool = False


@dataclass(frozen=True)
class Rule:
    """A fault: requests that matched it so far are its `calls`, those it applied to its `hits`.

    While it is disabled it matches nothing and keeps its counts.
    """

    id: int
    match: Match
    trigger: Trigger
    effect: Effect
    calls: int = 0
    hits: int = 0
    is_enabled: bool = True

    @property
    def api(self) -> Api | None:
        """The API that it matches; None for all."""
        return None if self.match.api is None else _api(self.match.api)

    def is_for(self, api: Api) -> bool:
        """Return whether it may apply to requests of an API."""
        return self.api in (None, api) and (self.effect.kind != "throttle" or _throttles(api))

    def counted(self, count: Count) -> Rule:
        """Return it with these numbers."""
        return replace(self, calls=count.calls, hits=count.hits)


@dataclass
class Count:
    """How often a rule matched and applied, in this process."""

    calls: int = 0
    hits: int = 0
    random: Random | None = field(default=None, repr=False)

    def applies(self, trigger: Trigger) -> bool:
        """Count a matching request; return whether the rule applies to it."""
        self.calls += 1
        if trigger.times is not None:
            applies = self.calls <= trigger.times
        elif trigger.on_call is not None:
            applies = self.calls == trigger.on_call
        elif trigger.every is not None:
            applies = self.calls % trigger.every == 0
        elif trigger.probability is not None:
            self.random = self.random or Random(trigger.seed)  # noqa: S311 - chance that a seed replays
            applies = self.random.random() < trigger.probability
        else:
            applies = True
        self.hits += applies
        return applies


def checked(rule: Rule) -> Rule:
    """Return the rule with Kafka's names; ControlError if it can never apply."""
    match, effect = rule.match, rule.effect
    api = None if match.api is None else _api(match.api)
    if api is not None:
        match = replace(match, api=api.name)
        _check_names(api, match)
    _check_match(match)
    check_trigger(rule.trigger)
    return replace(rule, match=match, effect=_checked_effect(api, effect))


def _api(given: str | int) -> Api:
    for api in API.values():
        if given in (api.name, int(api.key), str(int(api.key)), api.key.name):
            return api
    names = [api.name for api in API.values()]
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ControlError(f"there is no API {given!r}{hint}", field="match.api")


def _check_names(api: Api, match: Match) -> None:
    """Refuse a filter by something that requests of this API do not name."""
    kinds = names_in(api.request)
    for name in ("topic", "partition", "group", "transactional_id"):
        if getattr(match, name) is not None and name not in kinds:
            raise ControlError(f"requests of {api.name} name none", field=f"match.{name}")


def _check_match(match: Match) -> None:
    """Refuse a filter that no request can pass."""
    if match.partition is not None and match.partition < 0:
        raise ControlError(f"must be at least 0, not {match.partition}", field="match.partition")
    if match.connection is not None:
        host, _, port = match.connection.rpartition(":")
        if not (host and port.isascii() and port.isdigit()):
            text = f"{match.connection!r} is not the HOST:PORT of a client"
            raise ControlError(text, field="match.connection")


def _throttles(api: Api) -> bool:
    """Return whether responses of an API have a throttle time."""
    return any(field.name == "throttle_time_ms" for field in api.response.FIELDS)


def check_trigger(trigger: Trigger) -> None:
    """Refuse a trigger that can never apply."""
    given = [
        name
        for name in ("times", "on_call", "every", "probability")
        if getattr(trigger, name) is not None
    ]
    if len(given) > 1:
        raise ControlError(f"cannot go with {given[0]}", field=f"trigger.{given[1]}")
    for name in given:
        value = getattr(trigger, name)
        if name != "probability" and value < 1:
            raise ControlError(f"must be at least 1, not {value}", field=f"trigger.{name}")
        if name == "probability" and not 0 < value <= 1:
            raise ControlError(
                f"must be above 0 and at most 1, not {value}", field="trigger.probability"
            )


def _checked_effect(api: Api | None, effect: Effect) -> Effect:
    """Return the effect with the name of its error."""
    allowed = _OF_APIS.get(effect.kind)
    if allowed is not None and (api is None or api.name not in allowed):
        names = " or ".join(allowed)
        raise ControlError(f"{effect.kind} needs the API {names}", field="match.api")
    if effect.kind == "throttle" and api is not None and not _throttles(api):
        raise ControlError(f"responses of {api.name} have no throttle time", field="match.api")
    for name, is_needed, is_allowed in (
        ("error", effect.kind == "error", False),
        ("seconds", effect.kind in _NEEDS_SECONDS, False),
        ("size", False, effect.kind == "cut_short"),
        ("after_work", False, effect.kind == "drop_connection"),
    ):
        value = getattr(effect, name)
        if is_needed and value is None:
            raise ControlError(f"{effect.kind} needs it", field=f"effect.{name}")
        is_given = value is not None and value is not False
        if is_given and not (is_needed or is_allowed):
            raise ControlError(f"{effect.kind} does not take it", field=f"effect.{name}")
    if effect.seconds is not None and not 0 <= effect.seconds <= SECONDS_MAX:
        text = f"must be between 0 and {SECONDS_MAX:g}, not {effect.seconds:g}"
        raise ControlError(text, field="effect.seconds")
    if effect.size is not None and effect.size < 0:
        raise ControlError(f"must be at least 0, not {effect.size}", field="effect.size")
    if effect.error is None:
        return effect
    return replace(effect, error=error_code(effect.error).name)


def error_code(given: str | int) -> ErrorCode:
    """Return an error by its name or its number; ControlError for no error."""
    for code in ErrorCode:
        if given in (code.name, int(code)) and code != ErrorCode.NONE:
            return code
    names = [code.name for code in ErrorCode if code != ErrorCode.NONE]
    near = difflib.get_close_matches(str(given).upper(), names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ControlError(f"there is no error {given!r}{hint}", field="effect.error")
