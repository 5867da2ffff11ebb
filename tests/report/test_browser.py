"""report.html in a real browser, from disk and offline: it loads, switches, and can be read by all.

Needs chromium (`apt-get install chromium`); RLTOK_BROWSER=required makes its absence a failure.
"""

import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from rltok_core.report.collect import collect
from rltok_core.report.edition import Edition
from rltok_core.report.page import report_html
from rltok_core.report.writing import write_product

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None and os.environ.get("RLTOK_BROWSER") != "required",
        reason="no chromium: apt-get install chromium",
    ),
]
NASTY = "</script><b>&amp;"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    assert CHROMIUM, "RLTOK_BROWSER=required, and there is no chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def page_file(shared_lab) -> Path:
    lab = shared_lab
    methods = ["uniform", "bpe", "score_function", "hnet", "stride"]
    for run in lab.plan(
        [lab.block("planted", methods), lab.block("prose", methods)], title=f"A {NASTY} title"
    )[:-1]:
        lab.finish(run)
    lab.fail(lab.runs[-1], NASTY)
    edition, out = Edition(collect(lab.file)), lab.home / "out"
    written = [
        write_product(name, edition, out) for name in ("main_table", "position", "aspect_ratio")
    ]
    (out / "report.html").write_text(report_html(edition, written, out), encoding="utf-8")
    return out / "report.html"


class Reader:
    """A page that was opened, and what the browser complained about or asked the net for."""

    def __init__(self, browser, path: Path, scheme: str = "light", width: int = 1280):
        self.context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True
        )
        self.page = self.context.new_page()
        self.complaints, self.asked = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self.page

    def __exit__(self, kind, *rest):
        self.context.close()
        if kind is None:
            assert self.complaints == []
            assert [url for url in self.asked[1:] if not url.startswith("data:")] == []


def test_it_loads_and_the_explorer_switches(browser, page_file):
    with Reader(browser, page_file) as page:
        assert page.locator("h1").inner_text() == f"A {NASTY} title"
        names = page.locator(".strip h3")
        assert names.count() == 4  # stride is there to be ticked
        first = page.locator(".strip .bytes").first
        planted = first.inner_text()
        page.select_option("#explorer-text", label="prose, test document 1")
        prose = first.inner_text()
        assert prose != planted and prose.startswith("It\u2423was\u2423a\u2423dark")
        assert [name.split()[0] for name in names.all_inner_texts()] == [
            "uniform", "bpe", "score_function", "hnet",
        ]  # fmt: skip
        page.get_by_role("checkbox", name="uniform").uncheck()
        page.get_by_role("checkbox", name="bpe").uncheck()
        assert names.count() == 2
        # the choice goes along to another text
        page.select_option("#explorer-text", label="planted, test document 3")
        assert [name.split()[0] for name in names.all_inner_texts()] == ["score_function", "hnet"]
        page.get_by_role("checkbox", name="stride").check()
        assert names.count() == 3


def test_the_explorer_by_keyboard(browser, page_file):
    with Reader(browser, page_file) as page:
        page.locator(".strip .bytes").first.focus()
        readout = page.locator(".readout")
        page.keyboard.press("ArrowRight")
        assert "uniform, byte 1 " in readout.inner_text()
        page.keyboard.press("End")
        size = page.locator(".strip").first.locator("i").count()
        assert f"byte {size} " in readout.inner_text()
        page.keyboard.press("ArrowLeft")
        words = readout.inner_text()
        assert f"byte {size - 1} " in words
        assert re.search(r"boundary probability [01]\.\d\d", words)
        assert re.search(r"a token of \d+ bytes?$", words)
        assert page.locator("i.at").count() == 1
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "bytes"


def test_a_number_leads_to_its_runs_manifest(browser, page_file):
    with Reader(browser, page_file) as page:
        row = page.locator("#main_table tbody tr").first
        row.locator("td a").first.click()
        runs = page.locator("details[open]")
        assert runs.count() == 1
        assert "planted, tiny: uniform (1 of 1 runs)" in runs.locator("summary").inner_text()
        target = runs.get_by_role("link", name="manifest.json").evaluate("link => link.href")
        assert Path(unquote(urlparse(target).path)).is_file()
        # every digit of ours in the tables is such a link
        cells = page.locator("#main_table tbody td").all()
        bare = [c.inner_text() for c in cells if not c.locator("a").count()]
        assert not [text for text in bare if re.search(r"\d", text) and text != "0 of 1"]


CONTRAST = """(selector) => {
  const part = (color) => color.match(/[\\d.]+/g).map(Number);
  const srgb = (color) => color.startsWith("color(") ? part(color).slice(0, 3).map((c) => 255 * c)
    : part(color).slice(0, 3);
  const light = (color) => srgb(color).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const solid = (e) => { for (; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if (!/^rgba\\(.*, 0\\)$/.test(color)) return color; } return "rgb(255, 255, 255)"; };
  return Math.min(...[...document.querySelectorAll(selector)].map((e) => {
    const [a, b] = [light(getComputedStyle(e).color), light(solid(e))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05); }));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_light_and_dark(browser, page_file, scheme):
    with Reader(browser, page_file, scheme) as page:
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}[scheme]
        # WCAG AA; the fills go from probability 0 to 1
        for selector in ("p", "a", "td", "th", ".quiet", "figcaption", "label", "summary", "li",
                         ".scale i", ".bytes i"):  # fmt: skip
            assert page.evaluate(CONTRAST, selector) >= 4.5, selector


def test_it_can_be_read_without_eyes_or_mouse(browser, page_file):
    with Reader(browser, page_file) as page:
        assert page.evaluate("document.documentElement.lang") == "en"
        alts = page.locator("img").evaluate_all("all => all.map((image) => image.alt)")
        assert len(alts) == 1 and "position" in alts[0]
        unnamed = "all => all.filter((e) => !e.labels || !e.labels.length).length"
        assert page.locator("input, select").evaluate_all(unnamed) == 0
        assert page.locator(".lengths:not([aria-label])").count() == 0
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
        levels = page.locator("h1, h2, h3").evaluate_all("all => all.map((e) => +e.tagName[1])")
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))


def test_a_narrow_screen_scrolls_tables_not_the_page(browser, page_file):
    with Reader(browser, page_file, width=390) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wide = page.locator("#main_table .wide").first
        assert wide.evaluate("e => e.scrollWidth > e.clientWidth && e.tabIndex === 0")


def test_gaps_are_named_and_escaped(browser, page_file):
    with Reader(browser, page_file) as page:
        assert f"failed: {NASTY} at step 7" in page.locator(".gaps").inner_text()
        assert "Aspect ratio: no finished rows" in page.locator("#rest + ul").inner_text()
