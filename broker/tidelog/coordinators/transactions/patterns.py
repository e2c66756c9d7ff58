"""Regular expressions from clients: RE2's syntax, as in Kafka, in time linear in the text.

Python's own `re` has another syntax (look-ahead, back references) and may need exponential time for
some patterns, which would block the loop. Here a pattern becomes a nondeterministic automaton. Sets
of its states form a deterministic one, built as needed. There are no captures: the only question is
whether a whole text matches.

Script names such as `\\p{Greek}` are not supported; general categories are. `pattern_syntax.py`
parses the syntax. Pure; imported by the first request with a pattern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.transactions.pattern_syntax import (
    Assertion,
    Characters,
    Either,
    PatternError,
    Repeat,
    Sequence,
    is_word,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinators.transactions.pattern_syntax import Node

__all__ = ["Pattern", "PatternError"]

_STATES_MAX = 20_000
_STEPS_MAX = 10_000  # cached; a full cache is cleared
_ACCEPT = 0

_States = frozenset[int]


class _State(NamedTuple):
    """A state: a character to consume, an assertion to check, or (neither) a fork; then the next
    states."""

    accepts: Callable[[str], bool] | None
    assertion: Assertion | None
    following: tuple[int, ...]


class Pattern:
    """A compiled pattern. Invariant: state 0 accepts."""

    def __init__(self, text: str) -> None:
        """Compile a pattern; PatternError describes the fault."""
        self._states: list[_State] = [_State(None, None, ())]
        self._has_assertions = False
        self._start: _States = frozenset({self._emit(parse(text), _ACCEPT)})
        self._steps: dict[tuple[_States, str, str], _States] = {}

    def matches(self, text: str) -> bool:
        """Return whether it matches the whole text."""
        states, before = self._start, ""
        for character in text:
            states = self._step(states, before, character)
            if not states:
                return False
            before = character
        return _ACCEPT in self._closure(states, before, "")

    def _step(self, states: _States, before: str, character: str) -> _States:
        """Return the states after this character; the one before it matters only for assertions."""
        key = (states, before if self._has_assertions else "", character)
        known = self._steps.get(key)
        if known is None:
            following: set[int] = set()
            for number in self._closure(states, before, character):
                state = self._states[number]
                if state.accepts is not None and state.accepts(character):
                    following.update(state.following)
            if len(self._steps) >= _STEPS_MAX:
                self._steps.clear()
            known = self._steps[key] = frozenset(following)
        return known

    def _closure(self, states: _States, before: str, after: str) -> set[int]:
        """Return all states reached without a character, between these two."""
        reached: set[int] = set()
        left = list(states)
        while left:
            number = left.pop()
            if number in reached:
                continue
            reached.add(number)
            state = self._states[number]
            if state.accepts is None and (
                state.assertion is None or _holds(state.assertion, before, after)
            ):
                left.extend(state.following)
        return reached

    # -- from the tree to states -----------------------------------------------------------------

    def _add(self, state: _State) -> int:
        if len(self._states) >= _STATES_MAX:
            raise PatternError("the pattern is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _emit(self, node: Node, following: int) -> int:
        """Return the first state of the node, which continues with `following`."""
        if isinstance(node, Characters):
            return self._add(_State(node.accepts, None, (following,)))
        if isinstance(node, Assertion):
            self._has_assertions = True
            return self._add(_State(None, node, (following,)))
        if isinstance(node, Either):
            begins = tuple(self._emit(option, following) for option in node.options)
            return self._add(_State(None, None, begins))
        if isinstance(node, Repeat):
            return self._emit_repeat(node, following)
        assert isinstance(node, Sequence)
        for part in reversed(node.parts):
            following = self._emit(part, following)
        return following

    def _emit_repeat(self, node: Repeat, following: int) -> int:
        if node.most is None:
            fork = self._add(_State(None, None, ()))
            body = self._emit(node.body, fork)
            self._states[fork] = _State(None, None, (body, following))
            following = fork
        else:
            end = following
            for _ in range(node.most - node.least):
                body = self._emit(node.body, following)
                following = self._add(_State(None, None, (body, end)))
        for _ in range(node.least):
            following = self._emit(node.body, following)
        return following


def _holds(assertion: Assertion, before: str, after: str) -> bool:
    """Return whether the assertion holds between these two characters, "" outside of the text."""
    if assertion is Assertion.TEXT_START:
        return not before
    if assertion is Assertion.TEXT_END:
        return not after
    if assertion is Assertion.LINE_START:
        return before in {"", "\n"}
    if assertion is Assertion.LINE_END:
        return after in {"", "\n"}
    at_boundary = (before != "" and is_word(before)) != (after != "" and is_word(after))
    return at_boundary is (assertion is Assertion.WORD_BOUNDARY)
