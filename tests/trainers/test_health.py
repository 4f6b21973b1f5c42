"""Warnings that a reward does not show: each with what to do, and none of an ordinary run."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.metrics import Metrics
from clawrl_gym.core.types import Message, Sample, Turn
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review
from clawrl_gym.trainers.updates.learner import Learner
from clawrl_gym.trainers.updates.references import MOST, References, reply_tokens
from clawrl_gym.trainers.versions.health import HealthWarning, warnings_of
from clawrl_gym.ui.report import render_page
from clawrl_gym.ui.run_data import read_run

Row = dict[str, float]


def of_cause(cause: str, rows: list[Row], most: int | None = 2) -> HealthWarning:
    (found,) = [one for one in warnings_of(rows, most) if one.cause == cause]
    return found


def update(step: int, **values: float) -> Row:
    row = {
        "learner/entropy": 0.07, "learner/masked_share": 0.01, "learner/clip_share": 0.0,
        "staleness/mean": 1.2, "learner/waited_s": 4.0, "learner/step_s": 2.0,
        "train/reward": 0.1 * step, "language/reply_tokens": 12.0,
    }  # fmt: skip
    names = {"entropy": "learner/entropy", "lag": "staleness/mean"}
    return {"step": step, **row, **{names.get(k, f"learner/{k}"): v for k, v in values.items()}}


def evaluation(step: int, success: float, **values: float) -> Row:
    more = {name.replace("__", "/"): value for name, value in values.items()}
    return {"step": step, "heldout/success": success, "heldout/n": 120.0, **more}


def test_an_ordinary_run_says_nothing() -> None:
    """As the shipped policy's runs are: sure of itself, at times as far behind as it may be."""
    rows = [evaluation(0, 0.46) | {"language/reference_logprob": -0.024}]
    rows += [update(n, entropy=e, lag=g) for n, (e, g) in enumerate(
        [(0.071, 0.0), (0.080, 0.67), (0.055, 2.0), (0.26, 2.0), (0.057, 1.2), (0.014, 0.2)], 1
    )]  # fmt: skip
    rows += [evaluation(7, 0.99) | {"language/reference_logprob": -0.326}]
    assert warnings_of(rows, 2) == []
    assert warnings_of([], 2) == []


def test_an_update_that_masks_most_of_its_tokens_is_told_once() -> None:
    rows = [update(1), update(2, masked_share=0.83), update(3, masked_share=1.0)]
    warning = of_cause("masked", rows)
    assert warning.line.startswith(
        "WARNING: update 2 masked 83% of its tokens: the policy has moved"
    )
    assert "Lower learner.lr (with an adapter also learner.adapter.alpha)" in warning.line
    assert warnings_of([update(1, masked_share=0.5)], 2) == []


def test_clipped_tokens_are_told_as_well() -> None:
    warning = of_cause("clipped", [update(1, clip_share=0.6)])
    assert "update 1 clipped 60% of its tokens" in warning.line
    assert "trainer.minibatches" in warning.remedy


@pytest.mark.parametrize(
    ("waited_s", "step_s", "who", "what"),
    [
        (0.1, 9.0, "generation waits for the learner: 9.0 s for a step", "learner.threads"),
        (9.0, 0.5, "the learner waits for generation: 9.0 s for a batch", "policy.threads"),
    ],
)
def test_a_lag_at_its_maximum_names_who_is_waited_for(
    waited_s: float, step_s: float, who: str, what: str
) -> None:
    rows = [update(n, lag=2.0, waited_s=waited_s, step_s=step_s) for n in range(1, 5)]
    warning = of_cause("lag", rows)
    assert "the policy lag was 2.0 of at most 2 versions in updates 1 to 4" in warning.words
    assert who in warning.words
    assert what in warning.remedy
    assert warnings_of(rows[:3], 2) == [], "three updates are no state"
    assert warnings_of(rows, 3) == []
    assert warnings_of(rows, 0) == [], "a run in turns has no lag"


