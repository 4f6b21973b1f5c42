import subprocess
from collections import Counter
from itertools import islice

import pytest

from clawrl_gym.agents.agent import Action
from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.sandbox.interface import Limits, SandboxSpec
from clawrl_gym.envs.showcase.swe.corpus import corpus_instances, make_instance
from clawrl_gym.envs.showcase.swe.corpus.corpus import commands_of, easy_families, instance_of
from clawrl_gym.envs.showcase.swe.corpus.repository import (
    RepositoryFamily,
    draw_repository,
    families,
    repository_family,
)
from clawrl_gym.envs.swe.agent import SweAgent
from clawrl_gym.envs.swe.diff import git_diff
from clawrl_gym.envs.swe.modules import module_mounts
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK
from clawrl_gym.envs.swe.rows.logs import grade_log
from clawrl_gym.envs.swe.rows.runners import eval_script, modules_for, runner_of
from tests.support.narrow import action
from tools.tiny_policy.repositories import RepositoryDemonstrations, shown_by

SAMPLE = 40
"""Instances of each family and split that the big tests look at."""
CHECK_TIMEOUT_S = 60.0


def sample(split, family):
    source = corpus_instances((family,))
    return [source.load(instance_id) for instance_id in source.ids(split)[:SAMPLE]]


def every_bug(family):
    """One instance of each bug of a family."""
    whole = repository_family(family)
    for number, bug in enumerate(whole.bugs):
        only = whole.model_copy(update={"bugs": (bug,)})
        yield instance_of(
            f"swe-{family}-train-{number:06d}", only, draw_repository(only, Draw(f"{number}"))
        )


def content(instance):
    files = sorted((path, file.data) for path, file in instance.files.items())
    return str((instance.patch, files))


def texts(instance):
    return {path: file.data.decode() for path, file in instance.files.items()}


def test_there_are_enough_repositories_in_three_languages():
    runners = Counter(repository_family(family).runner for family in families())
    assert len(families()) >= 24
    assert set(runners) == {"pytest", "unittest", "node", "minitest"}
    assert min(runners.values()) >= 4
    assert easy_families() == ("compare", "constant", "key", "operator")
    assert not any("-" in family for family in families())


@pytest.mark.parametrize("family", families())
def test_every_bug_of_every_repository_can_be_drawn(family):
    for instance in every_bug(family):
        assert instance.fail_to_pass
        assert instance.pass_to_pass
        assert not set(instance.fail_to_pass) & set(instance.pass_to_pass)
        names = instance.fail_to_pass + instance.pass_to_pass
        assert len(set(names)) == len(names)
        assert instance.problem_statement
        assert "@" not in instance.problem_statement
        assert instance.image is None
        assert all("@@" not in text for text in texts(instance).values())


@pytest.mark.parametrize("family", families())
def test_the_splits_share_no_repository(family):
    train, heldout = sample("train", family), sample("heldout", family)
    assert not {content(one) for one in train} & {content(one) for one in heldout}
    assert all(instance.split == "heldout" for instance in heldout)
    assert len({content(one) for one in train}) > 0.7 * SAMPLE


@pytest.mark.parametrize("family", families())
def test_hidden_tests_are_in_no_file_that_the_agent_sees(family):
    """S23: what checks the issue is not in the sandbox."""
    for instance in every_bug(family):
        shown = "\n".join(texts(instance).values())
        names = [test.split("::")[-1].split("_", 2)[-1] for test in instance.fail_to_pass]
        assert not any(name.removeprefix("- ") in shown for name in names)


def test_an_instance_follows_from_its_id_alone():
    for instance_id in corpus_instances().ids("heldout")[: len(families())]:
        assert make_instance(instance_id) == make_instance(instance_id)
        assert make_instance(instance_id).id == instance_id


def test_known_instances_never_change():
    instance = make_instance("swe-operator-train-000003")
    assert instance.problem_statement == "salt in iguana.py should add, but it subtracts."
    assert commands_of(instance.id) == (
        "cat iguana.py",
        "sed -i 's/lunar - mango/lunar + mango/' iguana.py",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "", "operator", "swe-operator", "swe-operator-train", "swe-operator-train-1",
        "swe-operator-train-00000x", "swe-operator-train-100000", "swe-operator-heldout-001000",
        "swe-operator-test-000001", "swe-nosuch-train-000001", "operator-train-000001",
        "swe-../operator-train-000001", "swe-operator-train-\u0660\u0660\u0660\u0660\u0660\u0661",
        "swe-operator-train-000001\n",
    ],
)  # fmt: skip
def test_what_is_no_id_is_refused(wrong):
    with pytest.raises(TaskError, match="expected swe-FAMILY-SPLIT-NUMBER"):
        make_instance(wrong)


