"""Seals a process while a simulation runs: time, chance and the outside world.

`sealed(world)` does, for the thread that enters it and as long as it lasts:

- `time.time`, `time.monotonic`, `time.sleep` and their like, and `datetime.now`, follow the virtual
  clock, under each name that a module has imported;
- `random`, `uuid`, `secrets` and `os.urandom` give what the seed says;
- threads, sockets, child processes and changes of files are refused (PEP 578 audit events). Files
  may be read: a file that the run cannot change is the same at each replay;
- aiokafka's records get virtual timestamps, as its C code asks the system for the time.

Names of the standard library are replaced in the modules that imported them, and put back at the
end. Default arguments and class attributes that hold one of them are not found.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import os
import random
import socket
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from tidelog_storage.base_error import TidelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_S = 1_700_000_000  # the virtual wall clock at the start
PROCESS_ID = 4242
HOST_NAME = "application"
_RANDOM_DEVICES = frozenset({"/dev/random", "/dev/urandom"})
_THREADS = "it would run outside of the virtual time: use asyncio.to_thread() or a task"
_SOCKETS = "use bootstrap_servers of the simulation, and replace other services by fakes"
_FILES = "keep in memory what a run writes, or write it after the run"
_PROCESSES = "replace it by a fake, or by a process of the simulation: simulation.process()"
_EVENTS = {
    "_thread.start_new_thread": ("a thread", _THREADS),
    "_thread.start_joinable_thread": ("a thread", _THREADS),
    "socket.__new__": ("a socket", _SOCKETS),
    "socket.getaddrinfo": ("a look-up of a host", _SOCKETS),
    "socket.gethostbyname": ("a look-up of a host", _SOCKETS),
    "subprocess.Popen": ("a child process", _PROCESSES),
    "os.system": ("a child process", _PROCESSES),
    "os.posix_spawn": ("a child process", _PROCESSES),
    "os.fork": ("a child process", _PROCESSES),
    "os.exec": ("a child process", _PROCESSES),
    **dict.fromkeys(
        ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink"),
        ("a change of files", _FILES),
    ),
}


class SimulationRefusedError(TidelogError):
    """The application asked for something that would make its simulation differ from run to run."""


class Sealed(NamedTuple):
    """A sealed run: what the process-wide names ask."""

    now: Callable[[], float]  # virtual seconds since the start
    stall: Callable[[float], None]  # blocks the process that runs
    chance: random.Random
    refuse: Callable[[SimulationRefusedError], None]  # is called before a refusal is raised
    thread: int


_active: Sealed | None = None


def _here() -> Sealed | None:
    """The run of this thread, if there is one."""
    active = _active
    return active if active is not None and active.thread == threading.get_ident() else None


# -- time ------------------------------------------------------------------------------------------


def _clock(real: Callable[[], Any], scale: int, offset_s: int) -> Callable[[], Any]:
    """A clock of the `time` module; `scale` 0 gives floats, else integers of that many a second."""

    def read() -> Any:
        here = _here()
        if here is None:
            return real()
        seconds = offset_s + here.now()
        return int(seconds * scale) if scale else seconds

    return read


def _parts(real: Callable[..., Any]) -> Callable[..., Any]:
    """`localtime` or `gmtime`."""

    def read(seconds: float | None = None) -> Any:
        here = _here()
        return real(START_S + here.now() if here is not None and seconds is None else seconds)

    return read


_real_strftime = time.strftime
_real_sleep = time.sleep
_real_localtime = time.localtime


def _strftime(form: str, *moment: Any) -> str:
    here = _here()
    if here is not None and not moment:
        moment = (_real_localtime(START_S + here.now()),)
    return _real_strftime(form, *moment)


def _sleep(seconds: float, /) -> None:
    here = _here()
    if here is None:
        _real_sleep(seconds)
    else:
        here.stall(seconds)


_real_datetime, _real_date = datetime.datetime, datetime.date


class _LikeDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_datetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _real_datetime)


class _Datetime(datetime.datetime, metaclass=_LikeDatetime):
    """`datetime.datetime` whose `now` is virtual; all that it makes is of the real class."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return _real_datetime(*args, **options)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        here = _here()
        if here is None:
            return _real_datetime.now(tz)
        return _real_datetime.fromtimestamp(START_S + here.now(), tz)

    @classmethod
    def today(cls) -> Any:
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(datetime.UTC).replace(tzinfo=None)


class _LikeDate(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_date)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _real_date)


class _Date(datetime.date, metaclass=_LikeDate):
    """`datetime.date` whose `today` is virtual."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return _real_date(*args, **options)

    @classmethod
    def today(cls) -> Any:
        return _Datetime.now().date()


# -- chance ----------------------------------------------------------------------------------------

_real_urandom = os.urandom
_real_seed = random.Random.seed


def _urandom(size: int, /) -> bytes:
    here = _here()
    return _real_urandom(size) if here is None else here.chance.randbytes(size)


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    """`random.Random()` without a seed gets one from the run's."""
    here = _here()
    _real_seed(self, here.chance.getrandbits(128) if here is not None and a is None else a, version)


