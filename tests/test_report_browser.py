"""The report as a browser shows it, at the width of a desk and of a phone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.synthetic_mechanism import mechanism_study
from tests.synthetic_report import write_report
from tests.synthetic_rows import FAMILIES, failed_cell, small_design

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SIZES = {"desk": (1280, 900), "phone": (375, 812)}

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium is installed")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> tuple[Path, dict]:
    long_name = "a family whose name goes on and on, " * 3 + "withoutanyspace" * 8
    design = small_design(
        families=["<script>alert(1)</script>", "新聞 🚀", long_name, *FAMILIES[:3]],
        contexts=[256, 2048],
        prompts={"source": "jsonl", "path": "own.jsonl"},
        modes={
            "ar": {"drafter": "none", "baseline": "ar"},
            "spec": {"drafter": "model", "k": 4, "round": "repair", "baseline": "ar"},
            "spec_folded": {"drafter": "model", "k": 4, "round": "folded", "baseline": "ar"},
        },
    )
    slugs = list(design.family_slugs)

    def alter(row):
        lost = row["family"] == slugs[1] and row["mode"] == "spec" and row["replicate"] == 1
        return (
            failed_cell(row, "crashed", "x" * 500 + "<img src=x onerror=alert(1)>") if lost else row
        )

    shown, tables = mechanism_study(
        design,
        failed={("256", slugs[2], "spec"): "steady"},
        overrides=("models.target.path=/" + "very/long/" * 30,),
        alter=alter,
    )
    page = write_report(tables, tmp_path_factory.mktemp("report"), shown, design)
    return page, tables.verdict


@pytest.fixture(scope="module")
def browser():
    with playwright_api.sync_playwright() as playwright:
        # Playwright gives it a profile of its own in a fresh folder.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield launched
        launched.close()


@pytest.fixture(params=SIZES, scope="module")
def shown(request, browser, report):
    """The loaded page, with what it asked for and complained about."""
    width, height = SIZES[request.param]
    page = browser.new_page(viewport={"width": width, "height": height})
    asked, complaints = [], []
    page.on("request", lambda r: asked.append(r.url))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    page.goto(report[0].as_uri())
    yield page, asked, complaints
    page.close()


def test_verdicts_are_visible(shown, report):
    page, _, _ = shown
    for entry in report[1]["verdicts"]:
        assert page.get_by_text(entry["sentence"], exact=True).is_visible()
    assert page.get_by_text("SYNTHETIC").first.is_visible()


def test_images_are_whole(shown):
    page, _, _ = shown
    images = page.eval_on_selector_all(
        "img, svg",
        "all => all.map(i => ({whole: i.complete && i.naturalWidth > 0,"
        " width: i.getBoundingClientRect().width, height: i.getBoundingClientRect().height}))",
    )
    # With what explains: the published chain, diagnosis, waterfall, break-even and memory.
    assert len(images) == 7
    for image in images:
        assert image["whole"]
        assert image["width"] > 200
        assert image["height"] > 200


def test_the_body_never_scrolls_sideways(shown):
    page, _, _ = shown
    widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    for unfold in (False, True):
        if unfold:
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        content, window = page.evaluate(widths)
        assert content <= window
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = false)")


def test_wide_tables_scroll_in_their_frames(shown):
    page, _, _ = shown
    outside = page.eval_on_selector_all(
        ".scroll",
        "frames => frames.filter(f => f.getBoundingClientRect().right > innerWidth).length",
    )
    assert outside == 0


def test_nothing_is_asked_of_the_network_and_nothing_complains(shown, report):
    _, asked, complaints = shown
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []
    assert [url for url in asked if url.startswith("file://")] == [report[0].as_uri()]
    assert complaints == []


def test_foreign_names_are_shown_as_text(shown):
    page, _, _ = shown
    assert page.locator("script").count() == 0
    assert page.locator("img[src=x]").count() == 0
    matrix = page.locator(".matrix").first
    assert matrix.get_by_text("<script>alert(1)</script>", exact=True).is_visible()
    assert matrix.get_by_text("新聞 🚀", exact=True).is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, report, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto(report[0].as_uri())
    faint = page.evaluate(
        """() => {
          const rgb = c => c.match(/[\\d.]+/g).map(Number);
          const light = c => { const [r, g, b] = rgb(c).map(v => { v /= 255;
            return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const ground = e => { for (; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor; if ((rgb(c)[3] ?? 1) > 0) return c; }
            return "rgb(255, 255, 255)"; };
          const faint = [];
          const texts = "p, a, li, th, td, h1, h2, h3, h4, dt, dd, pre, summary, span, figcaption";
          for (const e of document.querySelectorAll(texts)) {
            const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
            const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (contrast < 4.5) faint.push(`${e.tagName}.${e.className}: ${contrast.toFixed(1)}`);
          }
          return [...new Set(faint)];
        }"""
    )
    page.close()
    assert faint == []