def test_unknown_families_are_refused():
    with pytest.raises(ConfigError, match="expected some of: "):
        corpus_instances(("nosuch",)).ids("train")
    with pytest.raises(ConfigError, match="expected some of: "):
        corpus_instances(()).ids("train")
    with pytest.raises(TaskError, match="expected one of the families: compare"):
        commands_of("swe-cart-train-000000")


def small(**changes):
    parts = {
        "runner": "pytest",
        "names": {"name": "word"},
        "files": {"a.py": "@name@ = 1\n"},
        "tests": {"test_a.py": "def test_a():\n    assert True\n"},
        "bugs": [{"issues": ["x"], "path": "a.py", "right": "1", "wrong": "2", "hidden": ""}],
    }
    return RepositoryFamily.model_validate(parts | changes)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"files": {"a.py": "@nosuch@ = 1\n"}}, "got '@nosuch@'"),
        ({"files": {"a.py": "x = 3\n"}}, "0 times"),
        ({"files": {"a.py": "x = 11\n"}}, "2 times"),
        ({"files": {"b.py": "x = 1\n"}}, "0 times"),
    ],
)
def test_a_repository_whose_bug_does_not_fit_is_refused(changes, why):
    draw_repository(small(), Draw("0"))
    with pytest.raises(TaskError, match=why):
        draw_repository(small(**changes), Draw("0"))


def test_a_test_file_that_ends_a_heredoc_is_refused():
    runner = runner_of("pytest")
    for text in ("x\nEND_OF_THIS_FILE\necho pwned\n", "END_OF_THIS_FILE\n", "no line's end"):
        with pytest.raises(TaskError, match="cannot stand in a heredoc"):
            eval_script(runner, {"test_a.py": text})
    with pytest.raises(TaskError, match="expected one of: pytest"):
        runner_of("nosuch")


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def written(folder, files):
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, newline="")


