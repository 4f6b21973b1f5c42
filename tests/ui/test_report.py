from __future__ import annotations

import asyncio
import html.parser
import itertools
import json
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ClawError
from clawrl_gym.core.types import Sample, Turn
from clawrl_gym.report import main
from clawrl_gym.serving.last_report import LastReport
from clawrl_gym.store import SessionRow, Store, UpdateRow
from clawrl_gym.store.schema import DATABASE_FILE
from clawrl_gym.ui import report
from clawrl_gym.ui.charts import write_curve_svg
from clawrl_gym.ui.report import write_report
from clawrl_gym.ui.run_data import RunData
from clawrl_gym.ui.svg import Series, line_chart, span_of, ticks
from clawrl_gym.ui.timeline import Span, busy_share, spans_of, timeline_svg
from clawrl_gym.ui.transcripts import advantages_of, choose, pieces
from clawrl_gym.ui.verdicts import JudgedTurn, buckets_of
from tests.support.fake_run import make_run
from tests.support.fake_serving import CORRECTION, make_serving

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(html.parser.HTMLParser):
    """Checks that tags nest, collects text, tags and whatever would load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [f"{k}={v}" for k, v in attrs if k in ("src", "href", "srcset", "action")]
        if tag not in VOID and not self.rawdata[self._at :].split(">", 1)[0].endswith("/"):
            self.open.append(tag)

    @property
    def _at(self) -> int:
        lines = self.rawdata.split("\n")
        line, column = self.getpos()
        return sum(len(text) + 1 for text in lines[: line - 1]) + column

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()} closes another tag"

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "terminal-tiny")


@pytest.fixture(scope="module")
def page(run: Path) -> Page:
    return Page(write_report(run).read_text())


def test_the_page_says_before_and_after_with_intervals_and_numbers_of_tasks(page: Page) -> None:
    for words in ("34 %", "95 %: 26 to 43 %, n = 120", "94 %", "after 40 updates", "+60 points"):
        assert words in page.words


def test_the_page_says_how_the_run_was_made(page: Page) -> None:
    command = "python -m clawrl_gym.train env=terminal policy=tiny seed=7"
    for words in (command, "Test CPU", "wall time 4:48", "first to last evaluation 4:00"):
        assert words in page.words
    assert "seed 7 0" in page.words, "what differs from the command alone"


def test_the_page_stands_alone(run: Path, page: Page) -> None:
    assert page.loads == []
    text = (run / "report.html").read_text()
    assert not re.search(r"url\(|@import|https?://", text)
    assert "link" not in page.tags


def test_the_page_draws_curves_lanes_and_families(run: Path, page: Page) -> None:
    assert page.tags.count("svg") >= 25
    for words in ("Log-prob gap", "Swap pause", "serve busy", "permissions", "env_error"):
        assert words in page.words
    text = (run / "report.html").read_text()
    assert text.count('class="swap"') >= 40


def test_the_page_shows_solved_and_failed_episodes_with_advantages(run: Path, page: Page) -> None:
    text = (run / "report.html").read_text()
    assert page.words.count("✓ solved") == 4
    assert page.words.count("✗ failed") == 4
    assert re.search(r'class="tok pos" style="--a:1.00" data-tip="id \d+ · log-prob -0\.050', text)
    assert re.search(r'class="tok neg" style="--a:0.66" data-tip="[^"]*advantage -0\.600"', text)
    assert "grep -c error app.log > count.txt" in "".join(page.text)


def test_text_of_the_policy_cannot_become_markup(run: Path, page: Page) -> None:
    text = "".join(page.text)
    assert "echo '<b>&amp; ünïcode ✓ 漢字</b>'" in text
    assert "<eror>" in text
    assert "eror" not in page.tags


def test_hostile_text_everywhere_stays_text(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    folder = make_run(tmp_path / "x", steps=2, store=False)
    rows = [{"step": 1, f"train/success/{evil}": 0.5, f"errors/{evil}": 1, "train/reward": 0.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    span = {"loop": "train", "name": evil, "start_s": 1.0, "end_s": 2.0, "error": evil}
    (folder / "timeline.jsonl").write_text(json.dumps(span) + "\n")
    (folder / "config.yaml").write_text(f"seed: '{evil}'\n")
    (folder / "run.json").write_text(json.dumps({"starts": [{"command": evil + "\ud800"}]}))
    page = Page(write_report(folder).read_text())
    assert page.tags.count("script") == 1


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=40, stop_at=12, store=False)
    page = Page(write_report(folder).read_text())
    assert "This run is not finished: 12 of 40 updates so far." in page.words
    assert "No transcripts" in page.words


def test_a_run_without_evaluations_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=3, heldout=False, store=False)
    page = Page(write_report(folder).read_text())
    assert "3 updates, finished. It has no held-out evaluation." in page.words


def test_a_run_with_only_a_configuration_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    page = Page(write_report(tmp_path).read_text())
    assert "No update and no evaluation has been logged yet." in page.words
    assert "No timeline" in page.words
    assert "run.json is missing" in page.words


def test_values_that_are_missing_or_null_are_left_out(tmp_path: Path) -> None:
    rows = [{"step": 1, "train/reward": None}, {"step": 2, "train/reward": 0.5}, {"x": 1}, [1]]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 3, "train')
    text = write_report(tmp_path).read_text()
    assert "2 updates so far" in Page(text).words
    points = text.count('<circle class="s-reward fill"')
    assert points == 2  # of update 2 alone, on wide pages and on narrow ones
    assert "training reward: 50 %" in text
    assert "update 1&" not in text


def test_without_a_tokenizer_ids_are_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=2)
    (folder / "serving" / "tokenizer.json").unlink()
    config = (folder / "config.yaml").read_text().replace("model: tiny", "model: /no/such/model")
    (folder / "config.yaml").write_text(config)
    page = Page(write_report(folder).read_text())
    assert "Tokens are shown as ids" in page.words


def test_files_that_are_broken_are_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=2)
    (folder / "serving" / "tokenizer.json").write_text("{")
    page = Page(write_report(folder).read_text())
    assert "cannot read" in page.words
    assert "✓ solved" in page.words
    data = bytearray((folder / "run.db").read_bytes())
    data[4096:] = b"x" * len(data[4096:])
    (folder / "run.db").write_bytes(data)
    page = Page(write_report(folder).read_text())
    assert "No transcripts: " in page.words
    assert "34 %" in page.words


@pytest.mark.parametrize("name", ["nothing-here", "empty"])
def test_a_folder_without_a_run_is_one_clear_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ClawError, match="expected"):
        write_report(tmp_path / name)
    assert main([str(tmp_path / name)]) == 1
    assert re.fullmatch(r"error: [^\n]+\n", capsys.readouterr().err)


def test_the_command_writes_the_page_and_says_where(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--curve", str(tmp_path / "curve.svg")]) == 0
    assert capsys.readouterr().out == f"{run}/report.html\n{tmp_path}/curve.svg\n"


def test_the_curve_is_a_picture_of_its_own(run: Path, tmp_path: Path) -> None:
    path = write_curve_svg(run, tmp_path / "new" / "curve.svg")
    root = ElementTree.fromstring(path.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = "".join(root.itertext())
    assert "Held-out success 34 % → 94 % in 40 updates" in text


def test_a_score_of_the_environment_has_charts_and_a_picture_of_its_own(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=2, store=False)
    rows = [
        {"step": 0, "heldout/success": 1.0, "heldout/n": 9, "heldout/personalization": 0.125},
        {"step": 1, "train/personalization": 0.5},
        {"step": 2, "heldout/success": 1.0, "heldout/n": 9, "heldout/personalization": 0.875},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "0.125 → 0.875" in write_report(folder).read_text()
    path = write_curve_svg(folder, tmp_path / "score.svg", "personalization")
    text = "".join(ElementTree.fromstring(path.read_text()).itertext())
    assert "Held-out personalization 0.12 → 0.88 in 2 updates" in text
    with pytest.raises(ClawError, match=r"got the score 'style'.*\['personalization'\]"):
        write_curve_svg(folder, tmp_path / "score.svg", "style")


def test_families_are_a_picture_with_a_control_behind_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, last in (("run", 0.75), ("shuffled", 0.5)):
        folder = make_run(tmp_path / name, steps=2, store=False)
        rows = [
            {"step": 0, "heldout/success": 0.5, "heldout/n": 9, "heldout/success/two": 0.25},
            {"step": 2, "heldout/success": 0.5, "heldout/n": 9, "heldout/success/two": last},
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = tmp_path / "shuffled/config.yaml"
    config.write_text(config.read_text() + "control: shuffled_rewards\n")
    path = tmp_path / "families.svg"
    arguments = [str(tmp_path / "run"), "--families", str(path), "--beside", str(config.parent)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.endswith(f"{path}\n")
    text = "".join(ElementTree.fromstring(path.read_text()).itertext())
    assert "Held-out success: two 25 % → 75 %" in text
    assert "control=shuffled_rewards" in text
    (tmp_path / "run/metrics.jsonl").write_text('{"step": 1, "train/reward": 0.5}\n')
    assert main(arguments) == 1
    assert "whose held-out tasks have families" in capsys.readouterr().err


def test_the_wall_time_of_a_resumed_run_leaves_out_the_pause(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=2, store=False)
    rows = [{"step": 1, "time_s": 130.0}, {"step": 2, "time_s": 9050.0}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    starts = [{"command": "a", "started_s": 100.0}, {"command": "b", "started_s": 9000.0}]
    (folder / "run.json").write_text(json.dumps({"starts": starts}))
    assert "wall time 1:20" in Page(write_report(folder).read_text()).words


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0.0, 1.0) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(0, 60, about=6) == [0, 10, 20, 30, 40, 50, 60]
    assert ticks(3.0, 3.0) == [3.0]
    for low, high in ((-0.05, 0.04), (1e-9, 3e-9), (0, 12345)):
        marks = ticks(low, high)
        assert 2 <= len(marks) <= 8
        assert low - 1e-12 <= marks[0] < marks[-1] <= high + 1e-12


def test_a_range_holds_its_values_and_is_never_empty() -> None:
    assert span_of([0.2, 0.9]) == (0.0, 1.0)
    assert span_of([0.0, 0.0]) == (0.0, 1.0)
    low, high = span_of([-0.03, 0.04])
    assert low <= -0.03 < 0.04 <= high


def test_a_chart_without_data_is_nothing() -> None:
    assert line_chart([Series("a", "train", [])]) == ""


def test_a_curve_without_points_is_left_out() -> None:
    chart = line_chart([Series("a", "train", []), Series("b", "serve", [(1.0, 2.0), (2.0, 3.0)])])
    assert "s-train" not in chart
    assert 'd="M"' not in chart


def test_rewards_of_zero_and_one_make_one_curve(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=2, store=False)
    rows = [{"step": s, "train/reward": 0.5, "train/success": 0.5} for s in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "training reward" not in Page(write_report(folder).read_text()).words


def test_a_chart_of_one_point_is_a_dot() -> None:
    assert "<circle" in line_chart([Series("a", "train", [(1.0, 0.5)])])


def test_busy_time_counts_overlaps_once_and_waiting_never() -> None:
    spans = [
        Span("train", "step", 0.0, 2.0), Span("train", "step", 1.0, 3.0),
        Span("train", "wait", 3.0, 10.0), Span("train", "step", 9.0, 20.0),
    ]  # fmt: skip
    assert busy_share(spans, 0.0, 10.0) == pytest.approx(0.4)
    assert busy_share([], 0.0, 10.0) == 0.0
    assert busy_share(spans, 5.0, 5.0) == 0.0


def test_spans_are_counted_from_the_first_and_broken_lines_left_out() -> None:
    rows: list[dict[str, object]] = [
        {"loop": "train", "name": "b", "start_s": 105.0, "end_s": 106.0},
        {"loop": "serve", "name": "a", "start_s": 100.0, "end_s": 101.0},
        {"loop": "serve", "name": "x", "start_s": 7.0, "end_s": 1.0},
        {"loop": "serve", "name": "x", "start_s": "no"},
    ]
    assert [(s.name, s.start_s) for s in spans_of(rows)] == [("a", 0.0), ("b", 5.0)]


def test_many_spans_make_a_small_timeline() -> None:
    many = [Span("collect", "episode", i * 0.01, i * 0.01 + 3) for i in range(20_000)]
    assert len(timeline_svg(many, start_s=0, end_s=200, width=1040, label="x")) < 40_000


def session(name: str, group: int | None, reward: float | None, split: str = "train") -> SessionRow:
    return SessionRow(name, "t", group, split, "rollout", 0.0, reward=reward)  # type: ignore[arg-type]


def test_each_batch_shows_a_pair_it_learned_from_and_held_out_comes_last() -> None:
    rows = [
        replace(session(f"{group}-{kind}", group, reward), task_id=str(group))
        for group in range(9)
        for kind, reward in (("solved", 1.0), ("failed", 0.0), ("infra", None))
    ]
    rows += [session("held", -1, 1.0, "heldout"), session("all-solved", 50, 1.0)]
    first = {"0-infra", "0-solved", "1-solved", "1-failed", "all-solved"}
    last = {"1-solved", "1-failed", "8-solved", "8-failed"}
    choices = choose(rows, [(1, first), (5, {"3-solved"}), (9, last)])
    assert [(one.update, [row.id for row in one.sessions]) for one in choices] == [
        (1, ["1-solved", "1-failed"]), (9, ["8-solved", "8-failed"]), (None, ["held"]),
    ]  # fmt: skip


def test_without_a_mixed_group_single_episodes_are_shown() -> None:
    choices = choose([session("a", 0, 1.0), session("b", 1, 0.0)], [(1, {"a", "b"})])
    assert [[one.id for one in choice.sessions] for choice in choices] == [["a"], ["b"]]
    assert choose([], []) == []


def turn_of(prompt: list[int], sampled: list[int]) -> Turn:
    return Turn(
        "s", 0, "main", prompt, sampled, [-0.1] * len(sampled), [0] * len(sampled), "stop", [],
        {}, 0.0,
    )  # fmt: skip


def test_advantages_are_those_of_the_sample_that_holds_the_turn() -> None:
    foreign = Sample("s", 0, [9, 9], [False, True], [0, -1], [-1, 0], [0, 5.0], 1.0)
    merged = Sample(
        "s", 0, [1, 2, 3, 4, 5], [False, True, False, True, False], [0.0] * 5,
        [-1, 0, -1, 0, -1], [0.0, 1.0, 0.0, 2.0, 0.0], 1.0,
    )  # fmt: skip
    assert advantages_of(turn_of([1], [2]), [foreign, merged]) == [1.0]
    assert advantages_of(turn_of([1, 2, 3], [4, 5]), [foreign, merged]) == [2.0, None]
    assert advantages_of(turn_of([1, 7], [4]), [foreign, merged]) == [None]


def test_a_character_of_several_ids_is_shown_by_the_last() -> None:
    class Bytes:
        def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
            return bytes(ids).decode(errors="replace")

    assert pieces(Bytes(), list("a漢b".encode())) == ["a", "", "", "漢", "b"]
    assert pieces(Bytes(), [0xFF, 0xFF, 0xFF, 0xFF]) == ["", "", "", "����"]


def test_a_key_of_the_users_is_not_in_the_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    config = folder / "config.yaml"
    config.write_text(config.read_text() + "gateway:\n  host: 0.0.0.0\n  key: sesame-open\n")
    page = write_report(folder).read_text()
    assert "sesame-open" not in page
    assert "key: hidden" in page


BAD_THEN_GOOD = "--0-?---" * 3 + "+++0+++?" * 3


@pytest.fixture(scope="module")
def serving_html(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = make_serving(tmp_path_factory.mktemp("runs") / "serve", BAD_THEN_GOOD)
    return write_report(folder).read_text()


@pytest.fixture(scope="module")
def serving(serving_html: str) -> Page:
    return Page(serving_html)


def test_a_serving_run_opens_with_whether_it_learns(serving: Page) -> None:
    words = serving.words
    assert "12 updates from 48 judged turns. The newest turns are judged better" in words
    assert "judged good, first 19 5 % 95 %: 1 to 25 %, 1 of 19" in words
    assert "newest 19 89 % 95 %: 69 to 97 %, 17 of 19" in words
    assert "+84 points" in words
    assert words.index("Is it getting better?") < words.index("The loops") < words.index("The run")


def test_a_persons_correction_stands_among_the_hints_and_its_verdict_counts(serving: Page) -> None:
    assert f"-1 a person {CORRECTION}" in serving.words
    assert "people, by feedback 4 0 0 4 0 0 %" in serving.words
    assert "all 48 18 5 20 5 47 %" in serving.words
    assert "2 of the judge were overruled" in serving.words


def test_a_serving_run_has_the_lanes_it_records_and_no_empty_ones(serving_html: str) -> None:
    assert set(re.findall(r'class="lane s-(\w+) ', serving_html)) == {"serve", "train"}
    assert "Nothing was recorded" not in serving_html


@pytest.mark.parametrize(
    ("values", "verdict", "body"),
    [
        ("", "0 updates. From 10 clear verdicts", "No turn has been judged yet."),
        ("++-?", "1 update from 4 judged turns. From 10", "the judge, by rules 4 2 0 1 1 67 %"),
        ("+-" * 8, "the difference may be chance", "+0 points"),
        ("+" * 11 + "-" * 11, "judged worse than the first, beyond chance", "-100 points"),
    ],
)
def test_few_verdicts_no_change_and_a_change_for_the_worse_are_said(
    tmp_path: Path, values: str, verdict: str, body: str
) -> None:
    words = Page(write_report(make_serving(tmp_path / "serve", values)).read_text()).words
    assert verdict in words
    assert body in words


def test_versions_of_users_own_weights_are_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path, steps=2)

    async def learn() -> None:
        store = Store.open(folder)
        for user, version in (("anna", 6), ("ben", 2), ("anna", 7)):
            row = UpdateRow(version, tokens=1, duration_s=0.1)
            await store.add_user_update(user, row, f"users/{user}/checkpoints/{version:06d}")
        await store.close()

    asyncio.run(learn())
    assert "users' own weights anna@7, ben@2" in Page(write_report(folder).read_text()).words


def test_a_serving_run_that_records_nothing_says_so(tmp_path: Path) -> None:
    folder = make_serving(tmp_path / "serve", "")
    (folder / "run.db").unlink()
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("record: true", "record: false"))
    words = Page(write_report(folder).read_text()).words
    assert "Conversations are not recorded ( live.record=false )" in words
    assert "From 10" not in words


def test_verdicts_of_neighbouring_versions_are_put_together_until_they_say_something() -> None:
    turns = [JudgedTurn(version, "rule", 1, False) for version in range(7)]
    turns += [JudgedTurn(7, "rule", None, False)] * 9
    spans = [(b.first_version, b.last_version, len(b.turns)) for b in buckets_of(turns)]
    assert spans == [(0, 7, 16)]
    many = [JudgedTurn(version, "rule", 1, False) for version in range(1000) for _ in range(3)]
    buckets = buckets_of(many)
    assert 15 <= len(buckets) <= 20
    assert sum(len(bucket.turns) for bucket in buckets) == 3000
    for before, after in itertools.pairwise(buckets):
        assert before.last_version < after.first_version


def test_serving_leaves_a_report_and_one_that_cannot_be_written_is_a_message(
    tmp_path: Path,
) -> None:
    messages: list[str] = []
    folder = make_serving(tmp_path / "serve", "+-")
    LastReport(folder, messages.append).write()
    assert (folder / "report.html").exists()
    LastReport(tmp_path / "nothing", messages.append).write()
    assert messages[0] == f"report: {folder}/report.html"
    assert messages[1].startswith("no report: there is no folder")


def test_a_report_is_gone_with_a_deleted_session(tmp_path: Path) -> None:
    messages: list[str] = []
    folder = make_serving(tmp_path / "serve", "+-")
    last_report = LastReport(folder, messages.append)
    last_report.session_deleted("talk-0")  # there is none yet
    last_report.write()
    last_report.session_deleted("talk-1")
    assert not (folder / "report.html").exists()


def test_a_report_of_a_session_that_is_deleted_elsewhere_meanwhile_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_serving(tmp_path / "serve", "+-")
    render = report.render_page

    def slow(run: RunData) -> str:
        page = render(run)
        with sqlite3.connect(folder / DATABASE_FILE) as db:
            db.execute("UPDATE sessions SET id = 'other' WHERE id = 'talk-0'")
        db.close()
        return page

    monkeypatch.setattr(report, "render_page", slow)
    with pytest.raises(ClawError, match="was deleted while the report was written"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_a_report_during_which_a_session_is_deleted_is_not_kept(tmp_path: Path) -> None:
    messages: list[str] = []
    folder = make_serving(tmp_path / "serve", "+-")

    def write(path: Path) -> Path:
        last_report.session_deleted("talk-0")
        return write_report(path)

    last_report = LastReport(folder, messages.append, write)
    last_report.write()
    assert not (folder / "report.html").exists()
    assert messages == ["no report: a session was deleted while it was written"]
