"""The page of the control door in headless Chromium: what it shows, and what its buttons do."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from support.processes import END_S_MAX
from tidelog.control.http_client import HttpControl
from tidelog.testing.records import produce

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

    from support.processes import Serve

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
RECORDS = 40
COPIED = 25

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        arguments = ["--no-sandbox", "--disable-gpu"]
        yield started.chromium.launch(executable_path=CHROMIUM, args=arguments)


def new_page(browser: Browser) -> Page:
    page = browser.new_page()
    page.set_default_timeout(1000 * END_S_MAX)
    return page


@contextmanager
def page_of(browser: Browser, url: str) -> Iterator[Page]:
    """A page on which nothing fails, and which fetches nothing from elsewhere."""
    page = new_page(browser)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if is_error(line) else None)
    page.on(
        "request", lambda asked: asked.url.startswith((url, "data:")) or errors.append(asked.url)
    )
    page.goto(url)
    try:
        yield page
        assert errors == []
    finally:
        page.close()


def is_error(line: ConsoleMessage) -> bool:
    """A refused call is none: the page says so itself."""
    return line.type == "error" and not line.text.startswith("Failed to load resource")


def offsets(replica: Locator) -> dict[str, str]:
    """What a bar's numbers say."""
    return {
        str(each.get_attribute("data-offset")): each.locator("dd").inner_text()
        for each in replica.locator("[data-offset]").all()
    }


