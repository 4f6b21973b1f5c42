"""Whether people can read the pages, as Chromium lays them out on a desk, a tablet and a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from playwright.async_api import Browser

from clawrl_gym.comparison.page import write_page
from clawrl_gym.comparison.tables import tables_of
from clawrl_gym.config import BenchConfig
from clawrl_gym.evaluation.comparison import compare_evaluations
from clawrl_gym.ui.report import write_report
from tests.comparison.test_bench_results import START, recipe
from tests.evaluation.test_evaluations import evaluation, solving
from tests.support.fake_run import make_run
from tests.support.fake_serving import make_serving
from tests.support.gui_page_rig import chromium

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

BROKEN_WORDS = """
() => {
  const lines = (node, from, to) => {
    const range = document.createRange();
    range.setStart(node, from);
    range.setEnd(node, to);
    return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
  };
  const broken = [];
  for (const cell of document.querySelectorAll("td, th")) {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode())
      for (const word of node.data.matchAll(/[^\\s]{1,20}(?!\\S)/g))
        if (/(^|\\s)$/.test(node.data.slice(0, word.index))
            && lines(node, word.index, word.index + word[0].length) > 1)
          broken.push(word[0]);
  }
  return broken;
}
"""
"""Words of up to 20 characters in cells that stand on more than one line."""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
LONG = "/a/" + "very-" * 40 + "long/path"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    run = make_run(folder / "run", steps=4, distilled=True)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["policy"]["model"] = LONG
    config["judge"] |= {f"words_{index}": ["one", "another"] * 60 for index in range(40)}
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    failed = replace(recipe("general"), failures={"general seed 0": f"exit code 1: {LONG}"})
    results = [recipe("personal_binary", 0.5, 0.75), recipe("personal_hybrid", 0.7, 1.0), failed]
    for one in results:
        for own in one.runs:
            own.heldout.update({f"env_{index} success": {0: 0.5, 16: 0.25} for index in range(5)})
    bench = folder / "bench.html"
    names = tuple(one.name for one in results)
    write_page(bench, BenchConfig(experiment=names), results, tables_of(results, 0.8), START)
    serving = make_serving(folder / "serving", "+-0?" * 9)
    first = evaluation(folder / ("first" * 8), solving(0, 1), [solving(0), solving(1)])
    second = evaluation(folder / "second", solving(1, 2), [solving(0), solving(1)])
    compared = compare_evaluations([first, second], folder / "compared").folder
    return {
        "report": write_report(run), "serving": write_report(serving), "bench": bench,
        "evaluation": first / "evaluation.html", "comparison": compared / "comparison.html",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["report", "serving", "bench", "evaluation", "comparison"])
@pytest.mark.parametrize("width", [1280, 768, 375])
async def test_no_word_of_a_table_is_broken_and_the_page_never_scrolls_sideways(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    page = await browser.new_page(viewport={"width": width, "height": 800})
    await page.goto(pages[name].as_uri())
    await page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
    assert await page.evaluate(BROKEN_WORDS) == []
    assert await page.evaluate(OVERFLOW) <= 0
    await page.close()


async def test_a_long_configuration_is_folded_and_no_taller_than_a_few_screens(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = await browser.new_page(viewport={"width": 375, "height": 800})
    await page.goto(pages["report"].as_uri())
    height = "() => document.getElementById('configuration').offsetHeight"
    assert await page.evaluate(height) < 300
    await page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
    assert await page.evaluate(height) < 20 * 800
    await page.close()
