"""Composed tasks of the terminal: what they ask, what solves them, and what does not."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from functools import cache

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.terminal.composed.families import FAMILIES, PLAIN_FAMILIES, Composed
from clawrl_gym.envs.showcase.terminal.composed.generated import (
    HELDOUT_FAMILIES,
    compose,
    composed_tasks,
    make_task,
    plain_tasks,
)
from clawrl_gym.envs.showcase.terminal.composed.library import HELDOUT_SKILLS, SKILLS
from clawrl_gym.envs.showcase.terminal.composed.obstacles import OBSTACLES, gzipped
from clawrl_gym.envs.showcase.terminal.composed.plan import played
from clawrl_gym.envs.showcase.terminal.composed.wording import SIDE_EFFECTS
from clawrl_gym.envs.task_ids import GeneratedTasks, composition_split, split_of_content
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.task import Task
from tests.support.composed_agents import AGENTS, Left, in_order_of_the_text, solves

SAMPLE = 40
"""Tasks of each family and split."""
SPLITS: tuple[Split, ...] = ("train", "heldout")


@cache
def drawn() -> list[tuple[Task, Composed]]:
    """Pairs of task and what it was made of."""
    return drawn_of(composed_tasks())


@cache
def plain() -> list[tuple[Task, Composed]]:
    """The same of what is said plainly."""
    return drawn_of(plain_tasks())


def drawn_of(source: GeneratedTasks[Task]) -> list[tuple[Task, Composed]]:
    pairs = []
    for split in SPLITS:
        ids = source.ids(split)
        for task_id in ids[: SAMPLE * len(ids.families)]:
            task = make_task(task_id)
            number = int(task_id.rpartition("-")[2])
            pairs.append((task, compose(task.family, split, number)))
    return pairs


def test_there_are_many_skills_and_ways_to_ask_for_each():
    assert len(SKILLS) >= 16
    for skill in [*SKILLS.values(), *HELDOUT_SKILLS.values()]:
        train, heldout = skill.phrasings.train, skill.phrasings.heldout
        assert len({*train, *heldout}) == len(train) + len(heldout) >= 6, skill.name
        assert (len(train) >= 4) is (skill.name in SKILLS)


def test_all_skills_families_and_difficulties_come_up():
    skills: Counter[str] = Counter()
    difficulties: Counter[int] = Counter()
    for task, composed in drawn():
        skills.update(composed.skills)
        difficulties[task.difficulty] += 1
    assert set(skills) == {*SKILLS, *HELDOUT_SKILLS}
    assert set(difficulties) == set(range(1, 9))
    assert min(difficulties[i] for i in range(2, 9)) > 10


def test_difficulty_counts_skills_what_is_hidden_obstacles_and_decoys():
    for task, composed in drawn():
        plan = composed.plan
        weights = sum(part.weight for part in plan.parts)
        assert task.difficulty == weights + plan.hidden + plan.obstacles + plan.decoys
    by_family = {f: [c.plan for t, c in drawn() if t.family == f] for f in FAMILIES}
    assert all(plan.hidden for plan in by_family["discover"])
    assert all(plan.obstacles for plan in by_family["recover"])
    assert all(plan.decoys for plan in by_family["distract"])
    assert all(len(plan.parts) > 1 for plan in by_family["chain"])
    assert all(plan.difficulty == 1 for plan in by_family["single"])


def test_the_oracle_solves_every_task_and_doing_nothing_none():
    for task, composed in [*drawn(), *plain()]:
        assert solves(task, composed, composed.plan.actions), task.id
        assert not solves(task, composed, []), task.id


def test_a_wrong_but_near_solution_solves_none():
    for task, composed in [*drawn(), *plain()]:
        for actions in composed.plan.near():
            assert not solves(task, composed, actions), (task.id, [d.command for d in actions])


def test_what_a_later_part_needs_is_often_what_an_earlier_one_made():
    depending = 0
    chains = [composed for task, composed in drawn() if task.family == "chain"]
    for composed in chains:
        args = [part.args for part in composed.plan.parts]
        made = [each["b"] for each in args if "b" in each]
        depending += any(each.get(key) in made for each in args for key in "ac")
    assert depending > 0.8 * len(chains)


def test_knowing_every_skill_without_a_plan_is_not_enough():
    ranked = sorted(drawn(), key=lambda pair: pair[0].difficulty)
    hardest = ranked[-len(ranked) // 3 :]
    for agent in AGENTS:
        solved = sum(solves(task, composed, agent(composed)) for task, composed in hardest)
        assert solved < 0.4 * len(hardest)
    single = [pair for pair in ranked if pair[0].family == "single"]
    assert all(solves(task, composed, in_order_of_the_text(composed)) for task, composed in single)


def test_compositions_and_ways_to_ask_belong_to_one_split():
    seen: dict[Split, set[tuple[str, ...]]] = {split: set() for split in SPLITS}
    for task, composed in drawn():
        if task.family not in {"single", *HELDOUT_FAMILIES}:
            assert composition_split(composed.skills) == task.split
            seen[task.split].add(composed.skills)
    assert not seen["train"] & seen["heldout"]
    requests = [{t.instruction for t, _ in drawn() if t.split == split} for split in SPLITS]
    assert not requests[0] & requests[1]


def test_plain_tasks_are_so_many_skills_in_the_order_of_the_text():
    counts = {"one": 1, "two": 2, "three": 3}
    assert set(counts) == set(PLAIN_FAMILIES)
    for task, composed in plain():
        assert len(composed.skills) == counts[task.family]
        assert composed.order == tuple(range(counts[task.family]))
        assert (composed.plan.hidden, composed.plan.obstacles, composed.plan.decoys) == (0, 0, 0)
        assert solves(task, composed, in_order_of_the_text(composed))
        assert len(task.solution) == counts[task.family]


def test_plain_tasks_hold_out_compositions_and_share_the_wording_of_training():
    unseen = re.compile(r"Hey there|Cheers|obliged|As a first step|Following this|Work through")
    for task, composed in plain():
        alone = task.family == "one"
        split = split_of_content(task.instruction) if alone else composition_split(composed.skills)
        assert split == task.split
        assert not unseen.search(task.instruction)
    assert sum(bool(unseen.search(t.instruction)) for t, _ in drawn() if t.split == "heldout") > 30


def test_requests_differ_and_say_the_rules():
    requests = [task.instruction for task, _ in drawn()]
    assert len(set(requests)) == len(requests)
    assert all(request.endswith(SIDE_EFFECTS) for request in requests)
    assert not any(re.search(r"[{}|]|  |\bNone\b", r.replace("{jas", "")) for r in requests)
    openings = Counter(" ".join(request.split()[:3]) for request in requests)
    assert openings.most_common(1)[0][1] < 0.2 * len(requests)


def test_what_is_hidden_is_not_in_the_request():
    hidden = 0
    for task, composed in drawn():
        for part in composed.plan.parts:
            for key in part.guessed:
                if key in ("a", "b") and part.args[key] not in part.words[key]:
                    assert part.args[key] not in task.instruction, task.id
                    hidden += 1
    assert hidden > 40


def test_a_decoy_is_really_there():
    """Beside a name that is valid stands a former one, or a file with a name like it."""
    signs = re.compile(r"^# |Until last spring", re.MULTILINE)
    names = re.compile(r"-old\.|\.bak$|^copy-of-|2\.")
    for _, composed in drawn():
        files = composed.plan.start.files
        notes = {p: f.content.decode(errors="replace") for p, f in files.items() if p != "tidy.sh"}
        written = [
            line for text in notes.values() for line in text.split("\n")
            if signs.search(line) and not line.startswith(("# About", "# How"))
        ]  # fmt: skip
        assert len(written) + sum(bool(names.search(p)) for p in files) == composed.plan.decoys


def test_side_effects_are_refused_and_traces_of_programs_are_not():
    task, composed = next(pair for pair in drawn() if pair[1].plan.decoys)
    end = played(composed.plan.start, composed.plan.actions)
    decoy = next(p for p in end.files if composed.plan.start.files.get(p) == end.files[p])

    def failures(change):
        world = end.copy()
        change(world)
        left = Left(world)
        return [words for check in task.checks if (words := check.failure(left))]

    assert failures(lambda world: None) == []
    assert failures(lambda world: world.add(".cache/pip/x", b"")) == []
    assert failures(lambda world: world.add("scratch", b"")) == [
        "scratch was left behind, or is not where it should be"
    ]
    assert failures(lambda world: world.add_folder("new"))
    assert failures(lambda world: world.add(decoy, b"other")) == [f"{decoy} was changed"]
    assert failures(lambda world: world.set_mode(decoy, 0o600)) == [f"{decoy} was changed"]
    assert failures(lambda world: world.remove(decoy)) == [f"{decoy} is missing"]


def test_a_task_follows_from_its_id_and_travels():
    for task, _ in drawn()[::17]:
        assert make_task(task.id) == task == pickle.loads(pickle.dumps(task))


def test_held_out_families_have_no_training_tasks():
    assert {"audit", "migrate", "three"} == HELDOUT_FAMILIES
    for source, held_out in ((composed_tasks(), {"audit", "migrate"}), (plain_tasks(), {"three"})):
        assert not HELDOUT_FAMILIES & set(source.ids("train").families)
        assert set(source.ids("heldout").families) & HELDOUT_FAMILIES == held_out
    assert len(composed_tasks(["audit"]).ids("train")) == 0
    with pytest.raises(TaskError, match=r"'audit' is held out as a whole.*audit-heldout-000003"):
        make_task("audit-train-000003")
    with pytest.raises(TaskError, match=r"got task 'copy-train-000001', expected FAMILY"):
        make_task("copy-train-000001")
    with pytest.raises(ConfigError, match="expected some of: audit, chain"):
        composed_tasks(["copy"])


def test_a_request_says_its_budget_and_the_oracle_keeps_within():
    for task, _ in drawn():
        replies = int(task.request(16).rpartition("You have ")[2].split()[0])
        assert len(task.solution) < replies <= 16
        assert replies == min(16, task.turns or 0)


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_every_obstacle_comes_up(obstacle):
    signs = {
        "missing_folder": "mkdir ", "read_only": "chmod u+w", "unwritable": "echo ",
        "spaces": "'", "compressed": "gunzip", "locked": "rm tidy.lock",
    }  # fmt: skip
    commands = [c for task, _ in drawn() if task.family == "recover" for c in task.solution]
    assert any(command.startswith(signs[obstacle]) or signs[obstacle] in command
               for command in commands)  # fmt: skip


def test_a_gzip_file_is_one():
    import gzip

    assert gzip.decompress(gzipped(b"some\ntext\n")) == b"some\ntext\n"


@pytest.mark.sandbox
def test_in_real_sandboxes_the_oracle_earns_1_and_what_is_near_0(tasks_a_family):
    env = TerminalEnv(tasks="composed", max_turns=40)
    try:
        for split in SPLITS:
            ids = composed_tasks().ids(split)
            for task_id in ids[: tasks_a_family * len(ids.families)]:
                _, info = env.reset(options={"task": task_id})
                assert play(env, env.solve()) == 1.0, (task_id, env.report)
                family, _, number = task_id.split("-")
                near = [*compose(family, split, int(number)).plan.near()]
                for actions in near[:: max(1, len(near) // 2)]:
                    env.reset(options={"task": task_id})
                    commands = [action.command for action in actions]
                    assert play(env, commands) == 0.0, (task_id, commands)
                assert info["difficulty"] == make_task(task_id).difficulty
    finally:
        env.close()


MISCHIEF = {
    "ln -s /etc/passwd extra": "extra was left behind",
    "mkfifo pipe": "pipe was left behind",
    "mkdir -p a/b/c": "a was left behind",
    "touch $'odd\\xff\\nname'": r"'odd\udcff\nname' was left behind",
    "mkdir many; (cd many; seq 10001 | xargs touch)": "cannot be looked through",
    "f=$(find . -type f | head -n 1); mv $f /tmp/x; ln -s /tmp/x $f": "no plain file",
    "chmod 000 *": "was changed",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("command", MISCHIEF)
def test_what_is_done_beside_the_task_earns_nothing(command):
    env = TerminalEnv(tasks="composed", max_turns=40)
    try:
        env.reset(options={"task": "discover-train-000000"})
        assert play(env, [*env.solve(), command]) == 0.0
        assert MISCHIEF[command] in env.report
        env.reset(options={"task": "discover-train-000000"})
        harmless = ["echo x > /tmp/x; touch .bash_history; mkdir -p .cache/a; ls -la; cat *"]
        assert play(env, [*harmless, *env.solve()]) == 1.0
    finally:
        env.close()


def play(env, commands):
    """The reward; the last command submits."""
    *_, reward, terminated, _, _ = env.step("\n".join([*commands, "submit"]))
    assert terminated
    return reward
