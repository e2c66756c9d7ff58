"""Writes the pictures of the page in `docs/page`: `python docs/screenshots.py`.

It plays a story on three brokers, and looks at their page with Debian's Chromium (or CHROMIUM=path)
by Playwright; Pillow makes them small. The pictures are of that moment: times and ports differ.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from PIL import Image
from playwright.async_api import async_playwright

from tidelog.control.http_client import HttpControl
from tidelog.runtime import SystemClock

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

FOLDER = Path(__file__).resolve().parent / "page"
READY = "tidelog ready bootstrap.servers="
SIZE = {"width": 1280, "height": 1000}


async def main() -> None:
    """Start brokers, play the story, take the pictures."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a broker is killed
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "tidelog", "serve", "--brokers", "3", "--port", "0"]
        command += ["--control", "127.0.0.1:0", "--tiered", store, "--until-stdin-ends"]
        with subprocess.Popen(  # noqa: ASYNC220, S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as served:
            assert served.stdin is not None
            assert served.stdout is not None
            try:
                line = served.stdout.readline().removeprefix(READY).strip()
                servers, _, url = line.partition(" control=")
                await look(url, servers)
            finally:
                served.stdin.close()


async def look(url: str, servers: str) -> None:
    """Take the pictures while a transaction is open."""
    control = HttpControl(url)
    async with AIOKafkaProducer(
        bootstrap_servers=servers, client_id="shop", transactional_id="checkout-1"
    ) as producer:
        await story(control, servers)
        control.logs.requests()  # kept from now on
        await producer.begin_transaction()
        await producer.send_and_wait("payments", b"card", partition=0)
        async with (
            AIOKafkaProducer(bootstrap_servers=servers, client_id="till") as other,
            async_playwright() as playwright,
        ):
            for number in range(4):
                await other.send_and_wait("payments", b"cash %d" % number, partition=0)
            program = os.environ.get("CHROMIUM") or shutil.which("chromium")
            browser = await playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox"]
            )
            await pictures(browser, url)
            await browser.close()
        await producer.abort_transaction()


async def story(control: HttpControl, servers: str) -> None:
    """A tiered topic with old epochs, a group that is behind, faults, and a broker that is gone."""
    config = {"remote.storage.enable": True, "local.retention.ms": 3_600_000}
    control.topics.create("orders", config=config)
    control.topics.create("payments", partitions=2)
    async with AIOKafkaProducer(bootstrap_servers=servers, client_id="shop") as producer:
        await send(producer, 900, age_ms=2 * 3_600_000)
        control.tier.copy("orders")
        control.topics.retain("orders")
        control.clock.advance(minutes=20)
        await send(producer, 500)
        leader = control.state().partition("orders").leader
        control.ask("brokers.stop", {"broker": leader})
        control.tier.copy("orders")
        await send(producer, 400)
        control.ask("brokers.start", {"broker": leader})
        control.wait_for(lambda state: len(state.partition("orders").isr) == 3)
        control.ask("brokers.kill", {"broker": control.state().partition("orders").leader})
        await send(producer, 300)
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id="billing") as consumer:
        partition = TopicPartition("orders", 0)
        consumer.assign([partition])
        await consumer.commit({partition: 1850})
    control.faults.on("Produce", topic="payments").times(1).error("NOT_LEADER_OR_FOLLOWER")
    control.faults.on("Fetch", client_id="billing*").delay_answer(0.5).disable()
    running = [broker.node_id for broker in control.state().brokers]
    control.network.slow(running[0], running[1], 0.02)
    control.devices.slow_disk(running[0], 0.005, "writes", topic="payments")


async def send(producer: AIOKafkaProducer, count: int, *, age_ms: int = 0) -> None:
    """Write records to `orders`, with timestamps so long ago."""
    timestamp_ms = SystemClock().wall_ms() - age_ms
    for number in range(count):
        await producer.send("orders", b"order %d" % number, timestamp_ms=timestamp_ms)
    await producer.flush()


async def pictures(browser: Browser, url: str) -> None:
    """Write a picture in light, one in dark, and one of a scenario."""
    for scheme in ("light", "dark"):
        page = await browser.new_page(color_scheme=scheme, viewport=SIZE)
        await page.goto(url)
        await page.get_by_text("Live", exact=True).wait_for()
        await page.locator("#requests tbody tr").first.wait_for()
        await save(page, scheme)
        await page.close()
    page = await browser.new_page(color_scheme="light", viewport=SIZE)
    await page.goto(f"{url}/#scenarios")
    await page.locator("#scenario option").first.wait_for(state="attached")
    await page.get_by_role("button", name="Play", exact=True).click()
    await page.get_by_role("button", name="A is elected").click()
    await save(page, "scenario")
    await page.close()


async def save(page: Page, name: str) -> None:
    """Write a picture of the whole page, in 128 colours: a third of the bytes."""
    shot = Image.open(BytesIO(await page.screenshot(full_page=True)))
    shot.quantize(128, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    asyncio.run(main())
