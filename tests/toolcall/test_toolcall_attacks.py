"""Code that a program grades earns 1 when it is right, and cannot talk the program into it."""

from random import Random

import pytest

from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.twins.programs import twins_of_program
from tests.support.toolcall_attacks import ATTACKS, HONEST, LIMITS, PROGRAMS, reward_of

QUICK = {
    "assertions": "equal to everything",
    "guards": "the file of the check",
    "one exit": "the token from the runner's frame",
    "caught": "trace of the caller",
    "unittest": "unittest's equality",
    "main": "exit code 127",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("name", PROGRAMS)
def test_right_code_earns_one_and_wrong_code_nothing(name):
    sandboxes = Sandboxes.of(LIMITS)
    for code in HONEST[:1]:
        assert reward_of(PROGRAMS[name], code, sandboxes) == 1.0
    assert reward_of(PROGRAMS[name], "def add(a, b): return a - b", sandboxes) == 0.0


@pytest.mark.sandbox
@pytest.mark.parametrize("name", QUICK)
def test_attacks_earn_nothing(name):
    (attack,) = [attack for attack in ATTACKS if attack.name == QUICK[name]]
    assert reward_of(PROGRAMS[name], attack.code, Sandboxes.of(LIMITS)) == 0.0


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_attack_earns_anything(name):
    sandboxes = Sandboxes.of(LIMITS)
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60
    assert all(reward_of(PROGRAMS[name], code, sandboxes) == 1.0 for code in HONEST)
    rewards = {one.name: reward_of(PROGRAMS[name], one.code, sandboxes) for one in ATTACKS}
    assert {attack for attack, reward in rewards.items() if reward > 0} == set()


def passes(program):
    try:
        exec(compile(program, "check", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code in (None, 0)
    except (AssertionError, ValueError):
        return False
    return True


@pytest.mark.parametrize(
    "program",
    [
        "pass\n",
        "assert 1 + 1 == 2",
        "assert 1 + 1 == 2 and 'a' in 'abc', 'no'\n",
        "import sys\nif 1 + 1 != 2:\n    sys.exit('wrong')\n",
        "import sys\nif 1 + 1 != 2 or not isinstance(1, int):\n    raise ValueError\nsys.exit()\n",
        "raise SystemExit",
        "raise SystemExit(0)",
        "import sys\nsys.exit(None)\n",
        "import sys\nok = 1 + 1 == 2\nsys.exit(0 if ok else 1)\n",
        "import sys\nok = 1 + 1 == 2 and 2 * 2 == 4\nsys.exit(int(not ok))\n",
        "def main():\n    assert 2 == 2\nif __name__ == '__main__':\n    exit(main())\n",
        "try:\n    assert 1 + 1 == 2\nexcept AssertionError:\n    exit(1)\n",
        "try:\n    assert 1 + 1 == 2\nexcept AssertionError as error:\n    print(error)\n",
        "for call in []:\n    assert call == 'x'\n",
        "def unused():\n    assert 1 == 2\n",
        "kind = 'a'\nsize = 3 if kind == 'a' else 4\nassert size == 3\n",
        "wrong = []\nif 1 != 1:\n    wrong += [1]\nif wrong:\n    raise SystemExit(str(wrong))\n",
        "import sys\nif 1 < 2:\n    sys.exit(0)\nassert 1 == 2\n",
        "import sys\ndef early():\n    sys.exit()\nearly()\nassert 1 == 2\n",
        "def check():\n    if 1 < 2:\n        return\n    assert 1 == 2\ncheck()\nassert 3 == 3\n",
        "with open('/dev/null') as file:\n    assert file.read() == ''\n",
    ],
)
def test_a_program_that_passes_has_twins_that_do_not(program):
    """Whatever its style: a twin that passed would cost right code its reward."""
    assert passes(program)
    for seed in range(20):
        twins = twins_of_program(program, Random(seed))
        assert twins
        assert not any(passes(twin) for twin in twins)
