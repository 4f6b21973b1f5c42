"""Finding and filling cgroups, on folders that look like version 2 and on the real ones."""

import os

import pytest

from clawrl_gym.envs.sandbox.cgroup import (
    CgroupHome,
    Cgroups,
    find_cgroup_home,
    remove_groups_of_the_dead,
)
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.processes import alive, identity

DEAD = "clawrl-000000000000-4000000-1"


@pytest.fixture
def tree(tmp_path):
    """A version 2 folder as a launcher finds it, without a kernel behind it."""
    return CgroupHome(2, {"": tmp_path})


def test_version_2_gets_every_limit(tree, tmp_path):
    limits = Limits(memory_mb=100, disk_mb=28, cpus=0.5, pids=10)
    own = tmp_path / f"clawrl-{identity(os.getpid())}"
    own.mkdir()
    Cgroups(tree).join("7", limits)
    written = {file.name: file.read_text() for file in (own / "7").iterdir()}
    assert written == {
        "memory.max": str(128 << 20),
        "memory.swap.max": "0",
        "pids.max": "13",
        "cpu.max": "50000 100000",
        "cgroup.procs": "0",
    }


def test_a_launcher_whose_empty_folder_was_swept_has_it_again(tree, tmp_path):
    Cgroups(tree).join("7", Limits())
    own = tmp_path / f"clawrl-{identity(os.getpid())}"
    assert (own / "7/cgroup.procs").read_text() == "0"
    assert (own / "cgroup.subtree_control").exists()


def test_folders_of_dead_launchers_are_swept_and_others_kept(tree, tmp_path):
    living = f"clawrl-{identity(os.getpid())}"
    for name in (f"{DEAD}/1", f"{DEAD}/2", f"{living}/1", "clawrl-else", "somebody"):
        (tmp_path / name).mkdir(parents=True)
    in_use = tmp_path / DEAD / "1" / "process"
    in_use.mkdir()
    assert not Cgroups(tree).sweep()
    assert (tmp_path / DEAD / "1").is_dir()
    in_use.rmdir()
    assert Cgroups(tree).sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [living, "clawrl-else", "somebody"]
    )


def test_a_reused_process_number_is_another_process():
    boot, pid, start = identity(os.getpid()).split("-")
    assert alive(f"{boot}-{pid}-{start}")
    assert not alive(f"{boot}-{pid}-{int(start) + 1}")
    assert not alive(f"{boot[::-1]}-{pid}-{start}")


@pytest.mark.root
@pytest.mark.sandbox
def test_real_cgroups_limit_what_joins_and_leave_nothing():
    home = find_cgroup_home()
    assert home is not None
    cgroups = Cgroups(home)
    cgroups.open()
    parents = [parent / f"clawrl-{identity(os.getpid())}" for parent in home.parents.values()]
    child = os.fork()
    if child == 0:
        cgroups.join("a", Limits())
        os._exit(0 if cgroups.processes("a") == [os.getpid()] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    cgroups.close()
    assert not any(parent.exists() for parent in parents)


@pytest.mark.root
@pytest.mark.sandbox
@pytest.mark.parametrize("by_the_next", [True, False])
def test_what_a_killed_launcher_left_is_removed_by_the_next_or_its_owner(by_the_next):
    home = find_cgroup_home()
    assert home is not None
    left = [parent / DEAD / "1" for parent in home.parents.values()]
    for folder in left:
        folder.mkdir(parents=True)
    if by_the_next:
        Cgroups(home).sweep()
    else:
        remove_groups_of_the_dead()
    assert not any(folder.parent.exists() for folder in left)
