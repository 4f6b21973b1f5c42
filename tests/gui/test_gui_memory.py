"""What memory a browser has when nobody says it."""

import psutil
import pytest

from clawrl_gym.envs.gui.browser.memory import share_mb
from clawrl_gym.envs.sandbox.cgroup import CgroupHome


@pytest.mark.parametrize(
    ("version", "controller", "file"),
    [(1, "memory", "memory.limit_in_bytes"), (2, "", "memory.max")],
)
def test_half_of_the_nearest_limit_is_taken(tmp_path, version, controller, file):
    own = tmp_path / "above" / "own"
    own.mkdir(parents=True)
    home = CgroupHome(version, {controller: own})
    (own / file).write_text(str(9 << 60) if version == 1 else "max")
    assert share_mb(home) == psutil.virtual_memory().total // 2 >> 20
    (own.parent / file).write_text(str(600 << 20))
    assert share_mb(home) == 300
    (own / file).write_text(str(1 << 20))
    assert share_mb(home) == 64
