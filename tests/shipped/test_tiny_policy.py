"""The tiny policy: tokenizer, terminal demonstrations, shipped folder, recipe."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.draw import STEMS
from clawrl_gym.envs.showcase.terminal.families import FAMILIES
from clawrl_gym.envs.showcase.terminal.generated import make_task, task_ids
from clawrl_gym.envs.terminal.agent import TerminalAgent, reply_text
from clawrl_gym.inference.models.shipped import shipped_dir
from tests.support.narrow import plain_text
from tools.tiny_policy import evaluation
from tools.tiny_policy.careless import SLIPS, demonstrated
from tools.tiny_policy.conversations import Conversation, encode, render
from tools.tiny_policy.phases import Phase
from tools.tiny_policy.recipe import Recipe, make, save
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations, shown_by
from tools.tiny_policy.training import TrainingPlan

MAX_SHIPPED_BYTES = 10_000_000


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(shipped_dir())


@pytest.mark.parametrize(
    "text",
    ["a b", "  two\n\n\tlines ", "naïve 🙂 \x00", "cut -d, -f2 a.csv > b.txt", "<tool_call>{}"],
)
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_the_mask_covers_the_replies_and_their_end_tokens_only(tokenizer: Any) -> None:
    source = TerminalDemonstrations(families=("trail",), careless=False)
    (conversation,) = itertools.islice(source.conversations(1), 1)
    (row,) = encode(tokenizer, [conversation])
    learned = [i for i, mask in zip(row.ids_T, row.mask_T, strict=True) if mask]
    replies = [m["content"] for m in conversation.messages if m["role"] == "assistant"]
    assert len(replies) == 3
    assert tokenizer.decode(learned) == "".join(f"{reply}<|im_end|>" for reply in replies)


def test_demonstrations_follow_from_the_seed_and_ask_as_the_agent_does(tokenizer: Any) -> None:
    first, again, other = (
        list(itertools.islice(TerminalDemonstrations().conversations(seed), 5))
        for seed in (1, 1, 2)
    )
    assert first == again != other
    asked = first[0].messages
    assert asked[:2] == TerminalAgent().messages([plain_text(asked[1])], [])
    assert render(tokenizer, asked[:2], ask=True).endswith("assistant\n")


def test_every_slip_is_wrong_and_its_share_leaves_both_answers() -> None:
    assert set(FAMILIES) - set(SLIPS) == {"find"}
    for task_id in task_ids("train", sorted(SLIPS))[:440]:
        task = make_task(task_id)
        right = task.solution[-1]
        assert demonstrated(task.family, right, 0.0) != right
        assert demonstrated(task.family, right, 0.99) == right


def test_an_earlier_command_that_does_more_than_print_a_file_is_refused() -> None:
    task = make_task("lookup-train-000001")
    with pytest.raises(TaskError, match="expected 'cat FILE'"):
        shown_by(task, "ls")


def test_the_shipped_folder_is_small_and_loads_offline() -> None:
    from transformers import AutoModelForCausalLM

    assert sum(path.stat().st_size for path in shipped_dir().iterdir()) < MAX_SHIPPED_BYTES
    model = AutoModelForCausalLM.from_pretrained(shipped_dir())
    assert 500_000 < sum(p.numel() for p in model.parameters()) < 4_000_000
    assert model.config.max_position_embeddings == 32_768
    assert model.config.architectures == ["Qwen3ForCausalLM"]


def test_the_shipped_policy_starts_imperfect_and_capable() -> None:
    facts = json.loads((shipped_dir() / "recipe.json").read_text())
    assert 0.2 <= facts["heldout_exact_match_greedy"]["all"] <= 0.6
    assert min(facts["heldout_exact_match_temperature_1"].values()) > 0.0
    assert facts["heldout_chats_greedy"]["all"] >= 0.8
    for persona, means in facts["heldout_conversations_greedy"].items():
        assert means["correct"] >= (0.4 if persona == "teacher" else 0.9)  # sums, not verdicts
        assert means["calls"] >= 0.95
    for means in facts["heldout_conversations_temperature_1"].values():
        assert 0.05 <= means["personalization"] <= 0.35


def test_naming_the_folder_imports_nothing_heavy() -> None:
    code = (
        "import sys, clawrl_gym.inference.models.resolve as t; t.shipped_dir();"
        "print({'torch', 'transformers', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


class Shown:
    """A source of its own: three commands on eight files, asked for in plain words."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        chance = random.Random(seed)
        while True:
            verb, program = chance.choice([("Show", "cat"), ("Remove", "rm"), ("Sort", "sort")])
            name = chance.choice(STEMS[:8])
            yield Conversation(
                [
                    {"role": "user", "content": f"{verb} {name}.txt."},
                    {"role": "assistant", "content": reply_text(f"{program} {name}.txt")},
                ],
                family=program,
            )


@pytest.mark.slow
def test_the_shortened_recipe_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Who has not learned when to end talks as long as may be.
    monkeypatch.setattr(evaluation, "MAX_REPLY_TOKENS", 32)
    short = Recipe(
        phases=(Phase("skill", Shown(), TrainingPlan(steps=1, warmup_steps=10)),),
        words=Shown(),
        heldout=Shown(),
        personas=(),
        tokenizer_conversations=300,
        heldout_tasks=24,
        heldout_answers=2,
        heldout_tools=1,
        heldout_repositories=1,
        heldout_pages=1,
        heldout_chats=1,
        threads=1,
    )
    before = make(short)
    longer = replace(
        short, phases=(Phase("skill", Shown(), TrainingPlan(steps=80, warmup_steps=10)),)
    )
    after = make(longer)
    save(after, longer, tmp_path)
    assert before.greedy is not None
    assert after.greedy is not None
    assert before.greedy.exact_match["all"] == 0.0
    assert after.losses[0] == before.losses[0]
    assert after.losses[-1] < after.losses[0] / 5
    assert after.greedy.exact_match["all"] > 0.25
    assert set(after.greedy.exact_match) == {"all", "cat", "rm", "sort"}
    assert json.loads((tmp_path / "recipe.json").read_text())["phases"]["skill"]["steps"] == 80
    assert (tmp_path / "model.safetensors").stat().st_size < MAX_SHIPPED_BYTES
