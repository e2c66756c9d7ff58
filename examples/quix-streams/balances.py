"""Keeps the balance of each account, with Quix Streams. A changelog topic has the state, too."""

from __future__ import annotations

from pathlib import Path

from quixstreams import Application, State


def new_application(servers: str, folder: Path) -> Application:
    """Reads `bookings`, writes `balances`. `folder` is for the state on this machine."""
    app = Application(
        servers,
        consumer_group="accounts",
        auto_offset_reset="earliest",
        state_dir=folder,
        processing_guarantee="exactly-once",
        loglevel="WARNING",
    )
    bookings = app.topic("bookings", value_deserializer="json")
    balances = app.topic("balances", value_serializer="json")
    app.dataframe(bookings).apply(book, stateful=True).to_topic(balances)
    return app


def book(booking: dict, state: State) -> dict:
    """Add a booking to the balance of its account, which is the key of the record."""
    balance = state.get("balance", 0) + booking["cents"]
    state.set("balance", balance)
    return {"balance": balance}
