"""SWE-smith's images hold the repository without its bug, and its row brings the bug."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits, Sandbox
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.setup import set_up

pytestmark = pytest.mark.sandbox

BUG = "--- a/shop.sh\n+++ b/shop.sh\n@@ -1 +1 @@\n-echo $((2 + 1))\n+echo $((2 - 1))\n"
INSTANCE = Instance(
    id="shop-1",
    repo="swesmith/me__shop",
    split="train",
    problem_statement="the total is wrong",
    fail_to_pass=("new",),
    pass_to_pass=(),
    log_parser="parse_log_pytest",
    eval_script="",
    setup_patch=BUG,
)


@pytest.fixture
def image() -> Iterator[Sandbox]:
    sandbox = open_sandbox(Limits(), workdir="/testbed")
    try:
        sandbox.write("/testbed/shop.sh", b"echo $((2 + 1))\n")
        done = sandbox.exec(
            "cd /testbed && git init -q -b main && git config user.name a && "
            "git config user.email a@b && git add . && git commit -qm first && git tag v1 && "
            "git branch later && git commit -q --allow-empty -m second; echo built > out.o",
            20.0,
        )
        assert done.exit_code == 0, done.output
        yield sandbox
    finally:
        sandbox.close()


def test_the_bug_is_in_and_nothing_in_the_history_is_without_it(image: Sandbox) -> None:
    set_up(INSTANCE, image, 20.0)
    assert image.exec("bash shop.sh", 5.0).output == "1\n"
    assert image.exec("git status --porcelain", 5.0).output == "?? out.o\n"
    assert image.exec("git rev-list --all --reflog --count", 5.0).output == "1\n"
    everything = image.exec(
        "git cat-file --batch-all-objects --batch-check='%(objectname) %(objecttype)' | "
        "while read n t; do git cat-file -p $n; done",
        10.0,
    ).output
    assert "2 - 1" in everything
    assert "2 + 1" not in everything


def test_a_bug_that_does_not_apply_is_an_error_of_the_task(image: Sandbox) -> None:
    with pytest.raises(TaskError, match=r"'shop-1'.*does not apply"):
        set_up(replace(INSTANCE, setup_patch=BUG.replace("2 + 1", "3 + 1")), image, 20.0)


def test_nothing_is_done_without_a_bug(image: Sandbox) -> None:
    set_up(replace(INSTANCE, setup_patch=""), image, 20.0)
    assert image.exec("git rev-list --all --count", 5.0).output == "2\n"
