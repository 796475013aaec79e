"""The portal's page in a real browser: a row that changes, hostile text, tokens, and a portal that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from customer_activity.settings import Settings
from support import addresses, browser
from support.portal import running, send
from support.view import value
from support.waiting import until

pytestmark = pytest.mark.nightly
HOSTILE = "<img src=x onerror=document.title='owned'>\u202e\x1b[31m</script>"
VIEWER, PERSONAL = "v" * 32, "p" * 32


@pytest.fixture(scope="module")
def page() -> Iterator[Chrome]:
    with browser.opened() as opened:
        yield opened


@pytest.fixture
def served(settings: Settings) -> Settings:
    return settings.model_copy(update={"portal_port": addresses.free_port()})


@pytest.fixture
def portal(served: Settings) -> Iterator[httpx.Client]:
    send(served, ("C-1", value()), ("C-2", value("C-2", name=HOSTILE, address=HOSTILE)))
    with running(served) as asks:
        yield asks


@pytest.fixture(autouse=True)
def keep_what_was_seen(page: Chrome, tmp_path: Path) -> Iterator[None]:
    """What the page looked like at the end: shown with a test that fails."""
    yield
    browser.picture(page, tmp_path / "last.png")
    print(f"the last page: {tmp_path / 'last.png'}")  # noqa: T201
    page.get("about:blank")


def card(page: Chrome) -> str:
    return page.find_element(By.ID, "customer").text


@pytest.mark.usefixtures("portal")
def test_a_customer_is_found_by_keyboard_and_seen_to_change(page: Chrome, served: Settings) -> None:
    page.get(served.portal_page)
    browser.says(page, "Find a customer, or choose", "complete up to")
    page.switch_to.active_element.send_keys("/")
    page.switch_to.active_element.send_keys("ridgeway")
    browser.says(page, "myrtle@example.org")
    page.switch_to.active_element.send_keys(Keys.ENTER)
    browser.says(page, "33 Mill Lane, 45290 Kingsmere")
    send(served, ("C-1", value(viewVersion=2, address="38 New Street, 20095 Hamburg")))
    browser.says(page, "38 New Street, 20095 Hamburg")
    (before,) = page.find_elements(By.CSS_SELECTOR, ".card .changed del")
    assert before.text == "33 Mill Lane, 45290 Kingsmere"
    assert "C-1" in page.find_element(By.ID, "changes").text
    send(served, ("C-1", None))
    browser.says(page, "This row was removed from the view.")


@pytest.mark.usefixtures("portal")
def test_what_data_says_is_text_and_nothing_else(page: Chrome, served: Settings) -> None:
    page.get(f"{served.portal_page}/#customer=C-2")
    browser.says(page, "onerror=document.title")
    send(served, ("C-2", value("C-2", viewVersion=2, name=HOSTILE, address=HOSTILE, email=HOSTILE)))
    until(lambda: card(page).count("onerror") == 3)
    assert "\\u202e\\u001b[31m" in card(page)
    assert page.title == "Customer activity"
    assert not page.find_elements(By.CSS_SELECTOR, "main img, main script")
    said = page.get_log("browser")  # type: ignore[no-untyped-call]
    assert not [entry for entry in said if entry["source"] in ("javascript", "security")]


def test_a_viewer_signs_in_and_sees_what_is_masked(page: Chrome, served: Settings, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"viewer {VIEWER}\npersonal-data {PERSONAL}\n", encoding="utf-8")
    guarded = served.model_copy(update={"portal_tokens": tmp_path / "tokens"})
    send(guarded, ("C-1", value()))
    with running(guarded):
        page.get(f"{guarded.portal_page}/#customer=C-1")
        for token, words in (("x" * 32, "This token is not known here."), (VIEWER, "12.5 EUR"), (PERSONAL, "Myrtle")):
            if not page.find_element(By.ID, "sign-in").is_displayed():
                page.find_element(By.ID, "leave").click()
            browser.shown(page, By.ID, "token").send_keys(token + Keys.ENTER)
            browser.says(page, words)
            assert ("•••" in card(page), "Myrtle" in card(page)) == (token == VIEWER, token == PERSONAL)
        assert [cookie["name"] for cookie in page.get_cookies()] == []
        page.find_element(By.ID, "leave").click()
        assert browser.shown(page, By.ID, "token").get_attribute("value") == ""


def test_the_page_says_when_the_portal_is_gone_and_goes_on_when_it_is_back(page: Chrome, served: Settings) -> None:
    send(served, ("C-1", value()))
    with running(served):
        page.get(f"{served.portal_page}/#customer=C-1")
        browser.says(page, "33 Mill Lane")
    browser.says(page, "The portal has not answered for")
    assert "33 Mill Lane" in card(page)
    send(served, ("C-1", value(viewVersion=2, address="38 New Street")))
    with running(served, "portal-again"):
        browser.says(page, "38 New Street", "complete up to")
        assert not page.find_element(By.ID, "warning").is_displayed()


@pytest.mark.usefixtures("portal")
def test_it_is_whole_at_a_phones_width(page: Chrome, served: Settings) -> None:
    page.set_window_size(500, 900)
    try:
        page.get(f"{served.portal_page}/#customer=C-1")
        browser.says(page, "33 Mill Lane", "to read")  # the flow as a table
        width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.execute_script(width) == 0
    finally:
        page.set_window_size(browser.WIDTH, browser.HEIGHT)
