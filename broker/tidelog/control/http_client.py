"""The control calls of a cluster behind HTTP, with the blocking methods of `tidelog.run()`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tidelog.control.blocking import Clock, Groups, Logs, Tier, Topics, Transactions, View
from tidelog.control.errors import INVALID, UNANSWERED, ControlError
from tidelog.control.faults.blocking import Devices, Faults, Network
from tidelog.control.table import find
from tidelog.control.values import from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.control.state import ClusterState

__all__ = ["HttpControl"]

ANSWER_S_MAX = 90.0


class HttpControl:
    """The calls of one door: `tidelog serve --control HOST:PORT`, perhaps in a container."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` is that of the ready line; `token` the door's TIDELOG_CONTROL_TOKEN."""
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Perform a control call by its name, with arguments in their JSON form.

        ControlError if it is refused, or if the door does not answer.
        """
        known = find(call, "cluster")
        request = urllib.request.Request(  # noqa: S310 - the user's own door
            f"{self.url}/v1/{call.replace('.', '/')}",
            json.dumps(dict(args)).encode(),
            self._headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:  # noqa: S310
                return from_json(known.result, json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error) from None
        except OSError as error:
            text = f"no answer from {self.url}: {error}"
            raise ControlError(text, status=UNANSWERED) from error

    @property
    def faults(self) -> Faults:
        """What goes wrong in the brokers, by rules."""
        return Faults(self.ask)

    @property
    def devices(self) -> Devices:
        """The disk and the remote store of each broker."""
        return Devices(self.ask)

    @property
    def network(self) -> Network:
        """The links between brokers and to clients."""
        return Network(self.ask)

    @property
    def clock(self) -> Clock:
        """The time of the brokers."""
        return Clock(self.ask)

    @property
    def topics(self) -> Topics:
        """The topics: create, delete."""
        return Topics(self.ask)

    @property
    def groups(self) -> Groups:
        """The consumer groups: move their coordinators, expire their members."""
        return Groups(self.ask)

    @property
    def transactions(self) -> Transactions:
        """The transactional ids: move their coordinators."""
        return Transactions(self.ask)

    @property
    def tier(self) -> Tier:
        """The remote tier: copy and expire segments now."""
        return Tier(self.ask)

    @property
    def logs(self) -> Logs:
        """What the brokers log."""
        return Logs(self.ask)

    def move_controller(self) -> int:
        """Let another node be the active controller; return its id."""
        return View(self.ask).move_controller()

    def reset(self) -> None:
        """Give the cluster back as new, as `tidelog.run()`'s `reset` does."""
        View(self.ask).reset()

    def state(self, *, topics: Sequence[str] | None = None, internal: bool = False) -> ClusterState:
        """Return the state as `tidelog.run()`'s `state` does."""
        return View(self.ask).state(topics=topics, internal=internal)

    def wait_for(
        self,
        is_so: Callable[[ClusterState], object],
        *,
        timeout_s: float = 30.0,
        topics: Sequence[str] | None = None,
        internal: bool = False,
    ) -> ClusterState:
        """Wait for a state as `tidelog.run()`'s `wait_for` does."""
        view = View(self.ask)
        return view.wait_for(is_so, timeout_s=timeout_s, topics=topics, internal=internal)


def _refused(error: urllib.error.HTTPError) -> ControlError:
    """Return the error in problem details."""
    try:
        problem = json.load(error)
        return ControlError(problem["detail"], field=problem.get("field"), status=error.code)
    except (ValueError, KeyError, TypeError):
        text = f"{error.code} {HTTPStatus(error.code).phrase}: is this tidelog's door?"
        return ControlError(text, status=INVALID)
