"""Wrong patches that try to be rewarded earn nothing, and leave a grade."""

import pytest

from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.showcase.swe.corpus import make_instance
from clawrl_gym.envs.swe.config import SweEnvConfig
from tests.support.swe_attacks import (
    ATTACKS,
    GROUNDS,
    SABOTAGE,
    Attack,
    attacked,
    graded,
    sabotaged,
    sandboxes,
    small_env,
)

pytestmark = pytest.mark.sandbox

QUICK = {
    "corpus, pytest": ("equal to everything", "a plugin that passes all"),
    "corpus, unittest": ("the expected value, from the caller's line", "kills its parent"),
    "corpus, node": ("assertions do nothing", "a printed log and exit 0"),
    "row, new tests": ("pytest's reports replaced", "the log is a FIFO"),
    "row, swebench 5": ("a printed log and os._exit(0)",),
    "row, edited test": ("test files overwritten when the module is loaded",),
    "row, SWE-smith": (
        "equal and unequal to everything",
        "a filter between the runner and its log",
    ),
    "own repository": ("pytest's reports replaced",),
    "row, unittest": ("unittest's assertions do nothing", "no module named pytest"),
}


@pytest.fixture(scope="module")
def opener() -> Sandboxes:
    return sandboxes()


@pytest.mark.parametrize("ground", GROUNDS)
def test_what_solves_the_issue_earns_one(opener, ground):
    instance = GROUNDS[ground]()
    assert graded(instance, instance.patch, opener).reward == 1.0


@pytest.mark.parametrize(
    ("ground", "name"), [(ground, name) for ground, names in QUICK.items() for name in names]
)
def test_attacks_earn_nothing(opener, ground, name):
    (attack,) = [attack for attack in ATTACKS[ground] if attack.name == name]
    instance = GROUNDS[ground]()
    assert graded(instance, attacked(instance, attack), opener).reward == 0.0


def test_there_are_sixty_different_attacks_on_each_language_but_node():
    for ground, attacks in ATTACKS.items():
        assert len({attack.name for attack in attacks}) == len(attacks)
        assert len(attacks) >= (25 if "node" in ground else 60)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ground", GROUNDS)
def test_no_attack_earns_anything(opener, ground):
    instance = GROUNDS[ground]()
    rewards = {
        attack.name: graded(instance, attacked(instance, attack), opener).reward
        for attack in ATTACKS[ground]
    }
    assert {name for name, reward in rewards.items() if reward > 0} == set()


_RUBY = {
    "assertions do nothing": "module Minitest::Assertions\n  def assert(*) = true\nend\n",
    "equal to everything": "class Units::Any; def ==(o) = true; def !=(o) = false; end\n"
    "def Units.convert(*) = Units::Any.new\ndef Units.format(*) = Units::Any.new\n",
    "a printed log": 'puts "Units#test_0001_x = 0.00 s = ."\nexit!(0)\n',
}


@pytest.mark.docker
@pytest.mark.slow
def test_ruby_has_twins_too():
    from clawrl_gym.envs.sandbox.docker.images import SWE_IMAGE, ensure_image

    ensure_image(SWE_IMAGE, print)
    config = SweEnvConfig().sandbox.model_copy(update={"type": "docker", "image": SWE_IMAGE})
    docker = Sandboxes.of(config)
    instance = make_instance("swe-units-train-000000")
    assert graded(instance, instance.patch, docker).reward == 1.0
    for name, code in _RUBY.items():
        attack = Attack(name, code)
        assert graded(instance, attacked(instance, attack), docker).reward == 0.0, name


@pytest.mark.parametrize(
    "name", ["git is a FIFO", "disk full", "kill 1", "tmp a file", "submit git path"]
)
def test_a_spoilt_workspace_earns_nothing(name):
    env = small_env()
    assert sabotaged(env, SABOTAGE[name]) == 0.0
    env.close()


@pytest.mark.nightly
@pytest.mark.slow
def test_no_spoilt_workspace_earns_anything_or_leaves_no_grade():
    env = small_env()
    assert {name: reward for name in SABOTAGE if (reward := sabotaged(env, SABOTAGE[name]))} == {}
    env.close()
