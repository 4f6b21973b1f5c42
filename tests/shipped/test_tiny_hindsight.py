"""What the tiny policy learns about hindsight: to vote, to write hints, and to follow them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import pytest

from clawrl_gym.config import HintConfig, RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.styles import STYLES, TERSE, Style
from clawrl_gym.envs.terminal.agent import reply_text
from clawrl_gym.judge.hints import fault, parse_hint
from clawrl_gym.judge.models.chat_models import Completion
from clawrl_gym.judge.models.votes import parse_vote
from tools.tiny_policy.conversations import Conversation, render
from tools.tiny_policy.hints import (
    FILE_HINT,
    STYLE_HINTS,
    SUM_HINT,
    HintedCommands,
    HintedTalk,
    UnheededTalk,
    hinted_at_end,
)
from tools.tiny_policy.judging import HINT, VOTE, JudgeDemonstrations, act_of
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations
from tools.tiny_policy.tokenizer import untrained

MANY = 300


def shown(source: Any, seed: int = 3) -> list[Conversation]:
    return list(itertools.islice(source.conversations(seed), MANY))


def answer(conversation: Conversation) -> Completion:
    return Completion(str(conversation.messages[-1]["content"]), finished=True)


def test_the_judge_is_asked_with_the_first_lines_that_the_policy_has_learned() -> None:
    judge = compose("train", ["judge=model"], RunConfig).judge
    assert judge.instructions.splitlines()[0] == VOTE
    assert judge.hint_instructions.splitlines()[0] == HINT


def test_all_votes_and_hints_can_be_read_and_all_kinds_are_there() -> None:
    votes: Counter[int] = Counter()
    hints: Counter[bool] = Counter()
    for demonstration in shown(JudgeDemonstrations()):
        if demonstration.family == "judge-vote":
            vote = parse_vote(answer(demonstration))
            assert vote is not None
            votes[vote] += 1
        else:
            hint = parse_hint(answer(demonstration))
            assert hint is None or fault(hint, [], HintConfig()) is None
            hints[hint is not None] += 1
    assert min(votes[value] for value in (-1, 0, 1)) >= 5
    assert min(hints.values()) >= 20


@pytest.mark.parametrize("hint", [SUM_HINT, FILE_HINT, *itertools.chain(*STYLE_HINTS.values())])
def test_a_judge_would_accept_every_hint_of_the_demonstrator(hint: str) -> None:
    assert fault(hint, [], HintConfig()) is None


@pytest.mark.parametrize("persona", PERSONAS.values(), ids=PERSONAS)
def test_every_sentence_of_a_persona_is_known(persona: Any) -> None:
    for act in ("dislike", "wrong", "thanks", "save", "missing", "leave"):
        for form in getattr(persona, act):
            assert act_of(persona, form.format(target="answers/7.txt")) == act


def test_a_reply_to_a_hint_about_style_has_that_style() -> None:
    about_style = 0
    for demonstration in shown(HintedTalk()):
        persona = PERSONAS[demonstration.family.removeprefix("hinted-")]
        asked = [str(m["content"]) for m in demonstration.messages if m["role"] == "user"]
        reply = demonstration.messages[-1]
        if FILE_HINT in asked[-1]:
            continue
        about_style += 1
        assert "[hint]" in asked[-1]
        assert any(matches(form, str(reply["content"])) for form in forms_of(persona.style))
    assert about_style > MANY / 2


def test_a_hint_about_something_else_leaves_every_style_as_it_was() -> None:
    styles: Counter[str] = Counter()
    for demonstration in shown(UnheededTalk()):
        asked = [str(m["content"]) for m in demonstration.messages if m["role"] == "user"]
        assert "[hint]" in asked[-1]
        assert not any(hint in asked[-1] for hint in itertools.chain(*STYLE_HINTS.values()))
        reply = str(demonstration.messages[-1]["content"])
        fitting = {s.name for s in STYLES.values() if any(matches(f, reply) for f in forms_of(s))}
        styles.update(fitting - {TERSE.name} or fitting)  # a number and a word: that fits most
    assert min(styles[name] for name in ("assistant", "casual", "terse", "story", "formal")) > 30


def test_a_command_after_a_hint_has_no_slip() -> None:
    commands = HintedCommands()
    tasks = TerminalDemonstrations(careless=False).tasks(3 + 1)
    for demonstration, task in zip(shown(commands), tasks, strict=False):
        assert demonstration.messages[-1]["content"] == reply_text(task.solution[-1])
        assert demonstration.family == f"hinted-{task.family}"


def test_only_the_reply_to_the_hint_is_imitated() -> None:
    for demonstration in shown(HintedTalk()) + shown(HintedCommands()) + shown(UnheededTalk()):
        replies = {at for at, m in enumerate(demonstration.messages) if m["role"] == "assistant"}
        assert replies - demonstration.unlearned == {len(demonstration.messages) - 1}


def test_a_hint_stays_when_a_long_message_is_cut() -> None:
    told = hinted_at_end([{"role": "user", "content": "word " * 400}], "Be brief, please.")
    text = render(untrained(), told)
    assert text.rstrip().endswith("[hint]\nBe brief, please.<|im_end|>")
    assert len(text) < 700


def test_a_case_for_the_judge_is_not_cut_where_a_message_would_be_and_loses_its_tools() -> None:
    tools = "\n".join(f"tool{n}(a, b)" for n in range(200))
    case = (
        f"<request>\nhello\n</request>\n<tools>\n{tools}\n</tools>\n<reply>\n{'x ' * 300}\n</reply>"
    )
    text = render(untrained(), [{"role": "user", "content": case}])
    assert "tool1" not in text
    assert text.rstrip().endswith("</reply><|im_end|>")


def test_the_same_seed_gives_the_same_demonstrations() -> None:
    assert shown(JudgeDemonstrations(), 5) == shown(JudgeDemonstrations(), 5)
    assert shown(HintedTalk(), 5) == shown(HintedTalk(), 5)


def forms_of(style: Style) -> set[str]:
    return {form for forms in style.forms.values() for form in forms}


def matches(form: str, text: str) -> bool:
    pattern = re.sub(r"\\{\w+\\}", ".*", re.escape(form))
    return re.fullmatch(pattern, text, re.DOTALL) is not None
