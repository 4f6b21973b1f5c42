"""Composed repositories: what they ask, what solves them, and what does not.

That no wrong but near solution earns anything is shown for all tasks: of every repository each set
of bugs that goes together fails just the tests that tell these bugs, and each mistaken mend fails
one that stands in the repository.
"""

from __future__ import annotations

import pickle
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.swe.composed.families import FAMILIES, MOST, Composed
from clawrl_gym.envs.showcase.swe.composed.generated import (
    HELDOUT_FAMILIES,
    compose,
    composed_instances,
    make_instance,
)
from clawrl_gym.envs.showcase.swe.composed.ground import (
    CLASHES,
    Ground,
    clash,
    draw_ground,
    repositories,
)
from clawrl_gym.envs.showcase.swe.composed.made_bugs import made_bugs
from clawrl_gym.envs.showcase.swe.composed.plan import Plan
from clawrl_gym.envs.showcase.swe.corpus.repository import repository_family
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.diff import git_diff
from clawrl_gym.envs.swe.env import SweEnv
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK, Instance
from clawrl_gym.envs.swe.source import open_source
from tests.support.repository_runs import Files, failing_in_node, failing_in_python

SAMPLE = 40
"""Tasks of each family and split that are read."""
PLAYED = 12
"""Those whose tests are run."""
SPLITS: tuple[Split, ...] = ("train", "heldout")
RUNNERS = ("pytest", "unittest", "node")
REPOSITORIES = tuple(name for split in SPLITS for name in repositories(RUNNERS, split))
NODE = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node: make develop")


@cache
def drawn() -> list[tuple[Instance, Composed]]:
    """Pairs of instance and what it was made of."""
    pairs = []
    for split in SPLITS:
        ids = composed_instances().ids(split)
        for instance_id in ids[: SAMPLE * len(ids.families)]:
            instance = make_instance(instance_id)
            pairs.append((instance, compose(instance.family, split, int(instance_id[-6:]))))
    return pairs


def of_language(pairs: list[tuple[Instance, Composed]], node: bool) -> list[tuple[Instance, Plan]]:
    """So many of each family and split that are played, of one language."""
    return [
        (instance, composed.plan)
        for instance, composed in pairs
        if int(instance.id[-6:]) < PLAYED and (composed.plan.ground.family.runner == "node") is node
    ]


def all_failing(runs: Sequence[tuple[Files, Sequence[str]]], node: bool) -> list[frozenset[str]]:
    if node:
        return failing_in_node(str(NODE), runs)
    return [failing_in_python(files, tests) for files, tests in runs]


def check_bugs(names: list[str], node: bool) -> None:
    """Every set of bugs that goes together fails what tells them, and every clash is one."""
    runs, expected = [], []
    for name in names:
        ground = draw_ground(Draw("sets of bugs"), name)
        numbers = range(len(ground.family.bugs))
        tests = ground.tests(numbers)
        for size in range(len(numbers) + 1):
            for bugs in combinations(numbers, size):
                try:
                    files = ground.wrong(bugs)
                except TaskError:
                    assert clash(name, bugs), (name, bugs)
                    continue
                runs.append(({**files, **tests}, tuple(tests)))
                expected.append((ground, bugs))
    for failing, (ground, bugs) in zip(all_failing(runs, node), expected, strict=True):
        visible = set(ground.ids(ground.visible()))
        own = {bug: set(ground.ids(ground.tests((bug,)))) - visible for bug in bugs}
        assert not failing & visible, (ground.name, bugs)
        told = all(tests <= failing for tests in own.values())
        assert told is not clash(ground.name, bugs), (ground.name, bugs)
        assert bool(failing) is bool(bugs)
    assert len(runs) > 10 * len(names) - 20


def test_in_python_every_set_of_bugs_fails_the_tests_that_tell_them() -> None:
    check_bugs([name for name in REPOSITORIES if not is_node(name)], node=False)


@needs_node
def test_and_in_javascript() -> None:
    check_bugs([name for name in REPOSITORIES if is_node(name)], node=True)


def is_node(name: str) -> bool:
    return repository_family(name).runner == "node"


@pytest.mark.parametrize("node", [False, pytest.param(True, marks=needs_node)])
def test_every_mistaken_mend_breaks_a_test_that_is_there(node: bool) -> None:
    grounds = [draw_ground(Draw("no bugs"), one) for one in REPOSITORIES if is_node(one) is node]
    cases = [(ground, one) for ground in grounds for one in range(len(ground.family.no_bugs))]
    runs = [(ground.mistaken(one), tuple(ground.visible())) for ground, one in cases]
    for failing, (ground, one) in zip(all_failing(runs, node), cases, strict=True):
        assert failing, (ground.name, one)
        assert len(ground.family.no_bugs[one].said) >= 2