def test_a_reward_that_rises_while_the_first_replies_become_impossible_is_told() -> None:
    rows = [{"step": 0, "language/reference_logprob": -0.5, "heldout/reward": -1.03}]
    rows += [update(1), update(2)]
    rows += [{"step": 3, "language/reference_logprob": -6.2, "heldout/reward": 0.62}]
    warning = of_cause("language", rows)
    assert (
        "language collapses after 3 updates while the held-out reward rose from -1.03 to 0.62"
        in (warning.words)
    )
    assert "fell from -0.50 to -6.20 a token" in warning.words
    assert "replies have 12 tokens, 12 at first" in warning.words
    assert "trainer.kl_coef" in warning.remedy


@pytest.mark.parametrize(("first", "last"), [(1.8, 0.05), (0.07, 1.9)])
def test_an_entropy_that_collapses_or_explodes_is_told(first: float, last: float) -> None:
    rows = [update(1, entropy=first), *(update(n, entropy=last) for n in range(2, 5))]
    assert (
        f"its entropy went from {first:.2f} to {last:.2f} nats" in of_cause("language", rows).words
    )
    assert warnings_of(rows[:2], 2) == [], "one batch is no state"


def test_right_answers_that_fall_while_wishes_are_met_are_told() -> None:
    first = evaluation(0, 0.2, heldout__correct=0.98, heldout__personalization=0.03)
    between = {**evaluation(5, 0.9, heldout__correct=0.8), "heldout/n": 48.0}
    last = evaluation(9, 0.9, heldout__correct=0.90, heldout__personalization=1.0)
    warning = of_cause("forgets", [first, between, last])
    assert "(heldout/correct 98% to 90%) while heldout/personalization rose from 0.03 to 1" in (
        warning.words
    )
    slight = {**last, "heldout/correct": 0.94}
    assert warnings_of([first, between, slight], 2) == []
    assert warnings_of([first], 2) == []


def test_an_environment_of_a_mixture_that_is_forgotten_is_told() -> None:
    first = evaluation(0, 0.5, env__a__heldout__success=0.8, env__b__heldout__success=0.2)
    last = evaluation(9, 0.7, env__a__heldout__success=0.6, env__b__heldout__success=0.8)
    warning = of_cause("forgets", [first, last])
    assert "env/a/heldout/success 80% to 60%" in warning.words
    worse = evaluation(9, 0.3, env__a__heldout__success=0.6, env__b__heldout__success=0.1)
    assert warnings_of([first, worse], 2) == [], "nothing rose that could be shown instead"


def test_the_report_begins_with_the_warnings(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "trainer: {steps: 4}\nrollout: {mode: async, max_staleness: 2}\n"
    )
    metrics = Metrics(tmp_path, "none", {})
    for row in [update(n, lag=2.0, masked_share=0.9) for n in range(1, 5)]:
        metrics.log(int(row.pop("step")), row)
    metrics.close()
    page = render_page(read_run(tmp_path))
    assert "Update 1 masked 90% of its tokens" in page
    assert "The policy lag was 2.0 of at most 2 versions" in page
    assert page.index("Update 1 masked") < page.index('id="learning"')


def test_replies_of_a_batch_are_counted_one_by_one() -> None:
    mask_T = [False, True, True, False, False, True, True, True, True]
    sample = Sample("s", 0, [1] * 9, mask_T, [0.0] * 9, [0] * 9, [0.0] * 9, 0.0)
    assert reply_tokens([sample, sample]) == 3.0
    assert reply_tokens([]) is None


def turn(name: str, prompt: list[int], sampled: list[int], content: Any = "hello") -> Turn:
    messages: list[Message] = [{"role": "user", "content": content}]
    known: list[float | None] = [-1.0] * len(sampled)
    return Turn(name, 0, "main", prompt, sampled, known, [0] * len(sampled), "stop", messages,
                {"role": "assistant", "content": ""}, 0.0)  # fmt: skip


