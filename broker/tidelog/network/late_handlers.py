"""Handlers that are imported and built for their first request: a start is faster without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from tidelog_protocol.apis import ApiKey

    Handler: TypeAlias = Callable[[Any, Any], Any]

__all__ = ["LateHandler", "late_handlers"]


class LateHandler:
    """Stands for the handler of an API until the first request; requests may call either."""

    def __init__(self, key: ApiKey, family: Callable[[], dict[ApiKey, Handler]]) -> None:
        self._key = key
        self._family = family

    def built(self) -> Handler:
        """Return the handler itself, with which a request costs a call less."""
        return self._family()[self._key]

    def __call__(self, context: Any, request: Any) -> Any:
        """Handle a request."""
        return self.built()(context, request)


def late_handlers(
    keys: Iterable[ApiKey], build: Callable[[], dict[ApiKey, Handler]]
) -> dict[ApiKey, Handler]:
    """Return handlers that the first request of any of them builds."""
    built: dict[ApiKey, Handler] = {}

    def family() -> dict[ApiKey, Handler]:
        if not built:
            built.update(build())
            assert built.keys() == handlers.keys(), "each API that is served has its handler"
        return built

    handlers: dict[ApiKey, Handler] = {key: LateHandler(key, family) for key in keys}
    return handlers
