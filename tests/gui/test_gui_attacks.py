"""Replies that do not do what was asked for earn nothing on pages, and leave a grade."""

import pytest

from tests.support.gui_attacks import ATTACKS, attacked_tasks, reward_of
from tests.support.gui_sites import paper_env
from tests.support.gui_sites import reward_of as reward_of_oracle


@pytest.mark.parametrize("task_id", attacked_tasks())
def test_no_attack_earns_anything_on_generated_pages(task_id):
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60
    env = paper_env()
    rewards = {attack.name: reward_of(env, task_id, attack) for attack in ATTACKS}
    assert {name for name, reward in rewards.items() if reward > 0} == set()
    assert reward_of_oracle(env, task_id) == 1.0
    env.close()
