"""The control calls over HTTP, for tests in any language: `tidelog serve --control HOST:PORT`.

`POST /v1/<group>/<call>` takes the arguments as a JSON object and answers the result; calls that
only read answer GET too, with the arguments in the query, and `GET /v1/state` is `cluster.state`.
Errors are problem details (RFC 9457) with the argument at fault in `field`. `GET /v1/health` and
`GET /openapi.json` need no token. `GET /` is the page (`page/`), and `GET /events` the changes that
it shows (`live.py`).

Web pages of others cannot make calls: a browser sends JSON to another origin only if that allows
it, and names of this machine other than its own are refused. Starlette and uvicorn are the extra
`tidelog[control]`, imported only when the door is asked for.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import socket
from functools import partial
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tidelog.control.errors import INVALID, ControlError
from tidelog.control.live import LISTENERS_MAX, Live
from tidelog.control.openapi import READS, document
from tidelog.control.scenarios import Scenarios
from tidelog.control.values import to_json
from tidelog.control.wire import error_form
from tidelog.descriptors import Doorkeeper, Refused
from tidelog.start_error import StartError, system_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.requests import Request

__all__ = ["Address", "HttpDoor", "drop_silent"]

BODY_BYTES_MAX = 1 << 20
CONNECTIONS_MAX = 128
BACKLOG = 16  # asyncio accepts so many at once, before any of them can be closed
STOP_S_MAX = 1
SILENT_S_MAX = 10.0
_USE_POST = {"Allow": "POST"}
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_PAGE_HEADERS = {
    # Nothing from elsewhere, and no page of others around it: its buttons kill brokers.
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; script-src 'self';"
    " style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Address(NamedTuple):
    """Where the door listens, and the token that its clients send."""

    host: str
    port: int
    token: str | None

    @classmethod
    def parse(cls, text: str, token: str | None) -> Address:
        """Parse HOST:PORT; StartError if it is none, or others reach it without a token."""
        host, colon, port = text.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise StartError(f"--control: {text!r} is not HOST:PORT")
        address = cls(host.strip("[]"), int(port), token or None)
        if address.token is None and not address.is_loopback:
            raise StartError(
                f"--control: other machines reach {host}: set TIDELOG_CONTROL_TOKEN to a secret"
            )
        return address

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, under a name that no other one can have."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _admitting(server: uvicorn.Server, make: Any, listening: int) -> Any:
    """Return what makes the protocol objects of connections. Those above the limit, or that would
    take descriptors which are kept for logs, are closed at once: uvicorn's own limit is one of
    requests."""
    keeper = Doorkeeper(asyncio.Protocol)
    keeper.listening = listening

    def made(**arguments: Any) -> asyncio.BaseProtocol:
        if len(server.server_state.connections) >= CONNECTIONS_MAX:
            return Refused()
        keeper.factory = partial(make, **arguments)
        return keeper()

    return made


def drop_silent(connections: Iterable[Any], before: Mapping[Any, object]) -> dict[Any, object]:
    """Return the connections whose next request has not arrived whole, with their last one; close
    those that had the same last one `before`. uvicorn waits for the first one for ever, and so for
    the rest of any that has begun."""
    waiting: dict[Any, object] = {}
    for each in list(connections):
        if each.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            continue
        if each in before and before[each] is each.cycle:
            each.transport.abort()
        else:
            waiting[each] = each.cycle
    return waiting


class HttpDoor:
    """The door of one cluster: from `start` until `stop`, in the running loop."""

    def __init__(
        self,
        address: Address,
        ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
    ) -> None:
        """`ask` performs a call of the cluster and returns its result."""
        self._address = address
        self._ask = ask
        self._document = document()
        self._live = Live(ask)
        self._page = _page()
        self._plays = Scenarios()
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """Its address for clients on this machine; only after `start`."""
        assert self._socket is not None, "start() comes first"
        host = self._address.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._socket.getsockname()[1]}"

    async def start(self) -> None:
        """Listen; StartError when the address is taken."""
        host, port, _ = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            reason = system_words(error)
            raise StartError(f"--control: cannot listen on {host}:{port}: {reason}") from error
        config = uvicorn.Config(
            self._application(),
            loop="none",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # it warns of each call of Java's HttpClient, which offers HTTP/2
            access_log=False,
            date_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            backlog=BACKLOG,
            timeout_graceful_shutdown=STOP_S_MAX,
        )
        config.load()
        server = self._server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        config.http_protocol_class = _admitting(
            server, config.http_protocol_class, self._socket.fileno()
        )
        # Not `serve`: it takes the process's signals and wakes up ten times a second.
        await server.startup(sockets=[self._socket])
        self._drop_silent(server, {})

    def _drop_silent(self, server: uvicorn.Server, before: Mapping[Any, object]) -> None:
        """Have connections that send no whole request closed from now on."""
        waiting = drop_silent(server.server_state.connections, before)
        self._sweep = asyncio.get_running_loop().call_later(
            SILENT_S_MAX, self._drop_silent, server, waiting
        )

    async def stop(self) -> None:
        """Answer no more; calls that are not done after a second are dropped."""
        self._live.end()
        self._plays.end()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None and self._socket is not None:
            await self._server.shutdown(sockets=[self._socket])
            self._server = None

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._file),
                Route("/page/{name}", self._file),
                Route("/events", self._events),
                Route("/openapi.json", self._openapi),
                Route("/v1/health", self._health),
                Route("/v1/state", self._state),
                Route("/v1/scenarios", self._scenarios),
                Route("/v1/scenarios/{name}", self._scenario),
                Route("/v1/{group}/{call}", self._call, methods=["GET", "POST"]),
            ],
            exception_handlers={HTTPException: _refused},
        )

    async def _file(self, request: Request) -> Response:
        self._check_names(request)
        name = request.path_params.get("name", "index.html")
        if name not in self._page:
            raise HTTPException(404, f"the page has no {name}")
        kind = _MEDIA_TYPES[name.rpartition(".")[2]]
        return Response(self._page[name], headers=_PAGE_HEADERS, media_type=kind)

    async def _events(self, request: Request) -> Response:
        self._check_names(request)
        self._check_token(request)
        if self._live.is_full:
            raise HTTPException(503, f"{LISTENERS_MAX} others listen already; close a page")
        no_store = {"Cache-Control": "no-store"}
        return StreamingResponse(self._live.events(), 200, no_store, "text/event-stream")

    async def _openapi(self, request: Request) -> Response:
        self._check_names(request)
        return JSONResponse(self._document)

    async def _health(self, request: Request) -> Response:
        self._check_names(request)
        described = await self._ask("brokers.describe", {})
        running = [broker.node_id for broker in described.brokers if broker.is_running]
        return JSONResponse({"running": running}, 200 if running else 503)

    async def _state(self, request: Request) -> Response:
        return await self._answer(request, "cluster.state")

    async def _call(self, request: Request) -> Response:
        return await self._answer(request, "{group}.{call}".format(**request.path_params))

    async def _scenarios(self, request: Request) -> Response:
        return await self._checked(request, self._plays.all)

    async def _scenario(self, request: Request) -> Response:
        return await self._checked(request, lambda: self._plays.play(request.path_params["name"]))

    async def _answer(self, request: Request, name: str) -> Response:
        async def answer() -> Any:
            if request.method == "POST":
                args = await _body(request)
            elif name.rpartition(".")[2] in READS:
                args = {key: _queried(text) for key, text in request.query_params.items()}
            else:
                raise HTTPException(405, f"{name} is no call that only reads: use POST", _USE_POST)
            return to_json(await self._ask(name, args))

        return await self._checked(request, answer)

    async def _checked(self, request: Request, answer: Callable[[], Awaitable[Any]]) -> Response:
        """Return the answer as JSON, if the request may be made."""
        self._check_names(request)
        self._check_token(request)
        try:
            return JSONResponse(await answer())
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001 - reported to the client
            form = error_form(error)
            return _problem(form["status"], form["message"], form["field"])

    def _check_names(self, request: Request) -> None:
        """Refuse calls that a web page of another origin makes a browser send."""
        if self._address.token is None:
            host = request.url.hostname or ""
            if not is_loopback(host):
                raise HTTPException(421, f"{host} is no name of this door")
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers.get('host')}":
            raise HTTPException(403, f"no calls by pages of {origin}")

    def _check_token(self, request: Request) -> None:
        wanted = self._address.token
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if wanted is not None and not hmac.compare_digest(given.encode(), wanted.encode()):
            raise HTTPException(
                401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"}
            )


def _page() -> dict[str, bytes]:
    """Return the files of the page by name."""
    folder = resources.files("tidelog.control") / "page"
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def _body(request: Request) -> dict[str, Any]:
    """Return the arguments in the body; an empty one has none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    try:
        given = json.loads(body or b"{}")
    except ValueError as error:
        raise ControlError(f"the body is no JSON: {error}", status=INVALID) from None
    if not isinstance(given, dict):
        raise ControlError("the body is no JSON object of arguments", status=INVALID)
    return given


def _queried(text: str) -> Any:
    """Return an argument of the query: JSON, or else a plain string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _problem(
    status: int, detail: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as problem details (RFC 9457)."""
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if field is not None:
        problem["field"] = field
    return JSONResponse(problem, status, headers, media_type="application/problem+json")


def _refused(_: Request, error: Exception) -> Response:
    """Return an error of the protocol as problem details."""
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.detail, headers=error.headers)