# Versions 1, 6 and 7 are made of the host, the time and the last one; not all Pythons have all.
_UUID_STATE = {
    "_node": 0x7AB1E5EED000,
    "_generate_time_safe": None,
    "_UuidCreate": None,
    "_last_timestamp": None,
    "_last_timestamp_v6": None,
    "_last_timestamp_v7": None,
    "_last_counter_v7": 0,
}

# -- names -----------------------------------------------------------------------------------------

_NAMES: tuple[tuple[Any, Any], ...] = (
    (time.time, _clock(time.time, 0, START_S)),
    (time.time_ns, _clock(time.time_ns, 1_000_000_000, START_S)),
    (time.monotonic, _clock(time.monotonic, 0, 0)),
    (time.monotonic_ns, _clock(time.monotonic_ns, 1_000_000_000, 0)),
    (time.perf_counter, _clock(time.perf_counter, 0, 0)),
    (time.perf_counter_ns, _clock(time.perf_counter_ns, 1_000_000_000, 0)),
    (time.process_time, _clock(time.process_time, 0, 0)),
    (time.localtime, _parts(time.localtime)),
    (time.gmtime, _parts(time.gmtime)),
    (time.strftime, _strftime),
    (time.sleep, _sleep),
    (datetime.datetime, _Datetime),
    (datetime.date, _Date),
    (os.urandom, _urandom),
)


def _rename(names: dict[int, Any]) -> None:
    """Replace values of modules by identity."""
    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", None)
        if space is None or space.get("__name__") == __name__:
            continue
        found = [(name, names[id(value)]) for name, value in space.items() if id(value) in names]
        for name, value in found:
            space[name] = value


@contextlib.contextmanager
def _replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Give an object other attributes for a while."""
    before = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    for name in before:
        setattr(owner, name, values[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextlib.contextmanager
def _aiokafka_records() -> Iterator[None]:
    """Give each record of aiokafka's producers a timestamp."""
    if importlib.util.find_spec("aiokafka") is None:
        yield
        return
    from aiokafka.producer.message_accumulator import BatchBuilder  # noqa: PLC0415 - an extra
    from aiokafka.producer.producer import AIOKafkaProducer  # noqa: PLC0415

    real = BatchBuilder.append

    def append(self: Any, *, timestamp: Any, **record: Any) -> Any:
        here = _here()
        if here is not None and timestamp is None:
            timestamp = int((START_S + here.now()) * 1000)
        return real(self, timestamp=timestamp, **record)

    with (
        _replaced(BatchBuilder, append=append),
        _replaced(AIOKafkaProducer, _PRODUCER_CLIENT_ID_SEQUENCE=0),
    ):
        yield


# -- the outside world -----------------------------------------------------------------------------


def _is_refused_open(path: Any, _mode: Any, flags: Any) -> bool:
    """Whether a file is opened for writing, or gives other bytes each time."""
    writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return bool(writes) or str(path) in _RANDOM_DEVICES


# Whether an event that names a file is refused.
_FILE_EVENTS: dict[str, Callable[..., bool]] = {
    "open": _is_refused_open,
    "sqlite3.connect": lambda database: str(database) != ":memory:",
}


def _audit(event: str, args: tuple[Any, ...]) -> None:
    """Refuse what leaves the simulation. An audit hook cannot be removed, so it asks first."""
    if _active is None or (event not in _EVENTS and event not in _FILE_EVENTS):
        return
    here = _here()
    if here is None or (event in _FILE_EVENTS and not _FILE_EVENTS[event](*args)):
        return
    _refuse(here, *(_EVENTS.get(event) or (f"the file {args[0]!r}", _FILES)))


def _refuse(here: Sealed, what: str, advice: str) -> NoReturn:
    refusal = SimulationRefusedError(f"a simulated application asks for {what}: {advice}")
    here.refuse(refusal)
    raise refusal


_real_start = threading.Thread.start


def _start(self: threading.Thread) -> None:
    """Python 3.11 has no event for it."""
    here = _here()
    if here is not None:
        _refuse(here, "a thread", _THREADS)
    _real_start(self)


_is_hooked = False


def _hook() -> None:
    global _is_hooked  # noqa: PLW0603 - once a process
    if not _is_hooked:
        _is_hooked = True
        sys.addaudithook(_audit)


@contextlib.contextmanager
def sealed(
    now: Callable[[], float],
    stall: Callable[[float], None],
    seed: int | str,
    refuse: Callable[[SimulationRefusedError], None],
) -> Iterator[None]:
    """Seal the process for a run of this thread."""
    global _active  # noqa: PLW0603 - the names of the standard library are the process's, too
    assert _active is None, "one simulation at a time in a process"
    chance = random.Random(f"{seed}:application")
    _hook()
    state = random.getstate()
    random.seed(f"{seed}:random")
    with (
        _aiokafka_records(),
        _replaced(random.Random, seed=_seed),
        _replaced(threading.Thread, start=_start),
        _replaced(os, getpid=lambda: PROCESS_ID),
        _replaced(socket, gethostname=lambda: HOST_NAME),
        _replaced(sys, dont_write_bytecode=True),
        _replaced(uuid, **_UUID_STATE),
    ):
        _rename({id(real): sealed for real, sealed in _NAMES})
        _active = Sealed(now, stall, chance, refuse, threading.get_ident())
        try:
            yield
        finally:
            _active = None
            _rename({id(sealed): real for real, sealed in _NAMES})
            random.setstate(cast("Any", state))
