"""Pages opened in a real browser without a network."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

TIMEOUT = 300  # seconds; a busy machine is slow


@pytest.fixture
def opened(browser):
    """A function that opens a file without a network. The page must load nothing from outside and print no message."""
    requests, messages = [], []
    with contextlib.ExitStack() as stack:

        def open_page(path, *, width=1280, height=900, **options):
            # Without smooth scrolling, which would move the page under the mouse.
            size = {"width": width, "height": height}
            context = browser.new_context(viewport=size, reduced_motion="reduce", **options)
            stack.callback(context.close)
            context.set_default_timeout(1000 * TIMEOUT)
            context.set_offline(True)
            page = context.new_page()
            page.on("request", lambda request: requests.append(request.url))
            page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: messages.append(f"error: {error}"))
            page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
            page.goto(Path(path).resolve().as_uri(), wait_until="load")
            page.wait_for_selector("main[aria-busy=false]")
            return page

        yield open_page
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert messages == []


def chart(page, name):
    """Scrolls to a chart and waits until it responds to clicks."""
    page.locator(f"#{name}").scroll_into_view_if_needed()
    page.wait_for_selector(f"#{name}[aria-busy=false]")


def traces(page, name, *keys):
    """The given attributes of each trace of a chart, as lists."""
    chart(page, name)
    return page.evaluate(
        """([id, keys]) => document.getElementById(id).data
            .map((trace) => keys.map((key) => trace[key] && [...trace[key]]))""",
        [name, keys],
    )


def value(page, selector):
    """The number an element shows, with all digits; None if it is undefined."""
    text = page.locator(selector).first.get_attribute("data-value")
    return float(text) if text else None


def rows_by_column(page, table):
    """One dict per visible row of a table, by column; ``name`` is the text of the first cell."""
    return page.evaluate(
        """(table) => [...document.querySelectorAll(`#${table} tbody tr`)].filter((row) => !row.hidden).map((row) => ({
            name: row.cells[0].firstChild.textContent.trim(),
            ...Object.fromEntries([...row.querySelectorAll("[data-column]")]
                .map(({dataset}) => [dataset.column, dataset.value === "" ? null : Number(dataset.value)]))}))""",
        table,
    )


def table_rows(page, table):
    """The visible rows of a table: for every cell its full value, else its text."""
    return page.evaluate(
        """(table) => [...document.querySelectorAll(`#${table} tbody tr`)].filter((row) => !row.hidden)
            .map((row) => [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent))""",
        table,
    )


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
    # A click selects the cell that the chart knows to be under the mouse, some time after the move.
    page.wait_for_function(
        """([row, column]) => (document.getElementById("matrix")._hoverdata || [])
            .some((point) => point.y === row && point.x === column)""",
        arg=[row, column],
    )
    page.mouse.click(*where)
    page.wait_for_selector(f'#cell[data-cell="{row},{column}"]')
    return table_rows(page, "cell-table")


def open_cell(page, row, column):
    """Opens a cell by its controls, with the keyboard."""
    page.select_option("#cell-row", str(row))
    page.select_option("#cell-column", str(column))
    page.locator("#cell-open").press("Enter")
    assert page.evaluate("document.activeElement.id") == "cell"
    return table_rows(page, "cell-table")