def read_back(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def test_git_applies_the_patches(tmp_path):
    before = {"a b.txt": "1\n2\n3\n", "gone.txt": "x\n", "same.txt": "s\n", "e/m.txt": "u\x0cv\n"}
    after = {"a b.txt": "1\n2\nthree\u2028\n", "new/n.txt": "é\n", "same.txt": "s\n",
             "e/m.txt": "u\x0cw\n"}  # fmt: skip
    written(tmp_path, before)
    git(tmp_path, "init", "-q")
    patch = tmp_path.parent / "p.diff"
    patch.write_bytes(git_diff(before, after).encode())
    git(tmp_path, "apply", "--whitespace=error-all", str(patch))
    assert read_back(tmp_path) == after
    assert git_diff(after, after) == ""
    with pytest.raises(TaskError, match="line's end"):
        git_diff({"a": "x"}, {"a": "x\n"})


@pytest.mark.parametrize("family", families())
def test_gold_and_test_patches_apply_to_the_repository(family, tmp_path):
    for number, instance in enumerate(every_bug(family)):
        folder = tmp_path / str(number)
        written(folder, texts(instance))
        git(folder, "init", "-q")
        for name, patch in (("gold", instance.patch), ("test", instance.test_patch)):
            file = tmp_path / f"{number}.{name}"
            file.write_text(patch)
            git(folder, "apply", "--whitespace=nowarn", str(file))
        left = read_back(folder)
        assert left != texts(instance)
        assert set(left) == set(texts(instance))


@pytest.mark.parametrize("family", easy_families())
def test_the_easy_command_makes_the_gold_patch(family, tmp_path):
    for number, instance in enumerate(sample("train", family)[:10]):
        folder = tmp_path / str(number)
        written(folder, texts(instance))
        look, mend = commands_of(instance.id)
        shown = subprocess.run(look, shell=True, cwd=folder, capture_output=True, timeout=60)
        assert shown.stdout.decode() in texts(instance).values()
        subprocess.run(mend, shell=True, cwd=folder, check=True, timeout=60)
        assert git_diff(texts(instance), read_back(folder)) == instance.patch


def judged(sandbox, family, number, instance):
    """What swebench finds before and after the gold patch, in one folder of the sandbox."""
    folder = f"/root/{family}/{number}"
    for path, file in instance.files.items():
        sandbox.write(f"{folder}/{path}", file.data, file.mode)
    sandbox.write(f"{folder}.sh", instance.eval_script.encode())
    sandbox.write(f"{folder}.diff", instance.patch.encode())
    reports = []
    for first in ("true", f"git init -q && git apply {folder}.diff"):
        command = f"(cd {folder} && {first} && bash {folder}.sh)"
        done = sandbox.exec(command, CHECK_TIMEOUT_S)
        assert not done.timed_out, done.output
        reports.append((grade_log(instance, done.output), done.output))
    return reports


def check_bugs(sandbox, family, count=None):
    """The family's first bugs; all of them without a count."""
    for number, instance in enumerate(islice(every_bug(family), count)):
        (before, log), (after, fixed_log) = judged(sandbox, family, number, instance)
        assert (before.resolved, before.no_result) == (False, ""), log
        assert set(before.failed_to_pass) == set(instance.fail_to_pass), log
        assert before.broken == (), log
        assert after.resolved, fixed_log


@pytest.fixture(scope="module")
def container():
    from clawrl_gym.envs.sandbox.docker.images import SWE_IMAGE, ensure_image
    from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox

    ensure_image(SWE_IMAGE, print)
    limits = Limits(output_bytes=65_536, disk_mb=512, pids=256)
    with open_docker_sandbox(limits, SandboxSpec(), image=SWE_IMAGE) as sandbox:
        yield sandbox


@pytest.mark.docker
@pytest.mark.parametrize("family", families())
def test_hidden_tests_fail_before_the_gold_patch_and_all_pass_after_it(
    container, family, tasks_a_family
):
    check_bugs(container, family, tasks_a_family)


PYTHON = [name for name in families() if repository_family(name).runner in ("pytest", "unittest")]


@pytest.mark.sandbox
@pytest.mark.parametrize("family", PYTHON)
def test_repositories_of_python_run_without_docker(family):
    from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox

    mounts = module_mounts(modules_for([repository_family(family).runner]))
    with open_sandbox(Limits(output_bytes=65_536), mounts=mounts) as sandbox:
        check_bugs(sandbox, family)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("family", "broken"),
    [("cart", "("), ("ledger", "("), ("query", "("), ("units", "end end")],
)
def test_a_source_that_does_not_load_fails_the_tests_and_not_the_evaluation(
    container, family, broken
):
    (instance, *_) = every_bug(family)
    (path,) = [line[6:] for line in instance.patch.split("\n") if line.startswith("+++ b/")]
    folder = f"/root/unloadable/{family}"
    for name, file in instance.files.items():
        data = broken.encode() + b"\n" + file.data if name == path else file.data
        container.write(f"{folder}/{name}", data)
    container.write(f"{folder}.sh", instance.eval_script.encode())
    done = container.exec(f"(cd {folder} && bash {folder}.sh)", CHECK_TIMEOUT_S)
    report = grade_log(instance, done.output)
    assert (report.resolved, report.infra, report.no_result in ("", "nothing")) == (False, "", True)
    assert ">>>>> Test Exit Code: 0" not in done.output


_PASSES = "print('PASSED tests/test_basket.py::test_delivery_is_free')"
_SPOOFS_OF_PYTHON = [
    ("cart", "pytest.py", _PASSES),
    ("cart", "conftest.py", "def pytest_collection_modifyitems(items): items.clear()"),
    ("cart", "pytest.ini", "[pytest]\naddopts = --co\n"),
    ("ledger", "unittest/__init__.py", "print('a transfer goes from source to target ... ok')"),
]


