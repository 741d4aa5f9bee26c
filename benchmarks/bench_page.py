"""The HTML page of a large report: time to write and to open it, and its size."""

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

MAX_SECONDS, MAX_BYTES = 2.0, 15_000_000
# The slider and the table respond after the load event. Charts follow when plotly is ready.
WHEN_LOADED = "addEventListener('load', () => { window.loadedAt = performance.now(); })"
MOVE_SLIDER = """() => {
    const slider = document.getElementById("confidence"), cell = document.querySelector("#readout [data-column=tp]");
    const before = cell.textContent;
    slider.value = "1";
    slider.dispatchEvent(new Event("input"));
    return cell.textContent !== before;
}"""


def draw_images(folder: Path, number: int) -> None:
    """Images of 640 x 480 that are as hard to compress as photographs."""
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
        draw_images(folder / "images", problem.num_images)
        command = ["-m", "mm_metrics_command", "detection", "truth.json", "results.pkl"]
        plain, _ = seconds(lambda: run(name, *command, "plain"))
        made, _ = seconds(lambda: run(name, *command, "out", "--html", "--images", "images"))
        print(f"{'mm-metrics detection, without the page':<52}{plain:9.3f} s")
        print(f"{'mm-metrics detection --html --images DIR':<52}{made:9.3f} s", flush=True)
        page_file = folder / "out" / "report.html"
        size = page_file.stat().st_size
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        best = {"opened and responding": float("inf"), "charts drawn": float("inf")}
        work = float("inf")
        for _ in range(3):
            page = browser.new_page()
            page.add_init_script(WHEN_LOADED)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(page_file.as_uri(), wait_until="load")
            page.wait_for_selector("#threshold-curves .xtick")
            drawn = page.evaluate("performance.now()")
            if not page.evaluate(MOVE_SLIDER):
                raise RuntimeError("the page does not respond")
            for what, taken in (("opened and responding", page.evaluate("loadedAt")), ("charts drawn", drawn)):
                best[what] = min(best[what], taken / 1000)
            metrics = session.send("Performance.getMetrics")["metrics"]
            work = min(work, next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime"))
            images = page.locator("#images img").count()
            page.close()
        browser.close()
    print(f"{'CPU time of the page':<52}{work:9.3f} s")
    for what, value, most, unit in (
        *((what, taken, MAX_SECONDS, "s") for what, taken in best.items()),
        (f"size, with {images} images", size / 1e6, MAX_BYTES / 1e6, "MB"),
    ):
        verdict = "met" if value <= most else "MISSED"
        print(f"{what:<52}{value:9.3f} {unit} (target at most {most:g} {unit}: {verdict})", flush=True)
