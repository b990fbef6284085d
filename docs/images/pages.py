"""Photograph the pages of the service: ``python -m docs.images.pages``, in the root of the project.

Needs the extra `dev`, chromium and chromedriver. The numbers are those of a seeded stream; the
letters are those that the machine has.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docs.images.make import FOLDER, flights, shrink
from selenium import webdriver
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from folklearn.service import Client
from tests.service.running import Running, running

FLAGS = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars")
N_ROWS, AT_ONCE, N_WAITING = 9_000, 500, 40


def teach(address: str, key: str) -> None:
    """Let a model learn flights; the last ones wait for what becomes of them."""
    frame = flights()[: N_ROWS + N_WAITING]
    frame["departs"] = frame["departs"].dt.strftime("%Y-%m-%d %H:%M")
    labels = frame.pop("delayed").tolist()
    rows = frame.to_dict("records")
    model = Client(address, key).create("flights")
    for start in range(0, N_ROWS, AT_ONCE):
        part = slice(start, start + AT_ONCE)
        model.learn_many(zip(rows[part], labels[part], strict=True))
    model.predict_many(rows[N_ROWS:], remember=True)
    model.verify()


@contextmanager
def chromium() -> Iterator[Any]:
    """Open a browser of this machine."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def shoot(
    driver: Any, name: str, *, width: int, height: int, scheme: str = "light", top: str = "main"
) -> None:
    """Write what the browser shows, from an element on, with few colours."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": height, "deviceScaleFactor": 1.2, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_script(f"document.getElementById('{top}').parentElement.scrollIntoView()")
    time.sleep(1.0)  # until the pictures for this width are asked for
    driver.execute_script("[...document.images].forEach((one) => { one.loading = 'eager'; })")
    loaded = "return [...document.images].every((one) => one.complete)"
    WebDriverWait(driver, 60).until(lambda _: driver.execute_script(loaded))
    path = FOLDER / f"{name}.png"
    driver.save_screenshot(str(path))
    shrink(path)


def photograph(service: Running, driver: Any) -> None:
    """Log in, and take all pictures."""
    driver.get(service.address)
    driver.switch_to.active_element.send_keys(service.key, Keys.ENTER)
    WebDriverWait(driver, 60).until(lambda _: driver.title.startswith("Models"))
    driver.get(f"{service.address}/models/flights")
    WebDriverWait(driver, 300).until(lambda _: "being measured" not in driver.page_source)
    shoot(driver, "pages-light", width=900, height=1240)
    shoot(driver, "pages-dark", width=900, height=1150, scheme="dark", top="calibration-title")
    shoot(driver, "pages-narrow", width=390, height=844)


def main() -> None:
    """Serve a stream, and photograph it."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as service:
        teach(service.address, service.key)
        with chromium() as driver:
            photograph(service, driver)


if __name__ == "__main__":
    main()