class Speaker:
    """A learner that finds every token equally likely, less each time it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[Sample]] = []

    async def review(self, batch: SampleBatch) -> Review:
        samples = batch.samples()
        self.asked.append(samples)
        return Review(0.5, [[-float(len(self.asked))] * sum(s.mask_T) for s in samples])


async def test_the_first_replies_are_read_again_after_a_restart(tmp_path: Path) -> None:
    speaker, file = Speaker(), tmp_path / "references.json"
    references = References(speaker.review, file)
    assert await references.measure(0) == {}
    picture = [{"type": "image_url", "image_url": {"url": "data:"}}]
    replies = [turn(f"h{n}", [1, 2], [3, 4, 5]) for n in range(40)]
    references.take([*replies, turn("seen", [1], [2], picture), turn("silent", [1], [])])
    assert await references.measure(0) == {"language/reference_logprob": -1.0}
    assert len(speaker.asked[0]) == MOST
    assert {tuple(s.ids_T) for s in speaker.asked[0]} == {(1, 2, 3, 4, 5)}
    later = References(speaker.review, file)
    assert await later.measure(7) == {"language/reference_logprob": -2.0}
    assert [s.ids_T for s in speaker.asked[1]] == [s.ids_T for s in speaker.asked[0]]


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "is_told"), [(1, False), (100, True)])
async def test_a_destructive_rate_is_told_and_the_ordinary_one_is_not(
    tmp_path: Path, factor: int, is_told: bool
) -> None:
    """The shipped policy learns three updates from its own replies to its own tasks, at the rate
    that it ships with; which replies are called good is chance."""
    model = str(resolve_model("tiny"))
    config = LearnerConfig(lr=8e-4 * factor, warmup_steps=2)
    learner = Learner(TrainerConfig(steps=20), config, model, 0, "cpu")

    async def review(batch: SampleBatch) -> Review:
        return learner.review(batch.samples())

    references = References(review, tmp_path / "references.json")
    first = own_samples(model, Path(model), range(100, 116))
    references.take([turn(s.session_id, *_parts(s)) for s in first])
    rows: list[Row] = [{"step": 0, **await references.measure(0)}]
    weights = tmp_path / "weights"
    shutil.copytree(model, weights)
    for version in range(3):
        learner.save_weights(str(weights))
        samples = own_samples(model, weights, range(16 * version, 16 * version + 16))
        stats = learner.step(samples, version)
        rows.append({"step": version + 1, **stats.metrics, **await references.measure(version + 1)})
    causes = {warning.cause for warning in warnings_of(rows, None)}
    assert causes == ({"language"} if is_told else set()), rows


def _parts(sample: Sample) -> tuple[list[int], list[int]]:
    at = sample.mask_T.index(True)
    return sample.ids_T[:at], sample.ids_T[at:]


def own_samples(model: str, weights: Path, seeds: range) -> list[Sample]:
    """Replies of some weights to people of the conversation environment, half of them good."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    net = AutoModelForCausalLM.from_pretrained(weights)
    tokenizer = AutoTokenizer.from_pretrained(model)
    env = ConversationEnv()
    samples = []
    for seed in seeds:
        said, _ = env.reset(seed=seed, options={"split": "train"})
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": said}], add_generation_prompt=True, tokenize=False
        )
        prompt = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        torch.manual_seed(seed)
        with torch.no_grad():
            ids = net.generate(prompt, do_sample=True, top_k=0, max_new_tokens=24)[0]
            logits = net(ids[None, :-1]).logits[0]
        start = prompt.shape[1]
        chances = torch.log_softmax(logits, -1)
        known = chances[torch.arange(len(ids) - 1), ids[1:]].tolist()[start - 1 :]
        n = len(known)
        good = 1.0 if seed % 2 else -1.0
        samples.append(
            Sample(
                f"s{seed}", seed, ids.tolist(), [False] * start + [True] * n,
                [0.0] * start + known, [-1] * start + [0] * n, [0.0] * start + [good] * n, good,
            )
        )  # fmt: skip
    return samples
