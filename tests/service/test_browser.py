"""The pages in a real browser: Chromium, by Selenium; left out where either is missing."""

import re
import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.service.running import Running, running

webdriver = pytest.importorskip("selenium.webdriver", reason="the pages need Selenium to be tried")
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="no chromium, or no chromedriver, on this machine",
    ),
]
FLAGS = (
    "headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "no-first-run",
    "disable-background-networking", "disable-component-update", "disable-sync",
)  # fmt: skip
PATIENCE = 60  # seconds; the machine may be busy
READABLE = 4.5  # contrast of small letters, by WCAG AA
PAGES = ("/", "/models/churn", "/models/agent")

CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const light = (colour) => {
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => {
    const c = byte / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = (element) => {
  const own = getComputedStyle(element).backgroundColor;
  return own === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : own;
};
const hasText = (one) => [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
const texts = [...document.querySelectorAll("main *, nav *")].filter(
  (one) => one.checkVisibility() && hasText(one),
);
return [light(getComputedStyle(document.body).backgroundColor), Math.min(...texts.map((one) => {
  const [a, b] = [light(getComputedStyle(one).color), light(ground(one))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}))];
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service")) as one:
        one.ask("PUT", "/v1/models/churn", {})
        _teach(one, 300)
        one.ask("PUT", "/v1/models/agent", {"actions": ["a", "b"], "context": {"x": "number"}})
        chosen = one.post("/v1/models/agent/decide", {"context": {"x": 1}})
        one.post("/v1/models/agent/reward", {"id": chosen["id"], "reward": 0.5})
        yield one


def _teach(service: Running, n: int) -> None:
    rows = [{"row": {"age": i % 50}, "label": "go" if i % 50 < 25 else "stay"} for i in range(n)]
    service.post("/v1/models/churn/learn/batch", {"items": rows})


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: Any, service: Running) -> Iterator[Any]:
    """A browser that has logged in; at the end its console must be empty."""
    _log_in(chromium, service)
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert chromium.get_log("browser") == []


def _log_in(chromium: Any, service: Running) -> None:
    chromium.delete_all_cookies()
    chromium.get(f"{service.address}/models/churn")
    assert chromium.current_url.endswith("/login")
    chromium.switch_to.active_element.send_keys(service.key, Keys.ENTER)
    _until(chromium, lambda: _text(chromium, "h1") == "Models")


def _until(chromium: Any, condition: Callable[[], Any]) -> None:
    gone = [WebDriverException]  # a page that is being left has several words for it
    WebDriverWait(chromium, PATIENCE, 0.1, gone).until(lambda _: condition())


def _text(chromium: Any, selector: str) -> str:
    text: str = chromium.find_element(By.CSS_SELECTOR, selector).text
    return text


def test_everything_can_be_reached_by_keyboard(browser: Any) -> None:
    for _ in range(10):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        focused = browser.switch_to.active_element
        assert focused.value_of_css_property("outline-style") == "solid"
        if focused.text == "churn":
            break
    focused.send_keys(Keys.ENTER)
    _until(browser, lambda: _text(browser, "h1") == "churn")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB, Keys.ENTER)
    assert browser.current_url.endswith("#main")  # the first stop skips what pages share
    browser.find_element(By.CSS_SELECTOR, "nav button").send_keys(Keys.SPACE)
    _until(browser, lambda: _text(browser, "h1") == "Log in")


def test_numbers_words_and_pictures_move_while_a_client_learns(
    browser: Any, service: Running
) -> None:
    browser.get(f"{service.address}/models/churn")

    def rows() -> int:
        return int(_text(browser, '[data-number="rows"]').replace(",", ""))

    def drawn() -> int:
        source = browser.find_element(By.CSS_SELECTOR, "#losses img").get_attribute("src")
        return int(re.search(r"version=(\d+)", source)[1])

    before, version = rows(), drawn()
    _teach(service, 300)
    _until(browser, lambda: rows() == before + 300)
    _until(browser, lambda: drawn() > version)
    _until(browser, lambda: _text(browser, '[data-number="rate"]') not in ("–", ""))
    course = browser.find_element(By.CSS_SELECTOR, "[data-course=rate] polyline")
    _until(browser, lambda: course.get_attribute("points"))
    image = browser.find_element(By.CSS_SELECTOR, "#losses img")
    assert browser.execute_script("return arguments[0].naturalWidth", image) > 0
    status = browser.find_element(By.CSS_SELECTOR, "[role=status]")
    assert "were predicted right" in status.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_can_be_read(browser: Any, service: Running, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    for page in PAGES:
        browser.get(service.address + page)
        ground, contrast = browser.execute_script(CONTRAST)
        assert (ground < 0.1) == (scheme == "dark")
        assert contrast >= READABLE
    browser.get(f"{service.address}/models/churn")
    image = browser.find_element(By.TAG_NAME, "img")
    browser.execute_script("arguments[0].scrollIntoView()", image)
    _until(browser, lambda: image.get_property("complete"))
    drawn = Image.open(BytesIO(image.screenshot_as_png)).convert("L")
    assert (np.median(drawn) < 128) == (scheme == "dark")  # nearly all of it is ground


def test_a_telephone_shows_all_without_scrolling_sideways(browser: Any, service: Running) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for page in PAGES:
        browser.get(service.address + page)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= size["width"], page
    browser.get(f"{service.address}/models/churn")
    browser.execute_script(
        "document.images[0].scrollIntoView()"
    )  # pictures come when they are seen
    source = "return document.images[0].currentSrc"
    _until(browser, lambda: browser.execute_script(source).endswith("&narrow"))


def test_a_page_of_a_deleted_model_says_so(browser: Any, service: Running) -> None:
    service.ask("PUT", "/v1/models/short", {})
    browser.get(f"{service.address}/models/short")
    service.ask("DELETE", "/v1/models/short")
    _until(browser, lambda: "There is no model" in _text(browser, "main"))
    assert any("404" in entry["message"] for entry in browser.get_log("browser"))
