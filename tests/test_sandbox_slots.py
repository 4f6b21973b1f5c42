"""Uid ranges are never shared."""

import os
import subprocess
import sys

import pytest

from clawrl_gym.envs.sandbox.slots import SLOTS, UIDS_PER_SLOT, Slots, first_uid

pytestmark = pytest.mark.root


def test_ranges_lie_side_by_side_below_two_to_the_31():
    assert first_uid(1) - first_uid(0) == UIDS_PER_SLOT
    assert first_uid(SLOTS) < 1 << 31


def test_no_other_process_takes_a_slot_that_is_held():
    slots = Slots()
    held = {slots.take()[0] for _ in range(5)}
    code = (
        "from clawrl_gym.envs.sandbox.slots import Slots\n"
        f"slots = Slots(); slots._next = {min(held)}\n"
        "print(*[slots.take()[0] for _ in range(10)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    taken = {int(slot) for slot in done.stdout.split()}
    assert len(held | taken) == 15
    for slot in held:
        slots.give_back(slot, None)


def test_a_slot_comes_back_with_its_namespace():
    slots = Slots()
    slot, namespace = slots.take()
    assert namespace is None
    fd = os.open("/proc/self/ns/user", os.O_RDONLY)
    slots.give_back(slot, fd)
    assert slots.take() == (slot, fd)
    os.close(fd)
    slots.give_back(slot, None)
