"""Generated tool-call tasks: ids, splits, oracles, and what a small policy can read of them."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence

import pytest

from clawrl_gym.agents.tool_calls import decode
from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.showcase.toolcall.families import FAMILIES
from clawrl_gym.envs.showcase.toolcall.families.family import replies
from clawrl_gym.envs.showcase.toolcall.generated import (
    PREFIX,
    generated_tasks,
    make_task,
    split_of,
    task_ids,
)
from clawrl_gym.envs.toolcall.env import ToolCallEnv

EACH = 20
"""Tasks looked at of each family."""
SANDBOXED = "range"
"""The family whose tool runs in a sandbox."""
OTHERS = tuple(name for name in FAMILIES if name != SANDBOXED)


def reward_of(env: ToolCallEnv, task_id: str, actions: Sequence[str] | None = None) -> float:
    """The reward of an episode in which these things are done; None: what the oracle does."""
    env.reset(options={"task": task_id})
    done = False
    for action in env.solve() if actions is None else actions:
        assert not done
        _, reward, done, _, _ = env.step(action)
    assert done
    return reward


@pytest.mark.parametrize("family", OTHERS)
def test_the_oracle_solves_what_saying_nothing_does_not(family: str) -> None:
    env = ToolCallEnv(families=[family])
    for split in ("train", "heldout"):
        for task_id in env.task_ids(split)[:EACH]:
            assert reward_of(env, task_id) == 1.0, (task_id, env.report)
            assert reward_of(env, task_id, ["Done."]) == 0.0
            assert env.report.startswith("Test report: failed")


@pytest.mark.sandbox
def test_the_oracle_solves_tasks_for_the_interpreter() -> None:
    env = ToolCallEnv(families=[SANDBOXED])
    for task_id in env.task_ids("heldout")[:3]:
        assert reward_of(env, task_id) == 1.0, env.report
        assert reward_of(env, task_id, ["\\boxed{}"]) == 0.0


def test_doing_another_tasks_solution_solves_nothing() -> None:
    env = ToolCallEnv(families=OTHERS)
    for family in OTHERS:
        first, second = task_ids("train", (family,))[:2]
        env.reset(options={"task": second})
        assert reward_of(env, first, env.solve()) == 0.0


def test_an_id_names_one_task_in_every_process() -> None:
    for task_id in task_ids("train")[: 2 * len(FAMILIES)]:
        task = make_task(task_id)
        assert task == make_task(task_id) == pickle.loads(pickle.dumps(task))
        assert (task.id, task.split) == (task_id, "train")
    assert make_task("call-copy-train-000001") != make_task("call-copy-train-000002")


def test_no_heldout_request_is_met_in_training() -> None:
    for family in FAMILIES:
        told = {
            split: {
                (task.instruction, task.solution)
                for task in map(make_task, task_ids(split, (family,))[:300])
            }
            for split in ("train", "heldout")
        }
        assert len(told["train"]) > 150
        assert not told["train"] & told["heldout"]


def test_a_draft_belongs_to_the_split_of_its_task() -> None:
    from clawrl_gym.envs.draw import Draw

    splits = [split_of(FAMILIES["move"].draft(Draw(f"split/{n}"))) for n in range(400)]
    assert 0.1 < splits.count("heldout") / len(splits) < 0.3


def test_tasks_are_short_enough_for_a_small_policy() -> None:
    for task in map(make_task, task_ids("train")[: EACH * len(FAMILIES)]):
        assert len(task.instruction) <= 200
        assert task.tools is not None
        assert 1 <= len(task.tools) <= 4
        assert len(task.solution) <= 5
        called = [call.id for reply in task.solution for call in reply.calls]
        assert len(called) == len(set(called))
        assert {call.name for reply in task.solution for call in reply.calls} <= set(task.tools)


def test_two_calls_of_one_reply_and_a_failing_call_are_among_the_oracles() -> None:
    both = make_task("call-both-train-000000").solution
    assert [len(reply.calls) for reply in both] == [2, 0]
    env = ToolCallEnv(families=["look"])
    env.reset(options={"task": "call-look-train-000000"})
    observation, reward, ended, truncated, _ = env.step(env.solve()[0])
    assert '\\"status\\": \\"error\\"' in observation
    assert (reward, ended, truncated) == (0.0, False, False)


@pytest.mark.parametrize(
    "task_id",
    [
        "", "copy-train-000001", "call-copy", "call-copy-train-1", "call-copy-test-000001",
        "call-nothing-train-000001", "call-copy-train-²00001", "call-copy-heldout-001000",
        "call-copy-train-0000001", "call-copy-train--00001", "shop-copy-train-000001",
    ],
)  # fmt: skip
def test_what_is_no_id_is_refused(task_id: str) -> None:
    with pytest.raises(TaskError, match=r"got task .*, expected"):
        make_task(task_id)


def test_families_are_chosen_by_name() -> None:
    ids = generated_tasks(("trail", "add")).ids("heldout")
    assert len(ids) == 2000
    assert list(ids[:2]) == [f"{PREFIX}add-heldout-000000", f"{PREFIX}trail-heldout-000000"]
    assert generated_tasks().load(ids[0]).family == "add"
    for wrong in (("adding",), ()):
        with pytest.raises(ConfigError, match="expected some of"):
            generated_tasks(wrong).ids("train")


def test_replies_are_written_as_data() -> None:
    said, called = replies("Hi.", [("one", {}), ("two", {"x": 1})])
    assert (said.content, said.calls) == ("Hi.", ())
    assert [(c.id, c.name, c.arguments) for c in called.calls] == [
        ("call-2-1", "one", "{}"),
        ("call-2-2", "two", '{"x": 1}'),
    ]


def test_the_solution_of_a_task_is_what_the_environment_solves_it_with() -> None:
    env = ToolCallEnv(families=OTHERS)
    for task_id in itertools.islice(env.task_ids("train"), 2 * len(OTHERS)):
        env.reset(options={"task": task_id})
        assert tuple(map(decode, env.solve())) == make_task(task_id).solution
    env.close()
