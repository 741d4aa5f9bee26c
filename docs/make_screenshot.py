"""Makes the screenshots of the HTML report in the README and in the documentation.

    python docs/make_screenshot.py

writes the report of the bundled results, opens its page in a headless Chromium, and saves two parts of it.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402  # after the path is set
from playwright.sync_api import Page, sync_playwright  # noqa: E402

from demo.make_detections import FOLDER, redraw_images  # noqa: E402
from mm_metrics_plugin.cli import main as mm_metrics  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1100, "height": 1240}


def save(page: Page, section: str, name: str) -> None:
    """Save the viewport from the top of a section on, as a PNG with a palette."""
    page.locator(f"#{section}").evaluate("(one) => scrollTo(0, one.getBoundingClientRect().top + scrollY - 20)")
    page.wait_for_timeout(500)  # for the charts to settle
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.quantize(128, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)
    print(f"docs/images/{name}: {(IMAGES / name).stat().st_size / 1e3:.0f} kB")


def main() -> None:
    """Save the metrics with the slider, and the confusion matrix with an opened cell."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        inputs = [str(FOLDER / "annotations.json"), str(FOLDER / "results.pkl"), str(folder / "out")]
        options = ["--quiet", "--html", "--ci", "0.95", "--images", str(redraw_images(folder / "shapes"))]
        if mm_metrics(["detection", *inputs, *options]):
            sys.exit(1)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, reduced_motion="reduce")  # scrolls without animation
        page.goto((folder / "out" / "report.html").as_uri())
        page.wait_for_selector("main[aria-busy=false]")
        save(page, "summary", "page_numbers.png")
        page.locator("#confusions").scroll_into_view_if_needed()
        page.wait_for_selector("#matrix .xtick text")
        page.locator("#top-confusions button").first.click()
        save(page, "confusions", "page_confusions.png")
        browser.close()


if __name__ == "__main__":
    main()
