"""Demonstrations of single skills: what is shown, and that a real shell shows the same."""

import itertools

import pytest

from clawrl_gym.agents.agent import Action
from clawrl_gym.envs.terminal.agent import TerminalAgent
from clawrl_gym.envs.terminal.composed.generated import compose, make_task
from clawrl_gym.envs.terminal.composed.library import SKILLS
from clawrl_gym.envs.terminal.env import TerminalEnv, split_submission
from tools.tiny_policy.skill_tasks import MAX_TURNS, SkillDemonstrations, looks_at


def test_each_conversation_ends_with_the_skill_and_its_submission():
    conversations = list(itertools.islice(SkillDemonstrations().conversations(1), 300))
    looked = 0
    for conversation in conversations:
        request, *middle, last = conversation.messages[1:]
        assert "You have 4 replies. Run submit" in str(request["content"])
        action = TerminalAgent().action(last)
        assert isinstance(action, Action)
        command, submits = split_submission(action.text)
        assert submits
        assert command
        assert len(middle) in (0, 2)
        looked += len(middle) == 2
    assert {conversation.family for conversation in conversations} == set(SKILLS)
    assert 0.65 < looked / len(conversations) < 0.85


def test_the_same_seed_shows_the_same_and_the_splits_share_no_request():
    first, again, heldout = (
        [c.messages[1]["content"] for c in itertools.islice(source.conversations(3), 60)]
        for source in (SkillDemonstrations(), SkillDemonstrations(), SkillDemonstrations("heldout"))
    )
    assert first == again
    assert not set(first) & set(heldout)


@pytest.mark.sandbox
def test_a_real_shell_shows_what_the_demonstrations_say():
    env = TerminalEnv(tasks="composed", max_turns=MAX_TURNS)
    try:
        for number in range(6):
            env.reset(options={"task": f"single-train-{number:06d}"})
            for command, output in looks_at(compose("single", "train", number).plan):
                assert env.step(command)[0] == output.rstrip("\n")
            assert make_task(f"single-train-{number:06d}").turns == 4
    finally:
        env.close()
