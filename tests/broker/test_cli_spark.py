"""`tidelog spark` where Spark is not installed: one line; help and wrong usage as ever."""

from __future__ import annotations

import sys

import pytest

from tidelog.__main__ import main
from tidelog_pipeline.spark_command import main as spark

LINES = {
    "export": ["flights", "out"],
    "replay": ["flights", "again"],
    "audit": ["flights"],
    "stats": ["flights"],
}


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyarrow", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("name", LINES)
def test_without_the_extra_there_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", name, *LINES[name]]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"tidelog spark {name}: pyspark and pyarrow and numpy not installed; "
        "run: pip install 'tidelog[spark]'\n",
    )


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("words", [[], *([name] for name in LINES)])
def test_help_needs_no_spark(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["spark", *words, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "tidelog[spark]" in said.out or "--master" in said.out


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["exports"], "did you mean export?"),
        (
            ["export", "flights", "out", "--chunk", "1XB"],
            "'1XB' is not a size such as 512MB or 1GB",
        ),
        (["stats", "flights", "--every", "1y"], "'1y' is not a span of time such as 15m or 7d"),
        (["replay", "flights", "again", "--rate", "0"], "'0' is not a number of records a second"),
        (["audit", "t", "--master", "sparks://h:1"], "--master: 'sparks://h:1' is no master of Sp"),
    ],
)
def test_wrong_usage_is_named(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        spark(words)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_a_file_of_properties_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    assert main(["spark", "audit", "t", "--command-config", "no-such.properties"]) == 1
    said = capsys.readouterr().err
    assert said == "tidelog spark audit: no-such.properties: No such file or directory\n"
