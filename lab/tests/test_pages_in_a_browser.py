"""Pages as a reader sees them: labels apart, the watermark clear of titles, tables that scroll."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import NoisyDriver
from hemi_harness.browser import Browser, browser, executable
from hemi_lab.advice import page as advice_page
from hemi_lab.report import build
from hemi_lab.results.store import HEADER, Reader
from test_advice import given, system
from test_report import SHAPES
from test_runner import HEAD, MATRIX, carry_out

pytestmark = pytest.mark.skipif(executable() is None, reason="needs Chromium (make setup-bench)")

WIDTHS = (1180, 390)

OVERLAPS = """
(() => {
  const found = [];
  for (const chart of document.querySelectorAll('.chart')) {
    const name = chart.parentElement.querySelector('h3').textContent;
    const texts = '.xtick text, .ytick text, .annotation-text, .xtitle, .ytitle';
    const boxes = [...chart.querySelectorAll(texts)]
      .filter((one) => one.textContent.trim() && one.getBoundingClientRect().width)
      .map((one) => ({ text: one.textContent, box: one.getBoundingClientRect() }));
    boxes.forEach((a, n) => boxes.slice(n + 1).forEach((b) => {
      const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (across > 1 && down > 2) found.push(`${name}: ${a.text} over ${b.text}`);
    }));
  }
  return found;
})()
"""

# Names of a frontier over a mark or over each other, and those that are shown.
NAMES = """
(() => {
  const boxes = (what) => [...document.querySelectorAll(what)]
    .map((one) => one.getBoundingClientRect());
  const names = boxes('.annotation-text').filter((box) => box.width);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0;
  const others = (n) => [...boxes('.point'), ...names.slice(n + 1)];
  const left = document.querySelector('.chart').getBoundingClientRect().left;
  return {
    shown: names.length,
    over: names.filter((box, n) => others(n).some((other) => over(box, other))).length,
    outside: names.filter((box) => box.left < left).length,
  };
})()
"""

WATERMARKS = """
[...document.querySelectorAll('.chart')].map((chart) => {
  const image = chart.querySelector('.layer-below image, .imagelayer image');
  const mark = image?.getBoundingClientRect();
  const titles = [...chart.querySelectorAll('.xtitle, .ytitle, .xtick text, .ytick text')];
  const over = mark && titles.filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width && Math.min(box.right, mark.right) - Math.max(box.left, mark.left) > 1
      && Math.min(box.bottom, mark.bottom) - Math.max(box.top, mark.top) > 1;
  }).map((one) => one.textContent);
  const words = [...chart.querySelectorAll('.annotation-text')];
  const word = words.some((one) => one.textContent === 'simulated');
  return { marked: Boolean(mark) || word, over: over || [] };
})
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a report of a run that says it is simulated, of tests with all kinds of charts."""
    folder = tmp_path_factory.mktemp("pages")
    rates = {"1T/1Q": 150.0, "4T/8Q": 90_000.0}
    readers = []
    for plan in (HEAD + SHAPES, MATRIX):
        driver = NoisyDriver(lambda step, number: rates.get(step.label, 3000.0))
        ended = carry_out(plan, driver, folder)
        result = ended.result.model_copy(update={"simulated": True})
        (ended.folder / HEADER).write_text(result.model_dump_json())
        readers.append(Reader(ended.folder))
    path = folder / "report.html"
    build.write(readers, path)
    return path


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def shown(tab: Browser, page: Path, width: int, dark: bool = False) -> None:
    tab.look(width, 900, dark)
    tab.open(page.as_uri())
    tab.until("document.documentElement.classList.contains('drawn')")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_label_is_over_another(tab: Browser, report: Path, width: int) -> None:
    shown(tab, report, width)
    assert tab.evaluate("document.querySelectorAll('.chart svg').length") > 0
    assert tab.evaluate(OVERLAPS) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_every_label_of_a_latency_has_its_unit(tab: Browser, report: Path, width: int) -> None:
    shown(tab, report, width)
    labels: list[str] = tab.evaluate(
        "[...document.querySelectorAll('.chart')].flatMap((chart) => "
        "Object.keys(chart._fullLayout).filter((key) => /^[xy]axis/.test(key) && "
        "chart._fullLayout[key].ticksuffix === 's').flatMap((key) => "
        "chart._fullLayout[key].ticktext ?? ['none']))"
    )
    assert len(labels) > 20
    assert all(label.endswith((" s", " ms", " µs", " ns")) for label in labels), labels


@pytest.mark.parametrize("width", WIDTHS)
def test_the_watermark_is_on_every_chart_and_over_no_title(
    tab: Browser, report: Path, width: int
) -> None:
    shown(tab, report, width)
    found: list[dict[str, Any]] = tab.evaluate(WATERMARKS)
    assert all(chart["marked"] for chart in found)
    assert [chart["over"] for chart in found if chart["over"]] == []


def test_the_page_asks_for_nothing_and_complains_of_nothing(tab: Browser, report: Path) -> None:
    tab.requests.clear()
    tab.complaints.clear()
    shown(tab, report, WIDTHS[0], dark=True)
    assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
    assert tab.complaints == []


def test_only_tables_scroll_sideways_and_say_so(tab: Browser, report: Path) -> None:
    shown(tab, report, WIDTHS[1])
    assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS[1]
    wide = "document.querySelectorAll('.scroll.wide')"
    assert tab.evaluate(f"{wide}.length") > 0
    said = tab.evaluate(f"getComputedStyle({wide}[0], '::before').content")
    assert "sideways" in said
    assert tab.evaluate(f"[...{wide}].every((one) => one.tabIndex === 0)")


def test_a_part_of_a_logarithmic_axis_has_labels_of_its_own(tab: Browser, report: Path) -> None:
    shown(tab, report, WIDTHS[0])
    labels = tab.evaluate(
        """(async () => {
          const charts = [...document.querySelectorAll('.chart')];
          const chart = charts.find((one) => one._fullLayout.yaxis2?.type === 'log');
          await Plotly.relayout(chart, { 'yaxis2.range': [-3, -2.7] });
          return chart._fullLayout.yaxis2.ticktext;
        })()"""
    )
    assert "1 ms" in labels
    assert len(labels) >= 3


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_a_frontier_cover_no_mark(tab: Browser, width: int, tmp_path: Path) -> None:
    # Neighbours a few percent apart, names longer than the room left of them, and marks all around.
    front = [
        system(n, f"a pair of {n} drives with a long name", 100 * 1.08**n, 0.02 / 1.05**n)
        for n in range(6)
    ]
    others = [
        system(10 + n, "other", 100 * 1.05**n, 0.021 + 0.001 * (n % 5), frontier=False)
        for n in range(40)
    ]
    path = tmp_path / "advice.html"
    advice_page.write([given(tmp_path, *front, *others, p999=None)], path)
    shown(tab, path, width)
    assert tab.evaluate(NAMES) == {"shown": 6, "over": 0, "outside": 0}
