"""Makes the pictures of the HTML report that the README shows.

    python docs/make_screenshot.py

writes the report on the bundled results, opens its page in a headless Chromium, and keeps what a reader sees first.
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
from playwright.sync_api import sync_playwright  # noqa: E402

from demo.make_detections import FOLDER, redraw_pictures  # noqa: E402
from mm_metrics_plugin.cli import main as mm_metrics  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SIZE = {"width": 1100, "height": 1240}
# By file name, where on the page it is taken.
SHOTS = {"page_numbers.png": "summary", "page_confusions.png": "confusions"}


def main() -> None:
    """Writes the pictures: the numbers with slider and curves, and the matrix with an opened cell."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        inputs = [str(FOLDER / "annotations.json"), str(FOLDER / "results.pkl"), str(folder / "out")]
        options = ["--quiet", "--html", "--ci", "0.95", "--images", str(redraw_pictures(folder / "shapes"))]
        if mm_metrics(["detection", *inputs, *options]):
            sys.exit(1)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, reduced_motion="reduce")  # so that scrolling is done at once
        page.goto((folder / "out" / "report.html").as_uri())
        for file_name, anchor in SHOTS.items():
            section = page.locator(f"#{anchor}")
            section.scroll_into_view_if_needed()
            if anchor == "confusions":
                page.wait_for_selector("#matrix .xtick text")
                page.locator("#top-confusions button").first.click()
            section.evaluate("(one) => scrollTo(0, one.getBoundingClientRect().top + scrollY - 20)")
            page.wait_for_timeout(500)  # for the charts to settle; a picture is no test
            shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            PICTURES.mkdir(exist_ok=True)
            # Few colours are used, so a palette keeps the picture small and loses nothing that can be seen.
            shot.quantize(128, dither=Image.Dither.NONE).save(PICTURES / file_name, optimize=True)
            print(f"docs/pictures/{file_name}: {(PICTURES / file_name).stat().st_size / 1e3:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
