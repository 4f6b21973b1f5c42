"""`evaluate` of a server elsewhere: what is kept, gone on with, refused and shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import clawrl_gym as cg
from clawrl_gym.core.files.folder_lock import lock_folder
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.evaluation.figures import read_result
from clawrl_gym.evaluation.record import EPISODES_FILE, LOCK_FILE, each_attempt
from clawrl_gym.run.evaluate import EvaluationRun
from tests.support.endpoint_rig import Endpoint, listening

SMALL = ("env.target=tests.support.guess_env:GuessEnv", "env.max_turns=3", "eval.tasks=6")


def echo(body: dict[str, Any]) -> str:
    """Solves every task but those that ask for a 4 or a 5."""
    number = re.findall(r"\d", body["messages"][-1]["content"])[0]
    return "wrong" if number in "45" else number


async def measure(endpoint: Endpoint, folder: Path, *overrides: str) -> EvaluationRun:
    return await cg.run_evaluation_async(
        [
            *SMALL,
            f"endpoint.base_url={endpoint.url}",
            "endpoint.model=scripted",
            "endpoint.patience_s=0",
            "rollout.max_retries=1",
            "rollout.envs_per_worker=2",
            f"run.dir={folder}",
            *overrides,
        ]
    )


async def test_every_episode_is_on_the_disk_with_what_was_said_and_what_it_cost(
    tmp_path: Path,
) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        run = await measure(endpoint, tmp_path / "one")
    rows = read_json_lines(tmp_path / "one" / EPISODES_FILE)
    assert len(rows) == 6
    assert run.result.cost.prompt_tokens == 6 * 11
    assert run.result.cost.completion_tokens == 6 * 3
    result = read_result(tmp_path / "one")
    assert (result.success.value, result.is_complete, result.waiting) == (run.success, True, 0)
    attempt = next(each_attempt(tmp_path / "one"))
    assert attempt.episode.transcript is not None
    assert attempt.episode.transcript.observations[-1] == "Thanks."
    written = json.loads((tmp_path / "one" / "evaluation.json").read_text())
    assert written["success"]["n"] == 6
    assert written["cost"]["answers"] == 6
    assert "transcript" not in written["episodes"][0]
    assert "66 prompt and 18 completion tokens in 6 replies" in run.summary()


async def test_a_server_that_stops_answering_ends_it_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    async with listening(Endpoint(says=echo, answers_left=7)) as endpoint:
        more = ("eval.tasks=20",)
        with pytest.raises(cg.PolicyError, match=r"7 of 20 episodes are graded, the same command"):
            await measure(endpoint, tmp_path / "one", *more)
        half = read_result(tmp_path / "one")
        assert (len(half.measured), half.is_complete) == (7, False)
        endpoint.answers_left = None
        endpoint.bodies.clear()
        run = await measure(endpoint, tmp_path / "one", *more)
        assert len(endpoint.bodies) == 13
    assert (run.evaluation.n, run.evaluation.lost) == (20, ())
    whole = [echo({"messages": body["messages"]}) for body in endpoint.bodies]
    assert len(whole) == 13


async def test_a_finished_one_asks_nothing_and_one_of_more_tasks_asks_for_those(
    tmp_path: Path,
) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        first = await measure(endpoint, tmp_path / "one")
        again = await measure(endpoint, tmp_path / "one")
        assert len(endpoint.bodies) == 6
        assert again.evaluation.episodes == first.evaluation.episodes
        more = await measure(endpoint, tmp_path / "one", "eval.tasks=8", "eval.k=[1,2]")
        assert len(endpoint.bodies) == 8 + 2 * 8
    assert (more.evaluation.n, more.result.samples) == (8, 2)
    assert set(more.result.passes()) == {1, 2}
    assert "pass@2" in more.summary()


async def test_half_a_line_of_a_killed_process_is_asked_again(tmp_path: Path) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        await measure(endpoint, tmp_path / "one")
        path = tmp_path / "one" / EPISODES_FILE
        path.write_bytes(path.read_bytes()[:-100])
        endpoint.bodies.clear()
        run = await measure(endpoint, tmp_path / "one")
        assert len(endpoint.bodies) == 1
    assert run.evaluation.n == 6


async def test_a_changed_configuration_is_refused_with_what_differs(tmp_path: Path) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        await measure(endpoint, tmp_path / "one")
        changed = ("env.max_turns=5", "eval.temperature=0.5", "rollout.envs_per_worker=1")
        with pytest.raises(
            cg.ConfigError,
            match=r"env.max_turns was 3, is 5; eval.temperature was 0.0, is 0.5\. Choose another",
        ):
            await measure(endpoint, tmp_path / "one", *changed)


async def test_a_server_that_moved_is_the_same_one(tmp_path: Path) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        await measure(endpoint, tmp_path / "one")
    async with listening(Endpoint(says=echo)) as other:
        await measure(other, tmp_path / "one", "eval.tasks=7")
        assert len(other.bodies) == 1


async def test_without_a_folder_the_same_command_finds_what_it_began(tmp_path: Path) -> None:
    # more tasks than the silence takes: the second answer may come after a first failure
    root = ("run.dir=null", f"run.root={tmp_path / 'runs'}", "eval.tasks=10")
    async with listening(Endpoint(says=echo, answers_left=2)) as endpoint:
        with pytest.raises(cg.PolicyError):
            await measure(endpoint, tmp_path, *root)
        endpoint.answers_left = None
        run = await measure(endpoint, tmp_path, *root)
        assert [run.folder] == list((tmp_path / "runs").iterdir())
        assert run.evaluation.n == 10


async def test_lost_tasks_are_in_no_share_and_are_tried_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        endpoint.refusals = [500]
        run = await measure(endpoint, tmp_path / "one", "rollout.max_retries=0")
        assert (run.evaluation.n, len(run.evaluation.lost)) == (5, 1)
        assert len(run.result.lost) == 1
        assert run.result.success.high > run.result.success.value
        assert f"run.dir={tmp_path / 'one'} runs the lost ones again" in run.summary()
        run = await measure(endpoint, tmp_path / "one")
        assert (run.evaluation.n, run.evaluation.lost, len(endpoint.bodies)) == (6, (), 7)


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        (["endpoint.key=wrong"], cg.ConfigError, r"endpoint.key, which .*/models refuses \(401\)"),
        (["endpoint.model=wrong"], cg.PolicyError, r"answered 404 .*`wrong` does not exist"),
        (["eval.k=0"], cg.ConfigError, r"expected each k to be at least 1"),
        (["eval.tasks=0"], cg.ConfigError, r"no heldout task to measure"),
    ],
)
async def test_what_cannot_be_measured_is_told(
    tmp_path: Path, overrides: list[str], error: type[Exception], words: str
) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        with pytest.raises(error, match=words):
            await measure(endpoint, tmp_path / "one", *overrides)


async def test_a_server_that_does_not_count_leaves_the_cost_unknown(tmp_path: Path) -> None:
    async with listening(Endpoint(says=echo, usage=None, models=None)) as endpoint:
        run = await measure(endpoint, tmp_path / "one")
    assert run.result.cost.uncounted == 6
    assert "tokens unknown in 6 replies" in run.summary()


async def test_two_processes_do_not_write_in_one_folder(tmp_path: Path) -> None:
    lock_folder(tmp_path / "one", LOCK_FILE)
    async with listening(Endpoint(says=echo)) as endpoint:
        with pytest.raises(cg.ConfigError, match=r"still going \(process \d+\)"):
            await measure(endpoint, tmp_path / "one")


async def test_the_folder_of_a_run_is_not_evaluated_into(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    async with listening(Endpoint(says=echo)) as endpoint:
        with pytest.raises(cg.ConfigError, match=r"holds something else \(config.yaml"):
            await measure(endpoint, tmp_path)


async def test_pages_show_every_task_and_what_was_said(tmp_path: Path) -> None:
    async with listening(Endpoint(says=echo)) as endpoint:
        run = await measure(endpoint, tmp_path / "one", "eval.k=[1,4]")
    page = (tmp_path / "one" / "evaluation.html").read_text()
    links = re.findall(r'href="(transcripts/[^"]+)"', page)
    assert len(set(links)) == 6
    for link in links:
        assert "Say " in (tmp_path / "one" / link).read_text()
    assert "pass@4" in page
    assert "By family" in page
    assert run.result.name in page