def sets_beside(ground: Ground, beside: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every set of these bugs that goes together, no bug at all included."""
    for size in range(len(beside) + 1):
        yield from (bugs for bugs in combinations(beside, size) if not clash(ground.name, bugs))


def test_every_made_bug_fails_its_tests_beside_all_bugs_that_it_may_stand_beside() -> None:
    assert sum(map(len, made_bugs().values())) >= 100
    for name, bugs in made_bugs().items():
        ground = draw_ground(Draw("made bugs"), name)
        visible = set(ground.ids(ground.visible()))
        for made in bugs:
            assert made.beside
            for others in sets_beside(ground, made.beside):
                tests = ground.tests(others)
                files = {**ground.wrong(others, made), **tests}
                failing = failing_in_python(files, tuple(tests))
                assert failing & visible == set(made.breaks), (name, made, others)
                assert failing >= set(ground.ids(tests)) - visible, (name, made, others)


@pytest.mark.parametrize("node", [False, pytest.param(True, marks=needs_node)])
def test_the_oracle_solves_every_task_and_neither_doing_nothing_nor_what_is_near(
    node: bool,
) -> None:
    played = of_language(drawn(), node)
    runs, wanted = [], []
    for instance, plan in played:
        tests = tuple(plan.tests)
        states = [plan.start, plan.end, *plan.near()]
        runs += [({**files, **plan.tests}, tests) for files in states]
        wanted.append((instance, len(states)))
    results = iter(all_failing(runs, node))
    for instance, count in wanted:
        start, end, *near = [next(results) for _ in range(count)]
        assert start == set(instance.fail_to_pass), instance.id
        assert end == frozenset(), instance.id
        assert all(near), instance.id
        assert len(near) >= 2, instance.id
    assert len(played) > 10


def test_a_near_solution_is_all_but_one_thing_or_one_thing_too_many() -> None:
    for _, composed in drawn():
        plan = composed.plan
        things = len(plan.reports) + (plan.made is not None)
        assert len(list(plan.near())) == things >= 2
        assert all(files not in (plan.start, plan.end) for files in plan.near())


def test_all_repositories_bugs_families_and_difficulties_come_up() -> None:
    told: dict[str, set[int]] = {}
    mistaken: dict[str, set[int]] = {}
    for _, composed in drawn():
        plan = composed.plan
        told.setdefault(plan.ground.name, set()).update(plan.bugs)
        mistaken.setdefault(plan.ground.name, set()).update(plan.no_bugs)
    for name in REPOSITORIES:
        family = repository_family(name)
        assert told[name] == set(range(len(family.bugs)))
        assert mistaken[name] == set(range(len(family.no_bugs)))
    difficulties = Counter(instance.difficulty for instance, _ in drawn())
    assert set(difficulties) == set(range(2, MOST + 1))
    assert min(difficulties.values()) > 10
    assert {instance.family for instance, _ in drawn()} == set(FAMILIES)


def test_difficulty_counts_things_and_what_makes_them_hard_to_find() -> None:
    for instance, composed in drawn():
        plan = composed.plan
        things = len(plan.bugs) + len(plan.no_bugs) + (plan.made is not None)
        hard = sum(report.how != "said" for report in plan.reports)
        hard += plan.made is not None
        if plan.register is not None:
            hard += 1 if plan.register.is_named else 2
        assert instance.difficulty == things + hard
    by_family = {name: [c.plan for i, c in drawn() if i.family == name] for name in FAMILIES}
    assert all(len(plan.bugs) == plan.difficulty for plan in by_family["several"])
    assert all(plan.seen for plan in by_family["symptoms"])
    assert all(plan.register for plan in (*by_family["filed"], *by_family["backlog"]))
    assert all(plan.no_bugs for plan in by_family["distract"])
    assert all(plan.made for plan in by_family["red"])
    assert all(plan.seen == len(plan.bugs) for plan in by_family["checks"])
    assert all(is_node(plan.ground.name) for plan in by_family["javascript"])


def test_code_that_is_told_is_not_all_that_tells_its_bug() -> None:
    told = 0
    for instance, composed in drawn():
        ground = composed.plan.ground
        checks = [one.bug for one in composed.plan.reports if one.how == "check"]
        assert bool(checks) is (instance.family == "checks")
        for bug in checks:
            assert bug is not None
            own = set(ground.ids(ground.tests((bug,)))) - set(ground.ids(ground.visible()))
            assert len(own) > 1, (ground.name, bug)
            told += 1
    assert told > 10


def test_what_is_told_of_a_repository_is_told_of_no_other() -> None:
    owners: dict[str, str] = {}
    for name in REPOSITORIES:
        family = repository_family(name)
        texts = [text for bug in family.bugs for text in (*bug.issues, *bug.said, *bug.seen)]
        texts += [text for no_bug in family.no_bugs for text in no_bug.said]
        assert len(set(texts)) == len(texts)
        assert all(len(bug.said) >= 2 and len(bug.seen) >= 2 for bug in family.bugs)
        assert len(family.no_bugs) >= 2
        for text in texts:
            assert owners.setdefault(text, name) == name


def test_splits_share_neither_repositories_nor_sentences() -> None:
    by_split: Mapping[Split, list[tuple[Instance, Composed]]] = {
        split: [pair for pair in drawn() if pair[0].split == split] for split in SPLITS
    }
    repositories_of = [{instance.repo for instance, _ in by_split[split]} for split in SPLITS]
    assert not repositories_of[0] & repositories_of[1]
    assert [len(names) for names in repositories_of] == [13, 5]
    sentences = [
        {
            line.strip()
            for instance, composed in by_split[split]
            for line in outside(instance.problem_statement, composed.plan).split("\n")
            if len(line.split()) > 3
        }
        for split in SPLITS
    ]
    assert not sentences[0] & sentences[1]


def outside(request: str, plan: Plan) -> str:
    """A request without its reports."""
    for report in plan.reports:
        for line in report.text.split("\n"):
            request = request.replace(line, "") if line else request
    return request


def test_requests_differ_and_hold_all_that_is_told_in_them() -> None:
    requests = [instance.problem_statement for instance, _ in drawn()]
    assert len(set(requests)) > 0.97 * len(requests)
    openings = Counter(" ".join(request.split()[:3]) for request in requests)
    assert openings.most_common(1)[0][1] < 0.15 * len(requests)
    for instance, composed in drawn():
        request, plan = instance.problem_statement, composed.plan
        assert not re.search(r"@\w+@|\{file\}|None\b(?=:)|\n\n\n", request), instance.id
        for report in plan.reports:
            shown = plan.register.text if report.filed and plan.register else request
            words = " ".join(report.text.split())
            assert words in " ".join(re.sub(r"(?m)^> ?", "", shown).split()), instance.id
            assert not report.filed or report.text not in request
        if plan.register is not None:
            assert (plan.register.path in request) is plan.register.is_named
            assert instance.files[plan.register.path].data == plan.register.text.encode()
            assert plan.register.path not in instance.patch
        assert not plan.no_bugs or plan.warned


def test_a_register_has_more_in_it_than_what_is_open() -> None:
    registers = [c.plan.register.text for _, c in drawn() if c.plan.register is not None]
    closed = [text for text in registers if re.search(r"(?i)done|declined|\[x\]", text)]
    assert 0.4 * len(registers) < len(closed) < len(registers)


def test_an_instance_follows_from_its_id_and_travels() -> None:
    for instance, _ in drawn()[::23]:
        assert make_instance(instance.id) == instance == pickle.loads(pickle.dumps(instance))
        assert not set(instance.fail_to_pass) & set(instance.pass_to_pass)
        assert instance.pass_to_pass
        assert instance.fail_to_pass


def test_held_out_families_have_no_training_tasks() -> None:
    assert {"backlog", "checks"} == HELDOUT_FAMILIES
    source = composed_instances()
    assert not HELDOUT_FAMILIES & set(source.ids("train").families)
    assert set(source.ids("heldout").families) == set(FAMILIES)
    with pytest.raises(TaskError, match=r"'checks' is held out.*repo-checks-heldout-000003"):
        make_instance("repo-checks-train-000003")
    with pytest.raises(TaskError, match=r"got task 'swe-cart-train-000001', expected repo-FAMILY"):
        make_instance("swe-cart-train-000001")
    with pytest.raises(ConfigError, match="expected some of: backlog, checks"):
        composed_instances(["cart"])


def test_composed_tasks_bring_held_out_tasks_of_their_own() -> None:
    source = open_source(SweEnvConfig(instances="composed", families=["red"], heldout="composed"))
    assert source.ids("heldout")[3] == "repo-red-heldout-000003"
    assert source.load("repo-red-heldout-000003").repo.startswith("made-up/")
    for places in ({"heldout": "corpus"}, {"instances": "corpus", "heldout": "composed"}):
        with pytest.raises(ConfigError, match="it brings held-out tasks of its own"):
            open_source(SweEnvConfig.of({"instances": "composed"} | places, "env."))


def test_pairs_that_clash_are_named_by_number() -> None:
    for name, pairs in CLASHES.items():
        for pair in pairs:
            assert len(pair) == 2
            assert max(pair) < len(repository_family(name).bugs)


@pytest.mark.sandbox
@pytest.mark.parametrize("instance_id", ["repo-mixed-train-000001", "repo-red-heldout-000000"])
def test_in_a_real_sandbox_the_oracle_earns_1_and_what_is_near_0(instance_id: str) -> None:
    _, family, split, number = instance_id.split("-")
    plan = compose(family, "heldout" if split == "heldout" else "train", int(number)).plan
    env = SweEnv(instances="composed", sandbox={"type": "bubblewrap"})
    try:
        _, info = env.reset(options={"task": instance_id})
        assert info["difficulty"] == plan.difficulty
        assert [env.step(command)[1] for command in env.solve()][-1] == 1.0, env.report
        for files in plan.near():
            env.reset(options={"task": instance_id})
            patch = git_diff(plan.start, files)
            submission = f"cat <<'END'\n{SUBMIT_MARK}\n{patch}END"
            assert env.step(submission)[1:3] == (0.0, True), env.report
            assert "fails" in env.report
    finally:
        env.close()