def test_the_page_shows_the_state_and_its_buttons_change_it(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    tier = ("--tiered", str(tmp_path / "store"))
    served = serve("--port", "0", "--brokers", "3", *tier, "--control", "127.0.0.1:0")
    servers, _, url = served.bootstrap.partition(" control=")
    control = HttpControl(url)
    control.topics.create("orders", config={"remote.storage.enable": True})
    control.topics.create("many", partitions=60, replication_factor=1)
    produce(servers, "orders", [b"%d" % number for number in range(COPIED)])
    with page_of(browser, url) as page:
        orders = page.locator("[data-topic=orders]")
        copy_and_compare(page, orders, control, servers)
        many = page.locator("[data-topic=many]")
        assert many.locator("article").count() == 0, "a folded topic draws nothing"
        many.locator("summary").click()
        many.locator("article").first.wait_for()
        many.get_by_role("button", name="Show more of 60 partitions").click()
        assert many.locator("article").count() == 48
        kill_and_start(page, control)
        advance(page, control)
        switch_a_fault(page, control)
        heal_links_and_devices(page, control, servers)
        assert_every_control_has_a_name(page)


def copy_and_compare(page: Page, orders: Locator, control: HttpControl, servers: str) -> None:
    page.get_by_role("button", name="Copy orders").click()
    page.get_by_text("Copied all sealed segments of orders").wait_for()
    produce(servers, "orders", [b"%d" % number for number in range(COPIED, RECORDS)])
    caught_up = control.wait_for(
        lambda state: all(log.high_watermark == RECORDS for log in state.partition("orders").logs)
    )
    partition = caught_up.partition("orders")
    leader = orders.locator(f"[data-broker='{partition.leader}']")
    leader.locator(".role", has_text="leader").wait_for()
    leader.locator("[data-offset=stable] dd", has_text=f"{RECORDS}").wait_for()  # the last to move
    assert offsets(leader) == {
        "start": "0",
        "local": "0",
        "stable": f"{RECORDS}",
        "high watermark": f"{RECORDS}",
        "end": f"{RECORDS}",
    }
    assert orders.locator("[data-broker]").count() == len(partition.logs) == 3
    assert str(leader.get_by_role("img").get_attribute("aria-label")).startswith(
        f"remote and local 0 to {COPIED - 1}; local only {COPIED} to {RECORDS - 1}; high watermark"
    )
    assert max(one.end_offset for one in partition.remote) == COPIED - 1
    page.get_by_role("button", name="Roll orders").click()
    page.get_by_text("Rolled orders").wait_for()
    assert len(control.state().partition("orders").log().segments) == 3
    page.locator("#requests td", has_text="Produce").first.wait_for()


def kill_and_start(page: Page, control: HttpControl) -> None:
    status = {n: page.locator(f"#brokers [data-broker='{n}'] .status") for n in (2, 3)}
    page.get_by_role("button", name="Kill broker 3").focus()
    page.keyboard.press("Enter")
    status[3].filter(has_text="stopped").wait_for()
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "Start broker 3", "the focus goes on to what can be done now"
    page.get_by_role("button", name="Kill broker 2").click()
    status[2].filter(has_text="stopped").wait_for()
    assert [one.node_id for one in control.state().brokers] == [1]
    page.get_by_role("button", name="Start all").click()
    page.get_by_text("Started all brokers").wait_for()
    for each in status.values():
        each.filter(has_text="running").wait_for()


def advance(page: Page, control: HttpControl) -> None:
    page.get_by_label("Advance by").fill("25")
    page.get_by_role("button", name="Advance", exact=True).click()
    page.get_by_text("Advanced all brokers by 25 hours").wait_for()
    ahead = {
        round(clock.ahead_ms / 3_600_000) for clock in control.clock.describe().brokers.values()
    }
    assert ahead == {25}
    page.locator("#brokers .clock", has_text="1 d 1 h ahead").first.wait_for()


def switch_a_fault(page: Page, control: HttpControl) -> None:
    page.get_by_label("to", exact=True).fill("Producee")
    page.get_by_role("button", name="Add fault").click()
    page.get_by_text("match.api: there is no API 'Producee'; did you mean Produce?").wait_for()
    page.get_by_label("to", exact=True).fill("Produce")
    page.get_by_role("button", name="Add fault").click()
    switch = page.get_by_role("switch")
    switch.wait_for()
    assert switch.get_attribute("aria-checked") == "true"
    for is_enabled in (False, True):
        switch.click()
        page.locator(f"[role=switch][aria-checked={str(is_enabled).lower()}]").wait_for()
        (rule,) = control.faults.list()
        assert rule.is_enabled is is_enabled
    page.get_by_role("button", name="Remove fault 1").click()
    switch.wait_for(state="detached")
    assert control.faults.list() == ()


def heal_links_and_devices(page: Page, control: HttpControl, servers: str) -> None:
    state = control.wait_for(lambda state: len(state.partition("orders").isr) == 3)
    leader = state.partition("orders").leader
    one, other = {1, 2, 3} - {leader}
    control.devices.slow_disk(leader, 0.001)
    produce(servers, "orders", [b"slow"])
    control.network.slow(one, leader, 0.01)
    control.network.cut(other, leader, holds="sent")
    control.network.slow(leader, other, 0.01)
    rows = page.locator("[data-healed]")
    page.get_by_text(f"broker {leader} and broker {other}: slow").wait_for()
    assert [row.locator("li").all_inner_texts() for row in rows.all()] == [
        [f"broker {one} and broker {leader}: slow, 0.01 seconds"],
        [
            f"broker {other} and broker {leader}: cut, what broker {other} sends waits",
            f"broker {leader} and broker {other}: slow, 0.01 seconds",
        ],
        [f"disk of broker {leader}: slow, all, 0.001 seconds"],
    ]
    for row in rows.all():  # the followers fetch
        row.locator(".hits", has_text=re.compile("^[1-9]")).wait_for()
    names = [f"link {min(each, leader)} to {max(each, leader)}" for each in (one, other)]
    for name, left in ((f"disk of broker {leader}", 3), (names[0], 2), (names[1], 0)):
        page.get_by_role("button", name=f"Heal {name}").click()
        page.get_by_text(f"Healed {name}").wait_for()
        assert len(control.network.list()) + len(control.devices.list()) == left
    rows.first.wait_for(state="detached")


def assert_every_control_has_a_name(page: Page) -> None:
    """A name that a screen reader says: text or a label."""
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, summary, [role=img]')]
            .filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim()
                || each.labels?.length))
            .map((each) => each.outerHTML)"""
    )
    assert unnamed == []


def test_the_token_and_a_scenario(browser: Browser, serve: Serve) -> None:
    """The page asks for the token, or takes it from its address; all it asks for has it then."""
    served = serve("--port", "0", "--control", "127.0.0.1:0", TIDELOG_CONTROL_TOKEN="secret")
    url = served.bootstrap.partition(" control=")[2]
    page = new_page(browser)
    page.goto(f"{url}/#token=secret")
    page.get_by_role("button", name="Kill broker 1").wait_for()
    assert "secret" not in page.url
    page.goto("about:blank")
    page.goto(url)
    page.get_by_label("This door needs its token").fill("secret")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Kill broker 1").wait_for()
    page.get_by_role("link", name="Scenarios").click()
    page.get_by_label("Scenario", exact=True).select_option("kip101-s1")
    page.get_by_role("button", name="Play", exact=True).click()
    page.get_by_text("Step 0 of 7").wait_for()
    old, new = (page.locator(f"[data-side={name}]") for name in ("old", "new"))
    good = "Nothing is lost, all agree with the leader."
    assert old.locator(".verdict").inner_text() == new.locator(".verdict").inner_text() == good
    page.get_by_role("button", name="A is elected").click()
    assert new.locator(".verdict").inner_text() == good
    assert old.locator(".verdict").inner_text() == "Lost although acknowledged: m2 at offset 1"
    leader = old.locator(".log-row", has_text="leader")
    assert leader.locator(".record.lost").inner_text().split() == ["1", "m2", "lost"]
    page.keyboard.press("ArrowRight")
    page.get_by_text("Step 6 of 7").wait_for()
    assert_every_control_has_a_name(page)
    page.close()
