"""The real seams."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.runtime import (
    SEND_BUFFER_BYTES,
    AwaitedFiles,
    DetachedExecutor,
    SystemClock,
    SystemNetwork,
    SystemRng,
    ThreadExecutor,
    system_runtime,
    volume_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_clocks() -> None:
    clock = SystemClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    assert clock.wall_ms() > 1_700_000_000_000


def test_executor_runs_on_threads_and_passes_errors() -> None:
    async def test() -> None:
        executor = ThreadExecutor(threads_max=1)
        name = await executor.run(lambda: threading.current_thread().name)
        assert name.startswith("tidelog")
        assert await executor.run(max, [1, 3, 2], key=lambda value: -value) == 1
        with pytest.raises(ZeroDivisionError):
            await executor.run(lambda: 1 / 0)
        executor.close()
        with pytest.raises(AssertionError):
            await executor.run(min, [1])

    asyncio.run(test())


def test_the_loop_runs_while_an_executor_ends() -> None:
    async def test() -> None:
        gate, begun = threading.Event(), threading.Event()
        executor = ThreadExecutor(threads_max=1)

        def hold() -> bool:
            begun.set()
            return gate.wait(10)

        running = asyncio.ensure_future(executor.run(hold))
        dropped = asyncio.ensure_future(executor.run(hold))
        await asyncio.to_thread(begun.wait)
        executor.close()
        ended = asyncio.ensure_future(executor.wait_closed())
        await asyncio.wait([dropped])
        assert dropped.cancelled()
        assert not ended.done()
        gate.set()
        await ended
        assert await running, "it ended by the gate, and not by its time"

    asyncio.run(test())


def test_a_detached_executor_waits_for_no_call_that_hangs() -> None:
    gate, started = threading.Event(), threading.Semaphore(0)

    def hang() -> str:
        started.release()
        assert gate.wait(60)
        return threading.current_thread().name

    async def test() -> None:
        executor = DetachedExecutor("remote", 2)
        with pytest.raises(ZeroDivisionError):
            await executor.run(lambda: 1 / 0)
        assert await executor.run(max, [1, 3, 2], key=lambda value: -value) == 1
        first = asyncio.ensure_future(executor.run(hang))
        await asyncio.to_thread(started.acquire)
        name = await executor.run(lambda: threading.current_thread().name)  # there is another
        assert name.startswith("tidelog-remote-")
        second = asyncio.ensure_future(executor.run(hang))
        third = asyncio.ensure_future(executor.run(hang))
        await asyncio.to_thread(started.acquire)  # the second has begun, the third waits
        assert len(its_threads() - before) <= 2
        executor.close()
        with pytest.raises(asyncio.CancelledError):
            await third
        with pytest.raises(AssertionError):
            await executor.run(min, [1])
        gate.set()
        assert (await first).startswith("tidelog-remote-")
        await asyncio.wait([second])

    def its_threads() -> set[threading.Thread]:
        alive = threading.enumerate()
        return {thread for thread in alive if thread.name.startswith("tidelog-remote-")}

    before = its_threads()
    asyncio.run(test())
    for thread in its_threads():
        thread.join(60)
        assert not thread.is_alive(), "idle threads end with their executor"


def test_a_detached_executor_keeps_its_limit_of_threads() -> None:
    async def test() -> list[str]:
        executor = DetachedExecutor("remote", 3)
        name_of = threading.current_thread
        names = await asyncio.gather(*[executor.run(lambda: name_of().name) for _ in range(50)])
        executor.close()
        return names

    names = asyncio.run(test())
    assert len(names) == 50
    assert set(names) <= {f"tidelog-remote-{number}" for number in range(3)}


def test_a_detached_executor_has_at_most_one_thread_per_call() -> None:
    """However many come one after the other: who has just ended is as good as idle."""

    async def test() -> None:
        executor = DetachedExecutor("steady", 1000)

        async def ask() -> None:
            for _ in range(1000):
                await executor.run(max, 1, 2)

        await asyncio.gather(ask(), ask())
        names = [thread.name for thread in threading.enumerate()]
        executor.close()
        assert len([name for name in names if name.startswith("tidelog-steady-")]) <= 2

    asyncio.run(test())


@pytest.mark.parametrize("syncs", [True, False])
def test_awaited_files(tmp_path: Path, *, syncs: bool) -> None:
    async def test() -> None:
        files = AwaitedFiles(syncs=syncs)
        folder = f"{tmp_path}/a/b"
        assert await files.list(folder) == []
        with pytest.raises(FileNotFoundError):
            await files.read(f"{folder}/two")
        await files.remove(f"{folder}/two")
        for name, data in (("two", b"2"), ("one", b""), ("two", b"second")):
            await files.write_atomic(f"{folder}/{name}", data)
        assert await files.list(folder) == ["one", "two"]
        assert await files.read(f"{folder}/two") == b"second"
        await files.remove(f"{folder}/two")
        assert await files.list(folder) == ["one"]

    asyncio.run(test())


def test_an_unused_executor_has_no_threads() -> None:
    before = set(threading.enumerate())
    executor = ThreadExecutor()
    assert set(threading.enumerate()) <= before
    executor.close()


def test_rng() -> None:
    rng = SystemRng()
    assert len(rng.bytes(5)) == 5
    values = [rng.uniform(-1.0, 2.0) for _ in range(200)]
    assert all(-1.0 <= value <= 2.0 for value in values)
    assert max(values) - min(values) > 1.0
    ids = {rng.uuid() for _ in range(50)}
    assert len(ids) == 50
    assert all(len(i) == 16 and i[6] >> 4 == 4 and i[8] >> 6 == 2 for i in ids)


def test_network_connects_and_refuses() -> None:
    async def test() -> None:
        network = SystemNetwork()
        made: asyncio.Queue[asyncio.Protocol] = asyncio.Queue()

        def factory() -> asyncio.Protocol:
            made.put_nowait(asyncio.Protocol())
            return asyncio.Protocol()

        listener = await network.listen("127.0.0.1", 0, factory)
        transport, _ = await network.connect("127.0.0.1", listener.port, asyncio.Protocol)
        with pytest.raises(OSError, match="in use"):
            await network.listen("127.0.0.1", listener.port, asyncio.Protocol)
        await made.get()
        transport.close()
        port = listener.port
        listener.close()
        with pytest.raises(OSError, match="onnect"):
            await network.connect("127.0.0.1", port, asyncio.Protocol)
        await asyncio.sleep(0)

    asyncio.run(test())


def test_all_interfaces_share_a_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 and IPv6 are bound one after the other, so each would take a free port of its own."""
    two = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))
        for host in ("127.0.0.1", "127.0.0.2")
    ]

    async def test() -> None:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(host: str | None, port: int, **_: object) -> list[tuple[Any, ...]]:
            assert host is None
            return [(*each[:4], (each[4][0], port)) for each in two]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        listener = await SystemNetwork().listen("", 0, asyncio.Protocol)
        for host in ("127.0.0.1", "127.0.0.2"):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, listener.port)
            transport.close()
        listener.close()
        await asyncio.sleep(0)

    asyncio.run(test())


