"""The control calls of a cluster behind HTTP, with the blocking methods of `tidelog.run()`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tidelog.control.errors import INVALID, UNANSWERED, ClusterError, ControlError
from tidelog.control.running_broker import RunningBroker, RunningBrokers
from tidelog.control.table import find
from tidelog.control.values import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HttpControl"]

ANSWER_S_MAX = 90.0
# A door is near: the proxy of the environment (`http_proxy`) does not reach 127.0.0.1.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HttpControl(RunningBrokers):
    """The calls of one door: `tidelog serve --control HOST:PORT`, perhaps in a container."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` is that of the ready line; `token` the door's TIDELOG_CONTROL_TOKEN."""
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    @property
    def brokers(self) -> list[RunningBroker]:
        """A handle for each broker, whether it runs or not."""
        described = self.change_brokers("brokers.describe").brokers
        return [RunningBroker(self, each.node_id) for each in described]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the running brokers, for clients."""
        servers = self.change_brokers("brokers.describe").bootstrap_servers
        if not servers:
            raise ClusterError("no broker is running")
        return servers

    def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        """Send it to the door; ControlError if it is refused, or if the door does not answer."""
        known = find(call, "cluster")
        request = urllib.request.Request(  # noqa: S310 - the user's own door
            f"{self.url}/v1/{call.replace('.', '/')}",
            json.dumps(dict(args)).encode(),
            self._headers,
        )
        try:
            with _DIRECT.open(request, timeout=ANSWER_S_MAX) as answer:
                return from_json(known.result, json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error) from None
        except OSError as error:
            text = f"no answer from {self.url}: {error}"
            raise ControlError(text, status=UNANSWERED) from error


def _refused(error: urllib.error.HTTPError) -> ControlError:
    """Return the error in problem details."""
    try:
        problem = json.load(error)
        return ControlError(problem["detail"], field=problem.get("field"), status=error.code)
    except (ValueError, KeyError, TypeError):
        text = f"{error.code} {HTTPStatus(error.code).phrase}: is this tidelog's door?"
        return ControlError(text, status=INVALID)
