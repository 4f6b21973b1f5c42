"""Finding and filling cgroups, on folders that look like version 2 and on the real ones."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clawrl_gym.envs.sandbox.cgroup import (
    CgroupHome,
    Cgroups,
    find_cgroup_home,
    home_of,
    limits_kind,
    open_cgroups,
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


def test_version_1_gets_every_limit(tmp_path):
    parents = {name: tmp_path / name for name in ("memory", "pids", "cpu")}
    own = f"clawrl-{identity(os.getpid())}"
    for parent in parents.values():
        parent.mkdir()
    cgroups = Cgroups(CgroupHome(1, parents))
    cgroups.join("7", Limits(memory_mb=100, disk_mb=28, cpus=0.5, pids=10))
    written = {
        f"{name}/{file.name}": file.read_text()
        for name, parent in parents.items()
        for file in (parent / own / "7").iterdir()
    }
    assert written == {
        "memory/memory.limit_in_bytes": str(128 << 20),
        "memory/memory.memsw.limit_in_bytes": str(128 << 20),
        "memory/cgroup.procs": "0",
        "pids/pids.max": "13",
        "pids/cgroup.procs": "0",
        "cpu/cpu.cfs_quota_us": "50000",
        "cpu/cgroup.procs": "0",
    }
    assert not list(tmp_path.glob("*/*/cgroup.subtree_control"))
    (parents["pids"] / own / "7" / "cgroup.procs").write_text("3\n4\n")
    assert cgroups.processes("7") == [3, 4]
    assert cgroups.processes("8") == []
    assert not cgroups.remove("7")
    assert cgroups.remove("8")


def test_version_2_is_found_from_the_own_folder_upwards(tmp_path):
    own = tmp_path / "box/app/unit"
    own.mkdir(parents=True)
    mountinfo = (
        f"30 25 0:26 / /sys rw - sysfs sysfs rw\n"
        f"31 25 0:27 /docker/a {tmp_path} rw,nosuid shared:9 - cgroup2 cgroup rw\n"
        f"32 25 0:27 / /elsewhere rw shared:9 - cgroup2 cgroup rw\n"
    )
    cgroup = "1:name=systemd:/x\n0::/docker/a/box/app/unit\n"
    assert home_of(cgroup, mountinfo) is None
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert home_of(cgroup, mountinfo) == CgroupHome(2, {"": tmp_path})
    (tmp_path / "box/cgroup.subtree_control").write_text("memory pids\n")
    (own / "cgroup.subtree_control").write_text("memory cpu\n")
    assert home_of(cgroup, mountinfo) == CgroupHome(2, {"": tmp_path / "box"})
    assert home_of("1:name=systemd:/x\n", mountinfo) is None
    assert home_of(cgroup, "30 25 0:26 / /sys rw - sysfs sysfs rw\n") is None
    at_root = mountinfo.replace(" /docker/a ", " / ")
    assert home_of("0::/box/app\n", at_root) == CgroupHome(2, {"": tmp_path / "box"})


def test_version_1_is_found_by_controller_and_needs_memory_and_pids(tmp_path):
    for name in ("memory/a", "cpu,cpuacct/a", "pids/a"):
        (tmp_path / name).mkdir(parents=True)
    mounts = {
        "memory": f"31 25 0:27 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n",
        "cpu": f"32 25 0:28 / {tmp_path}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
        "pids": f"33 25 0:29 / {tmp_path}/pids rw - cgroup cgroup rw,pids\n",
    }
    cgroup = "4:memory:/a\n3:cpu,cpuacct:/a\n2:pids:/a\n0::/a\n"
    parents = {
        "memory": tmp_path / "memory/a",
        "pids": tmp_path / "pids/a",
        "cpu": tmp_path / "cpu,cpuacct/a",
    }
    assert home_of(cgroup, "".join(mounts.values())) == CgroupHome(1, parents)
    without_cpu = {name: path for name, path in parents.items() if name != "cpu"}
    assert home_of(cgroup, mounts["memory"] + mounts["pids"]) == CgroupHome(1, without_cpu)
    assert home_of(cgroup, mounts["memory"] + mounts["cpu"]) is None
    assert home_of("4:memory:/a\n2:pids:/none\n", "".join(mounts.values())) is None


@pytest.mark.parametrize(
    ("release", "own_user", "kind"),
    [("5.13.0-9", False, "none"), ("5.14.0-9", False, "rlimit"), ("6.1.0", False, "rlimit"),
     ("4.18.0", True, "rlimit"), ("4.18.0", False, "none")],
)  # fmt: skip
def test_without_cgroups_processes_are_counted_where_the_kernel_can(
    monkeypatch, tree, release, own_user, kind
):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert limits_kind(None, own_user=own_user) == kind
    assert limits_kind(Cgroups(tree), own_user=own_user) == "cgroup2"


V1 = {
    "memory": (["memory.limit_in_bytes"], ["memory.memsw.limit_in_bytes"]),
    "pids": (["pids.max"], []),
    "cpu": ([], ["cpu.cfs_quota_us"]),
}
V2 = {"": (["memory.max", "pids.max", "cgroup.procs"], ["memory.swap.max", "cpu.max"])}


@pytest.mark.parametrize("by_controller", [V1, V2], ids=["v1", "v2"])
def test_a_limit_that_cannot_be_set_is_an_error_where_it_is_needed(tmp_path, by_controller):
    home = CgroupHome(
        2 if by_controller is V2 else 1, {name: tmp_path / f"_{name}" for name in by_controller}
    )
    cgroups, own = Cgroups(home), f"clawrl-{identity(os.getpid())}"
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for parent in home.parents.values():
        (parent / own).mkdir(parents=True)
    for controller, (needed, not_needed) in by_controller.items():
        for file in not_needed:
            (home.parents[controller] / own / file / file).mkdir(parents=True)
            cgroups.join(file, Limits())
        for file in needed:
            (home.parents[controller] / own / file / file).mkdir(parents=True)
            with pytest.raises(IsADirectoryError, match=file):
                cgroups.join(file, Limits())
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_groups_that_no_process_may_join_are_not_used(tree, tmp_path):
    (tmp_path / f"{DEAD}").mkdir()
    cgroups = open_cgroups(tree)
    assert cgroups is not None
    assert cgroups.version == 2
    assert not (tmp_path / DEAD).exists()
    own = tmp_path / f"clawrl-{identity(os.getpid())}"
    control = own / "cgroup.subtree_control"
    (own / "probe/pids.max").unlink()
    (own / "probe/pids.max").mkdir()
    assert open_cgroups(tree) is None
    with pytest.raises(OSError, match="join a cgroup below") as refused:
        Cgroups(tree).open()
    assert refused.value.errno == errno.EISDIR
    control.unlink()  # of a kernel it says what is handed down; here it is a file
    control.mkdir()
    assert open_cgroups(tree) is None


def test_a_launcher_whose_empty_folder_was_swept_has_it_again(tree, tmp_path):
    Cgroups(tree).join("7", Limits())
    own = tmp_path / f"clawrl-{identity(os.getpid())}"
    assert (own / "7/cgroup.procs").read_text() == "0"
    assert (own / "cgroup.subtree_control").exists()


def test_what_is_in_a_group_of_version_2_is_read_from_its_one_folder(tree, tmp_path):
    cgroups, own = Cgroups(tree), tmp_path / f"clawrl-{identity(os.getpid())}"
    (own / "7").mkdir(parents=True)
    assert cgroups.processes("7") == []
    (own / "7/cgroup.procs").write_text("12\n345\n")
    assert cgroups.processes("7") == [12, 345]
    assert not cgroups.remove("7")
    (own / "7/cgroup.procs").unlink()
    assert cgroups.remove("7")
    assert cgroups.remove("7")  # what is gone is gone
    (own / "8").mkdir()
    cgroups.close()
    assert list(tmp_path.iterdir()) == []


def test_controllers_that_are_handed_down_are_memory_pids_and_cpu(tree, tmp_path):
    own = tmp_path / f"clawrl-{identity(os.getpid())}"
    os.mkfifo(tmp_path / "words")
    own.mkdir()
    (own / "cgroup.subtree_control").symlink_to(tmp_path / "words")
    reader = os.open(tmp_path / "words", os.O_RDONLY | os.O_NONBLOCK)
    try:
        Cgroups(tree).open()
        assert os.read(reader, 100) == b"+memory+pids+cpu"
    finally:
        os.close(reader)


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


def test_a_launcher_that_its_owner_has_left_is_waited_for(tree, tmp_path):
    program = [sys.executable, "-c", "print(flush=True); import sys; sys.stdin.read()"]
    with contextlib.ExitStack() as stack:
        for owner, swept in ((os.getpid(), True), (os.getppid(), False)):
            launcher = subprocess.Popen(  # its last argument is its owner
                [*program, str(owner)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.callback(launcher.communicate)
            assert launcher.stdout is not None
            launcher.stdout.readline()  # the kernel knows its arguments a moment after it exists
            (tmp_path / f"clawrl-{identity(launcher.pid)}").mkdir()
            assert Cgroups(tree).sweep() == swept
    assert Cgroups(tree).sweep(), "it has ended"
    assert list(tmp_path.iterdir()) == []


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
