"""Instances that live in images: found by name, or built from their own Dockerfile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.grading import grade
from clawrl_gym.envs.swe.rows import script
from clawrl_gym.envs.swe.rows.images import image_of, ready_image
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.repository import open_repository
from clawrl_gym.envs.swe.source import open_source

IMAGE = "clawrl-test/sweb.eval.x86_64.me_1776_shop-1:latest"
DOCKERFILE = """\
FROM clawrl/swe:1
WORKDIR /testbed
RUN printf 'def total(a, b):\\n    return a - b\\n' > shop.py && git init -q && git add . && \\
    git -c user.name=a -c user.email=a@b commit -qm base
"""
GOLD = """\
--- a/shop.py
+++ b/shop.py
@@ -1,2 +1,2 @@
 def total(a, b):
-    return a - b
+    return a + b
"""
TESTS = """\
--- /dev/null
+++ b/tests/test_shop.py
@@ -0,0 +1,5 @@
+from shop import total
+
+
+def test_total():
+    assert total(2, 1) == 3
"""


@pytest.mark.parametrize(
    ("row", "image"),
    [
        ({"instance_id": "django__django-1", "repo": "django/django"},
         "swebench/sweb.eval.x86_64.django_1776_django-1:latest"),
        ({"instance_id": "Axios__Axios-1", "repo": "axios/axios"},
         "swebench/sweb.eval.x86_64.axios_1776_axios-1:latest"),
        ({"instance_id": "getmoto__moto-1", "repo": "getmoto/moto"},
         "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-1:latest"),
        ({"instance_id": "a", "image": " me/own:2 "}, "me/own:2"),
        ({"instance_id": "a", "image_name": "jyangballin/swesmith.x86_64.a"},
         "jyangballin/swesmith.x86_64.a"),
        ({"instance_id": "a", "image": None, "docker_image": "namanjain12/a:1"}, "namanjain12/a:1"),
    ],
)  # fmt: skip
def test_each_data_set_has_its_names(row: dict[str, Any], image: str) -> None:
    assert image_of(row) == image


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """From a task repository, as swebench 5 lays it out; its image is in no registry."""
    from clawrl_gym.envs.sandbox.docker.engine import engine

    folder = tmp_path / "tasks/me__shop-1"
    folder.mkdir(parents=True)
    command = f": '{script.START}'\npython3 -m pytest -rA tests\n: '{script.END}'\n"
    files = {
        "Dockerfile": DOCKERFILE,
        "gold.patch": GOLD,
        "test.patch": TESTS,
        "problem_statement.md": "the total is wrong",
        "eval.sh": f"#!/bin/bash\nset -uxo pipefail\ngit apply - <<'E'\n{TESTS}E\n{command}",
        "tests.json": json.dumps(
            {"FAIL_TO_PASS": ["tests/test_shop.py::test_total"], "PASS_TO_PASS": []}
        ),
        "task.yaml": f"instance_id: me__shop-1\nrepo: me/shop\nimage: {IMAGE}\n"
        "base_commit: HEAD\nlog_parser: parse_log_pytest\neval_type: pass_and_fail\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    yield open_source(SweEnvConfig.of({"instances": str(tmp_path)})).load("me__shop-1")
    engine().images.remove(IMAGE, force=True)


@pytest.mark.docker
def test_an_instance_is_graded_in_the_image_that_its_dockerfile_makes(instance: Instance) -> None:
    ready_image(instance)
    ready_image(instance)
    sandboxes = Sandboxes.of({"type": "docker", "disk_mb": 256})

    def reward(patch: str) -> float:
        return grade(
            instance, patch, lambda: open_repository(instance, sandboxes, 60.0).sandbox, 60.0
        ).reward

    assert reward(GOLD) == 1.0
    assert reward(GOLD.replace("a + b", "a * b")) == 0.0


@pytest.mark.docker
def test_a_bug_is_set_up_in_an_image_that_has_none(instance: Instance) -> None:
    ready_image(instance)
    buggy = replace(instance, setup_patch=GOLD.replace("a + b", "a ** b"))
    sandboxes = Sandboxes.of({"type": "docker"})
    with open_repository(buggy, sandboxes, 60.0).sandbox as sandbox:  # type: ignore[attr-defined]
        assert sandbox.exec("cat shop.py", 10.0).output.endswith("return a ** b\n")
        assert "a - b" not in sandbox.exec("git log -p --all", 10.0).output


@pytest.mark.docker
def test_an_image_that_nobody_has_is_an_error_that_names_it(instance: Instance) -> None:
    ready_image(instance)
    gone = replace(instance, image="clawrl-test/no-such-image:1", context=None)
    with pytest.raises(SandboxError, match="clawrl-test/no-such-image:1"):
        ready_image(gone)