async def send_buffer_of_accepted() -> int:
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[int] = loop.create_future()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            end = transport.get_extra_info("socket")
            accepted.set_result(end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
            transport.close()

    listener = await SystemNetwork().listen("127.0.0.1", 0, Server)
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", listener.port)
    limit = await accepted
    transport.close()
    listener.close()
    await asyncio.sleep(0)
    return limit


def test_a_large_answer_goes_out_whole_where_the_system_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES // 2)
        allowed = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    if allowed >= SEND_BUFFER_BYTES:
        assert asyncio.run(send_buffer_of_accepted()) == allowed
    # What would not be granted is not asked for: the system goes on choosing by itself.
    monkeypatch.setattr("tidelog.runtime.SEND_BUFFER_BYTES", 2 << 30)
    left_alone = asyncio.run(send_buffer_of_accepted())
    monkeypatch.setattr("tidelog.runtime._enlarge_send_buffers", lambda server: None)
    assert asyncio.run(send_buffer_of_accepted()) == left_alone != allowed


def test_volume_bytes(tmp_path: Path) -> None:
    total, usable = volume_bytes(str(tmp_path))
    assert total >= usable > 0
    assert volume_bytes(str(tmp_path / "none")) == (-1, -1)


def test_all_seams_together() -> None:
    runtime = system_runtime()
    assert runtime.files.exists("/")
    runtime.executor.close()


def test_a_connection_accepted_while_the_listener_closes_gets_its_protocol() -> None:
    async def test() -> list[asyncio.BaseTransport]:
        made: list[asyncio.BaseTransport] = []

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(transport)
                transport.close()

        listener = await SystemNetwork().listen("127.0.0.1", 0, Server)
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", listener.port)):
            accepted = asyncio.all_tasks(loop)
            while asyncio.all_tasks(loop) == accepted:  # noqa: ASYNC110 - its own task
                await asyncio.sleep(0)
            listener.close()
            listener.close()
            for _ in range(10):
                await asyncio.sleep(0)
        return made

    assert len(asyncio.run(test())) == 1
