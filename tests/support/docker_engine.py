"""Docker's engine for tests, and the image of our Dockerfile on a Debian of our own.

No registry is needed: the base image is made by debootstrap, once into the user's cache, and the
wheels come from the package index. The engine has its own data, socket and bridge, all removed at
the end, so that one that runs already is left alone. It changes no firewall rules: Docker's own
proxies forward the mapped ports.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog_bench.peers.kafka_jars import cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
DEBIAN, PYTHON = "bookworm", "3.11"
PACKAGES = "docker.io debootstrap iproute2"  # of Debian
PROGRAMS = ("dockerd", "containerd", "runc", "debootstrap", "ip")
IN_CONTEXT = (
    *("broker", "protocol", "storage", "pipeline", "bench", "scenarios", "container"),
    *("pyproject.toml", "README.md", "LICENSE", "Dockerfile", ".dockerignore"),
)
IMAGE = "tidelog:test"
START_S_MAX = 60
BUILD_S_MAX = 600


@contextmanager
def docker_engine(folder: Path) -> Iterator[str]:
    """Run an engine; its address. Skips the test, with the reason, where it cannot run."""
    if os.geteuid() != 0:
        pytest.skip("Docker's engine needs root")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt-get install {PACKAGES}")
    bridge = f"tidelog{os.getpid()}"
    address = f"unix://{folder}/docker.sock"
    command = [
        *("dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
        *("-H", address, "--pidfile", f"{folder}/pid", "--bridge", bridge),
        *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
    ]
    with ExitStack() as stack:
        data = folder / "data"  # a gigabyte in many small files, which a disk is slow to remove
        data.mkdir()
        _system("mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", str(data))
        stack.callback(subprocess.run, ["umount", "--lazy", data], check=False)
        _system("ip", "link", "add", "name", bridge, "type", "bridge")
        stack.callback(subprocess.run, ["ip", "link", "delete", bridge], check=False)
        _system("ip", "address", "add", f"10.{os.getpid() % 200 + 20}.97.1/24", "dev", bridge)
        _system("ip", "link", "set", bridge, "up")
        log = stack.enter_context((folder / "log").open("w"))
        engine = stack.enter_context(
            subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        )
        stack.callback(engine.terminate)
        deadline = time.monotonic() + START_S_MAX
        while not (folder / "docker.sock").exists():
            if engine.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"dockerd did not start: {_last_line(folder / 'log')}")
            time.sleep(0.05)
        yield address


def _system(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip(f"Docker's engine needs {' '.join(command)}: {ended.stderr.strip()}")


def _last_line(log: Path) -> str:
    return (log.read_text().splitlines() or [""])[-1]


def build_image(client: Any, folder: Path) -> None:
    """Build the image of the Dockerfile, as `docker build` does."""
    client.api.import_image(src=str(base_image()), repository="tidelog-base", tag=DEBIAN)
    context = folder / "context"
    context.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *IN_CONTEXT],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name:
            target = context / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    shutil.copytree(wheels(), context / "wheels")
    client.images.build(
        path=str(context),
        tag=IMAGE,
        rm=True,
        timeout=BUILD_S_MAX,
        buildargs={
            "BASE": f"tidelog-base:{DEBIAN}",
            "PIP_NO_INDEX": "1",
            "EXTRAS": "control",
        },
    )


@contextmanager
def _once(target: Path) -> Iterator[bool]:
    """Hold the lock of something in the cache; whether it must be made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not target.exists()


def base_image() -> Path:
    """A tar of a small Debian with Python, from the cache."""
    target = cache_dir().parent / f"debian-{DEBIAN}-python.tar"
    with _once(target) as is_new:
        if is_new:
            made = target.with_name(f"debian-{DEBIAN}")
            shutil.rmtree(made, ignore_errors=True)
            try:
                included = "--include=python3,python3-venv"
                _run("debootstrap", "--variant=minbase", included, DEBIAN, str(made))
                for part in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc"):
                    shutil.rmtree(made / part, ignore_errors=True)
                _run("tar", "-C", str(made), "-cf", f"{target}.part", ".")
                Path(f"{target}.part").rename(target)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    return target


def wheels() -> Path:
    """A folder of what the image installs, from the cache: containers reach no package index."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = declared["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["control"]]
    wanted += declared["build-system"]["requires"]
    digest = hashlib.sha256(" ".join(sorted(wanted)).encode()).hexdigest()[:16]
    target = cache_dir().parent / f"wheels-{PYTHON}-{digest}"
    with _once(target) as is_new:
        if is_new:
            part = f"{target}.part"
            shutil.rmtree(part, ignore_errors=True)
            only = ("--only-binary=:all:", "--python-version", PYTHON)
            _run(sys.executable, "-m", "pip", "download", "--quiet", "-d", part, *only, *wanted)
            Path(part).rename(target)
    return target


def _run(*command: str) -> None:
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        said = " ".join(ended.stdout.split())[-300:]
        pytest.skip(f"{command[0]} failed, which the image of the test needs: {said}")