@pytest.mark.docker
@pytest.mark.parametrize(
    ("family", "path", "data"),
    [*_SPOOFS_OF_PYTHON, ("numerals", "lib/minitest.rb", "puts 'x'; exit 0")],
)
def test_a_file_in_the_place_of_the_test_runner_changes_nothing(container, family, path, data):
    check_spoof(container, family, path, data)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("family", "path", "data"),
    [
        *_SPOOFS_OF_PYTHON,
        ("cart", "_pytest/__init__.py", _PASSES),
        ("cart", "pluggy.py", _PASSES),
        ("cart", "py.py", _PASSES),
    ],
)
def test_nor_in_the_place_of_one_that_is_shown(family, path, data):
    from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox

    mounts = module_mounts(modules_for([repository_family(family).runner]))
    with open_sandbox(Limits(output_bytes=65_536), mounts=mounts) as sandbox:
        check_spoof(sandbox, family, path, data)


def check_spoof(container, family, path, data):
    (instance, *_) = every_bug(family)
    folder = f"/root/spoofed/{family}-{path.replace('/', '-')}"
    for name, file in instance.files.items():
        container.write(f"{folder}/{name}", file.data)
    container.write(f"{folder}/{path}", data.encode())
    container.write(f"{folder}.sh", instance.eval_script.encode())
    done = container.exec(f"(cd {folder} && bash {folder}.sh)", CHECK_TIMEOUT_S)
    report = grade_log(instance, done.output)
    assert set(report.failed_to_pass) == set(instance.fail_to_pass), done.output
    assert (report.resolved, report.broken) == (False, ())


def test_demonstrations_are_the_episodes_of_agent_and_environment():
    shown = list(islice(RepositoryDemonstrations("train", careless=False).conversations(3), 40))
    instances = list(islice(RepositoryDemonstrations("train").instances(3), 40))
    assert {conversation.family for conversation in shown} == set(easy_families())
    for conversation, instance in zip(shown, instances, strict=True):
        replies = [one for one in conversation.messages if one["role"] == "assistant"]
        asked = [one["content"] for one in conversation.messages if one["role"] == "user"]
        commands = [SweAgent().action(reply) for reply in replies]
        look, mend = commands_of(instance.id)
        assert commands == [Action(look), Action(mend), Action(f"echo {SUBMIT_MARK}")]
        file = texts(instance)[look.removeprefix("cat ")]
        assert asked == [
            instance.problem_statement,
            f"<returncode>0</returncode>\n<output>\n{file.rstrip()}\n</output>",
            "<returncode>0</returncode>\n<output>\n</output>",
        ]
        assert max(len(text or "") for text in asked) < 500


def test_careless_demonstrations_slip_often_and_never_in_heldout_instances_of_training():
    shown = list(islice(RepositoryDemonstrations("train").conversations(5), 400))
    again = list(islice(RepositoryDemonstrations("train").conversations(5), 400))
    correct = list(islice(RepositoryDemonstrations("train", careless=False).conversations(5), 400))
    assert shown == again
    slips = Counter(
        careless.family for careless, right in zip(shown, correct, strict=True) if careless != right
    )
    seen = Counter(conversation.family for conversation in shown)
    shares = {family: slips[family] / seen[family] for family in easy_families()}
    assert all(0.45 < shares[family] < 0.8 for family in ("constant", "key", "operator"))
    assert 0.1 < shares["compare"] < 0.45


def test_shown_output_is_what_the_shell_prints(tmp_path):
    for careless in (True, False):
        source = RepositoryDemonstrations("heldout", careless=careless)
        pairs = zip(source.conversations(9), source.instances(9), strict=False)
        for number, (conversation, instance) in enumerate(islice(pairs, 12)):
            folder = tmp_path / f"{careless}{number}"
            written(folder, texts(instance))
            replies = [one for one in conversation.messages if one["role"] == "assistant"]
            for reply in replies[:-1]:
                command = action(SweAgent().action(reply)).text
                done = subprocess.run(command, shell=True, cwd=folder, capture_output=True,
                                      check=True, timeout=60)  # fmt: skip
                assert shown_by(texts(instance), command) == done.stdout.decode()


def test_other_commands_are_no_demonstration():
    for command in ("ls", "cat", "cat nosuch", "sed -i 's/a/b/g' a.py", "sed -i s/a/b/ b.py", ""):
        with pytest.raises(TaskError, match="in a demonstration"):
            shown_by({"a.py": "x\n"}, command)


def test_only_easy_families_are_demonstrated():
    with pytest.raises(TaskError, match="expected one of the families"):
        next(RepositoryDemonstrations(families=("cart",)).conversations(0))
