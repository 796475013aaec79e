"""Airflow's pages in a real browser, as whoever clicks there sees them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from customer_activity.demo.run import local_airflow

PAGE_SECONDS = 45.0  # beside a driver that starts, on two cores
WIDTH, HEIGHT = 1400, 900
TRIGGER, SUBMIT, SWITCH = "trigger-dag-button", "trigger-dag-submit", "toggle-pause"


@contextmanager
def opened() -> Iterator[Chrome]:
    """Open Debian's Chromium without a screen.

    Raises:
        FileNotFoundError: it, or its driver, is not installed.
    """
    program, service = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or service is None:
        raise FileNotFoundError("no chromium or no chromedriver: `apt-get install chromium chromium-driver`")
    options = ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--disable-dev-shm-usage", f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # it refuses to run as root with one
    with Chrome(options=options, service=ChromeService(service)) as page:
        yield page


def sign_in(page: Chrome, url: str, password: str) -> None:
    """Sign in as the one who may do everything, by the form."""
    page.get(url)
    shown(page, By.NAME, "username").send_keys(local_airflow.PEOPLE)
    shown(page, By.NAME, "password").send_keys(password)
    shown(page, By.CSS_SELECTOR, "button[type=submit]").click()
    marked(page, "nav-dags-link")


def says(page: Chrome, *words: str, seconds: float = PAGE_SECONDS) -> str:
    """Wait until the page says all these words; return what it says."""

    def look(_: Chrome) -> str | Literal[False]:
        said = page.find_element(By.TAG_NAME, "body").text
        return said if all(word in said for word in words) else False

    return WebDriverWait(page, seconds).until(look, f"{page.current_url} does not say {words}")


def fill_in(page: Chrome, url: str, dag: str, lines: dict[str, str]) -> None:
    """Open the form that triggers a DAG, and fill it in.

    Args:
        page: somebody's who is signed in.
        url: of Airflow.
        dag: which one.
        lines: what is typed into its fields, by their names.
    """
    page.get(f"{url}/dags/{dag}")
    marked(page, TRIGGER).click()
    for name, text in lines.items():
        shown(page, By.CSS_SELECTOR, f"[name=element_{name}]").send_keys(text)


def send_off(page: Chrome) -> None:
    """Trigger the DAG whose form is filled in."""
    marked(page, SUBMIT).click()


def switch(page: Chrome, url: str, dag: str) -> None:
    """Pause a DAG, or let it go on, by the switch on its page."""
    page.get(f"{url}/dags/{dag}")
    marked(page, SWITCH).click()


def scroll_up(page: Chrome) -> None:
    """Scroll every part of a page to its top: the page of a long log shows its end first."""
    page.execute_script("document.querySelectorAll('*').forEach(part => { part.scrollTop = 0; })")


def picture(page: Chrome, file: Path) -> None:
    """Keep what the page looks like."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not page.save_screenshot(str(file)):
        raise OSError(f"no picture was written to {file}")


def marked(page: Chrome, mark: str) -> WebElement:
    """Wait for the part of a page with this mark: Airflow marks some for tests."""
    return shown(page, By.CSS_SELECTOR, f"[data-testid={mark}]")


def shown(page: Chrome, by: str, what: str) -> WebElement:
    """Wait for a part of a page that can be used."""

    def look(_: Chrome) -> WebElement | Literal[False]:
        found = [part for part in page.find_elements(by, what) if part.is_displayed() and part.is_enabled()]
        return found[0] if found else False

    return WebDriverWait(page, PAGE_SECONDS).until(look, f"{page.current_url} has no {what}")
