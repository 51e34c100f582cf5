"""The web page, in a real browser without a screen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from serving import WAIT_S, Serving, load_pair, wait_until
from tiny.pairs import Pair

from pydspark import Llama
from pydspark.records import Progress

pytestmark = pytest.mark.browser
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
COMPLETE = "The answer is complete"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_server(pair: Pair) -> Iterator[Serving]:
    load = load_pair(pair.target_path, pair.draft_path, n_ctx=20_000)
    with Serving(load, sampling={"temperature": 0.0, "ignore_eos": True, "n_draft_max": 4}) as serving:
        yield serving


class Opened:
    """The page in a fresh browser profile.

    Attributes:
        page: as playwright drives it.
        troubles: errors of its scripts, and requests to somewhere else.
    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESKTOP, **options})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_S * 1e3)
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url, url))
        self.page.goto(url)

    def _check(self, asked: str, url: str) -> None:
        if not asked.startswith((url, "data:")):
            self.troubles.append(asked)

    def set(self, **fields: object) -> None:
        """Fills the settings in."""
        self.page.get_by_role("button", name="Settings").click()
        for name, value in fields.items():
            self.page.locator(f"#settings [name={name}]").fill(str(value))
        self.page.get_by_role("button", name="Done").click()

    def say(self, text: str) -> None:
        """Types a message and sends it, by keyboard alone."""
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")

    def status(self, text: str) -> None:
        """Waits for the status line."""
        expect(self.page.locator("#status")).to_have_text(text, timeout=WAIT_S * 1e3)


@pytest.fixture
def opened(browser: Browser, page_server: Serving) -> Iterator[Opened]:
    opened = Opened(browser, page_server.url)
    expect(opened.page.locator("#model")).to_have_text("tiny")
    yield opened
    opened.context.close()
    assert opened.troubles == []


def test_a_message_is_answered_and_drafts_are_shown(opened: Opened) -> None:
    opened.set(max_tokens=40)
    opened.say("hello")
    opened.status(COMPLETE)
    page = opened.page
    assert page.locator(".message.user .text").inner_text() == "hello"
    answer = page.locator(".message.assistant")
    assert answer.locator(".token.drafted").count() > 0 and answer.locator(".token.own").count() > 0
    assert "40 tokens" in answer.locator("footer").inner_text()
    assert page.locator("#chart .bar").count() == page.locator("#chart-table tbody tr").count() == 4
    for name in ("speed", "plain-speed", "saved", "per-round"):
        float(page.locator(f"#{name}").inner_text())
    assert page.locator("#prompt").evaluate("element => element === document.activeElement")


def test_what_is_shown_is_what_the_server_says(opened: Opened, page_server: Serving) -> None:
    opened.set(max_tokens=30, system="the")
    opened.say("hello world")
    opened.status(COMPLETE)
    messages = [{"role": "system", "content": "the"}, {"role": "user", "content": "hello world"}]
    answer = page_server.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 30})
    shown = opened.page.locator(".message.assistant .text").text_content()
    assert shown == answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stopping(opened: Opened, page_server: Serving, how: str) -> None:
    opened.say("hello")
    opened.status("Writing")
    expect(opened.page.get_by_role("button", name="Send")).to_be_hidden()
    if how == "button":
        opened.page.get_by_role("button", name="Stop").click()
    else:
        opened.page.keyboard.press("Escape")
    opened.status("Stopped")
    wait_until(lambda: page_server.service.worker.running is None)
    assert opened.page.locator(".message.assistant .token").count() > 0
    expect(opened.page.get_by_role("button", name="Send")).to_be_visible()


def test_reloading_keeps_the_chat_and_the_settings(opened: Opened) -> None:
    opened.set(max_tokens=20)
    opened.say("hello")
    opened.status(COMPLETE)
    before = opened.page.locator(".message .text").all_text_contents()
    tints = opened.page.locator(".message .drafted").count()
    opened.page.reload()
    expect(opened.page.locator("#model")).to_have_text("tiny")
    assert opened.page.locator(".message .text").all_text_contents() == before
    assert opened.page.locator(".message .drafted").count() == tints
    opened.say("world")
    opened.status(COMPLETE)
    assert opened.page.locator(".message").count() == 4
    opened.page.get_by_role("button", name="New chat").click()
    assert opened.page.locator(".message").count() == 0
    expect(opened.page.locator("#empty")).to_be_visible()


