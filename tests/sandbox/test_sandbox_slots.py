"""Uid ranges are never shared."""

import contextlib
import os
import subprocess
import sys

import pytest

from clawrl_gym.envs.sandbox.slots import (
    TOO_HIGH_FOR_BWRAP,
    UIDS_PER_SLOT,
    Slots,
    first_uid,
    usable_slots,
)

ALL = [(0, 1 << 32)]
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
OWN = range(36_762 - 100 * WORKER, 36_862 - 100 * WORKER)
"""At a place that nobody else is likely to use, the end of the uid space; each worker's own, since
tests of one file may run in several."""
STRANGERS = "from clawrl_gym.envs.sandbox.slots import Slots\n"


@pytest.fixture
def slots():
    with contextlib.closing(Slots([OWN])) as slots:
        yield slots


def uids(parts):
    return [first_uid(slot) for part in parts for slot in part]


def test_a_whole_uid_space_has_room_for_tens_of_thousands():
    everywhere = uids(usable_slots([ALL, ALL], []))
    assert len(everywhere) > 30_000
    assert min(everywhere) >= 0x7000_0000
    assert max(everywhere) + UIDS_PER_SLOT < 0xFFFF_FFFE
    assert len({uid // UIDS_PER_SLOT for uid in everywhere}) == len(everywhere)


def test_a_program_that_counts_users_in_31_bits_gets_numbers_that_it_can_say():
    low = uids(usable_slots([ALL, ALL], [TOO_HIGH_FOR_BWRAP]))
    assert len(low) > 4_000
    assert max(low) + UIDS_PER_SLOT <= 1 << 31


@pytest.mark.parametrize(
    ("existing", "claimed", "count"),
    [
        ([ALL, [(0, 65_536)]], [], 0),
        ([[(0, 100)], [(0, 100)]], [], 0),
        ([[(0x7000_0000, 0x7000_0000 + 65_535)], ALL], [], 0),
        ([[(0x7000_0001, 0x7003_0001)], ALL], [], 2),
        ([[(0x7000_0000, 0x7002_0000)], ALL], [(0x7001_0000, 0x7001_0001)], 1),
        ([[(0x7000_0000, 0x7004_0000)], ALL], [(0x7001_FFFF, 0x7002_0001), (0, 1000)], 2),
    ],
)
def test_only_ranges_that_exist_and_that_nobody_claims_are_used(existing, claimed, count):
    assert len(uids(usable_slots(existing, claimed))) == count


@pytest.mark.root
def test_a_uid_space_of_a_hundred_is_handed_out_once_and_then_refused(slots):
    assert len({slots.take()[0] for _ in range(100)}) == 100
    with pytest.raises(OSError, match="all 100 uid ranges of this machine are taken"):
        slots.take()
    slots.give_back(OWN[38], None)
    assert slots.take() == (OWN[38], None)


@pytest.mark.root
def test_five_thousand_of_one_process_are_five_thousand():
    with contextlib.closing(Slots(usable_slots())) as slots:
        assert len({slots.take()[0] for _ in range(5_000)}) == 5_000


@pytest.mark.root
def test_no_other_open_file_takes_a_slot_that_is_held(slots):
    held = {slots.take()[0] for _ in range(20)}
    with contextlib.closing(Slots([OWN])) as second:
        held |= {second.take()[0] for _ in range(20)}
        code = STRANGERS + (f"slots = Slots([{OWN}])\nprint(*[slots.take()[0] for _ in range(60)])")
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(held | {int(slot) for slot in done.stdout.split()}) == 100


@pytest.mark.root
def test_a_process_that_was_killed_holds_nothing(slots):
    code = STRANGERS + (
        f"import os\nslots = Slots([{OWN}])\n"
        "[slots.take() for _ in range(100)]\nos.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert len({slots.take()[0] for _ in range(100)}) == 100


@pytest.mark.root
def test_a_slot_comes_back_with_its_namespace(slots):
    slot, namespace = slots.take()
    assert namespace is None
    fd = os.open("/proc/self/ns/user", os.O_RDONLY)
    slots.give_back(slot, fd)
    assert slots.take() == (slot, fd)
    os.close(fd)
    slots.give_back(slot, None)
