"""The HTML page of a large report: how long it takes to make and to open, and how large it is."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from benchmarks.bench_reading import write_results, write_truth
from benchmarks.bench_report import run
from benchmarks.detection_problem import make_problem
from benchmarks.timing import heading, seconds

MOST_SECONDS, MOST_BYTES = 2.0, 15_000_000
# Slider, table and curves answer; then the matrix, which is drawn when it is scrolled to, opens a cell.
USE = {
    "slider and table": """() => {
        const slider = document.getElementById("confidence");
        slider.value = "1";
        slider.dispatchEvent(new Event("input"));
        return document.querySelectorAll("#class-table tbody tr").length > 0;
    }""",
    "a cell of the matrix": """() => {
        document.getElementById("cell-open").click();
        return !document.getElementById("cell").hidden;
    }""",
}


def draw_pictures(folder: Path, number: int) -> None:
    """As many pictures of 640 x 480 as the page may need, as hard to compress as photographs."""
    random = np.random.default_rng(0)
    folder.mkdir()
    for index in range(number):
        rough = Image.fromarray(random.integers(0, 256, (60, 80, 3), dtype=np.uint8))
        rough.resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{index + 1:012d}.jpg", quality=90)


def main() -> None:
    problem = make_problem()
    heading(f"Page: {problem.num_images:,} images, {len(problem.labels):,} detections, {problem.num_classes} classes")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        write_results(problem, folder / "results.pkl")
        write_truth(problem, folder / "truth.json")
        draw_pictures(folder / "pictures", problem.num_images)
        command = ["-m", "mm_metrics_plugin.cli", "detection", "truth.json", "results.pkl"]
        plain, _ = seconds(lambda: run(name, *command, "plain"))
        made, _ = seconds(lambda: run(name, *command, "out", "--html", "--images", "pictures"))
        print(f"{'mm-metrics detection, without the page':<52}{plain:9.3f} s")
        print(f"{'mm-metrics detection --html --images DIR':<52}{made:9.3f} s", flush=True)
        page_file = folder / "out" / "report.html"
        size = page_file.stat().st_size
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        best = float("inf")
        for _ in range(3):
            page = browser.new_page()
            opening, _ = seconds(lambda page=page: page.goto(page_file.as_uri(), wait_until="load"))
            using = {what: seconds(lambda page=page, use=use: page.evaluate(use)) for what, use in USE.items()}
            if not all(done for _, done in using.values()):
                raise RuntimeError("the page does not answer")
            best = min(best, opening + using["slider and table"][0])
            pictures = page.locator("#pictures img").count()
            page.close()
        browser.close()
    for what, value, most, unit in (
        ("opened and answering", best, MOST_SECONDS, "s"),
        (f"size, {pictures} pictures included", size / 1e6, MOST_BYTES / 1e6, "MB"),
    ):
        verdict = "met" if value <= most else "MISSED"
        print(f"{what:<52}{value:9.3f} {unit} (promised at most {most:g} {unit}: {verdict})", flush=True)


if __name__ == "__main__":
    main()