def test_errors_are_shown_and_the_message_comes_back(opened: Opened) -> None:
    opened.say("hello " * 30_000)
    alert = opened.page.get_by_role("alert")
    expect(alert).to_contain_text("the context holds 20000", timeout=WAIT_S * 1e3)
    assert opened.page.locator("#prompt").input_value().startswith("hello")
    opened.set(max_tokens=5)
    opened.say("hello")
    opened.status(COMPLETE)


def test_text_of_the_model_is_no_markup(opened: Opened) -> None:
    opened.set(max_tokens=5)
    opened.say("<img src=x onerror=alert(1)><b>bold</b>")
    opened.status(COMPLETE)
    assert opened.page.locator(".message img, .message b").count() == 0
    assert "<b>bold</b>" in opened.page.locator(".message.user").inner_text()


def test_drafting_can_be_turned_off(opened: Opened) -> None:
    opened.set(max_tokens=20)
    opened.page.get_by_role("button", name="Settings").click()
    opened.page.get_by_label("Draft", exact=True).uncheck()
    opened.page.keyboard.press("Escape")
    opened.say("hello")
    opened.status(COMPLETE)
    assert opened.page.locator(".message .drafted").count() == 0


def test_a_server_without_a_drafter(browser: Browser, tiny_llama_path: Path) -> None:
    with Serving(load_pair(tiny_llama_path)) as serving:
        opened = Opened(browser, serving.url)
        expect(opened.page.locator("#no-drafter")).to_be_visible()
        expect(opened.page.locator("#chart-figure")).to_be_hidden()
        opened.context.close()


def test_a_server_that_loads_or_wants_a_key(browser: Browser, tiny_llama_path: Path) -> None:
    go_on = threading.Event()

    def load(progress: Progress) -> Llama:
        progress(0.5)
        assert go_on.wait(WAIT_S)
        return Llama(tiny_llama_path, n_ctx=64, n_threads=1)

    serving = Serving(load, api_key=("secret",))
    serving.start()
    try:
        opened = Opened(browser, serving.url)
        opened.status("Loading the model, 50 %")
        go_on.set()
        opened.status("This server needs an API key; it goes into the settings.")
        opened.set(key="secret")
        expect(opened.page.locator("#model")).to_have_text("tiny")
        opened.context.close()
    finally:
        go_on.set()
        serving.stop()


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_size_and_theme(
    browser: Browser, page_server: Serving, viewport: dict[str, int], scheme: str, tmp_path: Path
) -> None:
    opened = Opened(browser, page_server.url, viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    opened.set(max_tokens=60)
    opened.say("hello world, " * 20)
    opened.status(COMPLETE)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    for name in ("Send", "New chat", "Settings"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= viewport["width"]
        assert box["height"] >= 36  # for thumbs
    assert page.screenshot(path=tmp_path / "page.png")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background.strip("rgb()").split(","))
    assert (brightness > 380) == (scheme == "light")
    contrast = page.evaluate(CONTRAST)
    assert min(contrast.values()) >= 4.5, contrast
    opened.context.close()


# The contrast of texts with what is behind them, by WCAG's formula.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (color, below) => {
    canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const result = {};
  for (const selector of [".message .text", ".message h3", ".message .drafted", ".note", ".status", ".unit", "#send",
                          ".message footer", ".numbers dt", ".legend .d6"]) {
    const element = document.querySelector(selector);
    let backs = [];
    for (let node = element; node; node = node.parentElement) backs.unshift(getComputedStyle(node).backgroundColor);
    let back = "rgb(255, 255, 255)";
    for (const color of backs) back = `rgb(${over(color, back).join(",")})`;
    const text = over(getComputedStyle(element).color, back);
    const pair = [light(text), light(over(back, back))].sort((a, b) => b - a);
    result[selector] = (pair[0] + 0.05) / (pair[1] + 0.05);
  }
  return result;
}"""
