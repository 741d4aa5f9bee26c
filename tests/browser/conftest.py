"""Pages opened in a real browser without a network."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

PATIENCE = 300  # seconds after which what a test waits for will never come, however busy the machine is


class Opened:
    """A page that was opened from disk, and everything it said or asked for."""

    def __init__(self, page):
        self.page = page
        self.requests, self.said, self.dialogs = [], [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def check(self):
        """Nothing was asked for outside, nothing complained about, nothing popped up."""
        assert [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        assert self.said == []
        assert self.dialogs == []


@contextlib.contextmanager
def opening(browser, path, *, width=1280, height=900, **options):
    """Opens a file with the network cut; what it asked for or complained about is checked at the end."""
    # Without smooth scrolling, which would move the page under the mouse.
    context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
    context.set_default_timeout(1000 * PATIENCE)
    try:
        context.set_offline(True)
        one = Opened(context.new_page())
        one.page.goto(Path(path).resolve().as_uri(), wait_until="load")
        one.page.wait_for_selector("main[aria-busy=false]")
        yield one
        one.check()
    finally:
        context.close()


@pytest.fixture
def opened(browser):
    """A function that opens a file for one test."""
    with contextlib.ExitStack() as stack:
        yield lambda path, **options: stack.enter_context(opening(browser, path, **options)).page


def chart(page, name):
    """Scrolls to a chart and waits until it is drawn and answers to a click."""
    page.locator(f"#{name}").scroll_into_view_if_needed()
    page.wait_for_selector(f"#{name}[aria-busy=false]")


def until(page, function, argument=None):
    """Waits for a function of the page to be true. Playwright's own would need a page that allows eval."""
    for _ in range(PATIENCE * 50):
        if page.evaluate(function, argument):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never true: {function}")


def value(page, selector):
    """The number an element shows, with all digits; None if it is undefined."""
    text = page.locator(selector).first.get_attribute("data-value")
    return float(text) if text else None


def class_rows(page, *, visible_only=False):
    """The table of classes: one dict per row, in the order of the page."""
    rows = page.evaluate(
        """() => [...document.querySelectorAll("#class-table tbody tr")].map((row) => ({
            name: row.cells[0].textContent, hidden: row.hidden,
            ...Object.fromEntries([...row.querySelectorAll("[data-column]")]
                .map(({dataset}) => [dataset.column, dataset.value === "" ? null : Number(dataset.value)]))}))"""
    )
    return [row for row in rows if not (visible_only and row["hidden"])]


def table_rows(page, selector):
    """The visible rows of a table: for every cell its full value, else its text."""
    return page.evaluate(
        """(selector) => [...document.querySelectorAll(selector + " tbody tr")].filter((row) => !row.hidden)
            .map((row) => [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent))""",
        selector,
    )


def check_sorting(page, table, column, values):
    """Sorts by a column with the mouse, then with a key, and compares ``values()`` with both orders."""
    header = page.locator(f"{table} thead [data-column={column}]")
    for act, order in (
        (lambda button: button.click(), "descending"),
        (lambda button: button.press("Enter"), "ascending"),
    ):
        act(header.locator("button"))
        assert header.get_attribute("aria-sort") == order
        assert values() == sorted(values(), reverse=order == "descending")


def click_cell(page, row, column):
    """A real click on the middle of a cell of the confusion matrix."""
    chart(page, "matrix")
    where = page.evaluate(
        """([row, column]) => {
            const chart = document.getElementById("matrix"), {xaxis, yaxis} = chart._fullLayout;
            const box = chart.getBoundingClientRect();
            return [box.left + xaxis._offset + xaxis.d2p(column), box.top + yaxis._offset + yaxis.d2p(row)];
        }""",
        [row, column],
    )
    page.mouse.move(*where)
    # A click selects the cell that the chart knows to be under the mouse, which it finds out some time after the move.
    page.wait_for_function(
        """([row, column]) => (document.getElementById("matrix")._hoverdata || [])
            .some((point) => point.y === row && point.x === column)""",
        arg=[row, column],
    )
    page.mouse.click(*where)
    page.wait_for_selector(f'#cell[data-cell="{row},{column}"]')


def open_cell(page, row, column):
    """Opens a cell by its controls, with the keyboard."""
    page.select_option("#cell-row", str(row))
    page.select_option("#cell-column", str(column))
    page.locator("#cell-open").press("Enter")
    assert page.evaluate("document.activeElement.id") == "cell"
    return table_rows(page, "#cell-table")
