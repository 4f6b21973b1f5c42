"""The command `sft`: what it learns from and leaves out, how it goes on, what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import clawrl_gym as cg
from clawrl_gym.core.errors import ConfigError, ConfigErrors, TrainerError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Message, Sample, Turn
from clawrl_gym.dialogue.chats import read_row
from clawrl_gym.inference.models.renderer import ChatRenderer
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.weights.checkpoints import last_checkpoint, list_checkpoints
from clawrl_gym.run.sft import SftRun, preflight_sft, sft
from clawrl_gym.run.sft_data import SftData, SftReader
from clawrl_gym.sft import main
from clawrl_gym.store import SessionRow, Store
from clawrl_gym.trainers.updates.supervised import BatchOrder
from tests.support.pages import ROOT
from tests.support.tiny_models import TEMPLATE, make_random_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random_model(tmp_path_factory.mktemp("model") / "tiny", max_len=512)


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def a_chat(request: str, *replies: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": request}]
    for reply in replies:
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "more"}]
    return {"messages": messages[:-1]}


CHATS = [a_chat(f"copy file {n}", f"it is file {n}", "done") for n in range(20)]


def write(rows: list[Any], name: str = "chats.jsonl") -> Path:
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def config_of(model: Path, *overrides: str) -> cg.SftConfig:
    small = ("policy.max_model_len=512", "learner.lr=2e-3", "batch=4", "heldout=0.2")
    return cg.load_config([f"policy.model={model}", *small, *overrides], "sft")


def read(model: Path, *overrides: str) -> SftData:
    return SftReader(config_of(model, *overrides), model).read([])


def texts(model: Path, samples: list[Sample]) -> list[str]:
    """What is learned, reply by reply."""
    renderer = ChatRenderer(model)
    learned = [
        [token for token, is_learned in zip(s.ids_T, s.mask_T, strict=True) if is_learned]
        for s in samples
    ]
    return [renderer.decode(ids) for ids in learned]


# what is learned from


def test_a_folder_of_files_and_tables_is_read(model: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    write(CHATS[:3], "data/a.jsonl")
    parquet.write_table(pyarrow.Table.from_pylist(CHATS[3:6]), "data/b.parquet")
    Path("one.json").write_text(json.dumps(CHATS[6:8]))
    data = read(model, "data", "one.json", "heldout=0")
    assert len(data.train) == 8
    assert sorted(texts(model, data.train))[7] == "it is file 7<|im_end|>done<|im_end|>"
    write(CHATS[8:], "data/train.jsonl")
    assert len(read(model, "data", "heldout=0").train) == 12, "the files of training alone"


def test_a_table_of_a_data_set_that_was_saved_is_read(model: Path) -> None:
    from datasets import Dataset

    Dataset.from_list(CHATS[:3]).save_to_disk("saved")
    assert len(read(model, "saved", "heldout=0").train) == 3


def test_the_last_reply_alone(model: Path) -> None:
    file = write(CHATS[:2])
    assert (
        texts(model, read(model, str(file), "heldout=0", "learn_on=last").train)
        == ["done<|im_end|>"] * 2
    )


def test_what_is_held_out_is_the_same_for_every_seed_and_begins_otherwise(model: Path) -> None:
    again = [a_chat(f"copy file {n}", "another reply") for n in range(20)]
    file = write([*CHATS, *again])
    splits = [read(model, str(file), f"seed={seed}") for seed in (0, 1)]
    assert splits[0] == splits[1]
    held = {sample.session_id.rpartition(" ")[2] for sample in splits[0].heldout}
    assert 4 <= len(held) < 20
    assert held == {str((int(place) + 19) % 40 + 1) for place in held}, "both that begin alike"


def test_rows_that_cannot_be_learned_from_are_counted_with_their_places(model: Path) -> None:
    bad = a_chat("hello", "x")
    bad["messages"].append({"role": "assistant", "content": "again"})
    long = a_chat("hello", "word " * 900)
    file = write([*CHATS[:2], "{", bad, bad, long, bad, bad, "", [1]])
    assert [*read(model, str(file), "heldout=0").notes] == [
        "left out 4: roles out of order (chats.jsonl line 4, chats.jsonl line 5, "
        "chats.jsonl line 7, ...)",
        "left out 1: no JSON (chats.jsonl line 3)",
        "left out 1: longer than policy.max_model_len=512 tokens (chats.jsonl line 6)",
        "left out 1: no JSON object (chats.jsonl line 10)",
    ]


def test_replies_whose_prompt_drops_what_was_before_are_told(tmp_path: Path) -> None:
    template = TEMPLATE.replace(
        "{{ message.content or '' }}",
        "{% if loop.last or message.role != 'assistant' %}{{ message.content }}{% endif %}",
    )
    model = make_random_model(tmp_path / "forgetful", template=template)
    data = read(model, str(write(CHATS[:5])), "heldout=0")
    assert len(data.train) == 10
    assert data.notes == [
        "5 replies are sequences of their own, as their prompt does not begin with the turn "
        "before it (5 by template)"
    ]


# episodes of a run

GOOD, BAD = 1.0, 0.0


async def _play(folder: Path, model: Path, episodes: list[tuple[str, float | None, str]]) -> None:
    """Stores episodes (task, reward, what was said first), each of two replies."""
    renderer = ChatRenderer(model)
    store = Store.open(folder)
    for number, (task, reward, words) in enumerate(episodes):
        session = f"episode-{number}"
        split: Any = "heldout" if task.startswith("held") else "train"
        await store.add_session(SessionRow(session, task, 0, split, "rollout", 0.0))
        row = read_row(a_chat(f"do {task}", words, "done"), "all")
        for turn in renderer.turns(row, session):  # type: ignore[arg-type]
            await store.add_turn(as_sampled(turn))
        await store.end_session(session, reward=reward, stop_reason="terminated")
    await store.close()


def as_sampled(turn: Turn) -> Turn:
    """Greedily, which RL could not learn from; some log-probs are not known."""
    unknown: list[float | None] = [None for _ in turn.sampled_ids_T]
    versions = [0 for _ in turn.sampled_ids_T]
    return replace(
        turn, logprobs_T=unknown, versions_T=versions, untrainable="temperature", created_s=1.0
    )


def a_run(model: Path, *episodes: tuple[str, float | None, str], name: str = "runs/rl") -> Path:
    folder = Path(name)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"policy:\n  model: {model}\n")
    asyncio.run(_play(folder, model, list(episodes)))
    return folder


EPISODES = [
    ("a", GOOD, "first"), ("a", 2.0, "best"), ("a", 2.0, "newest"), ("b", GOOD, "only"),
    ("c", BAD, "wrong"), ("d", None, "lost"), ("held-e", GOOD, "unseen"),
]  # fmt: skip


def test_of_a_run_the_episodes_with_reward_are_learned_with_their_own_tokens(model: Path) -> None:
    run = a_run(model, *EPISODES)
    data = read(model, str(run), "heldout=0")
    said = ["first", "best", "newest", "only"]
    assert texts(model, data.train) == [f"{words}<|im_end|>done<|im_end|>" for words in said]
    best = read(model, str(run), "heldout=0", "episodes.per_task=1")
    assert [text.partition("<")[0] for text in texts(model, best.train)] == ["newest", "only"]
    more = read(model, str(run), "heldout=0", "episodes.min_reward=1.5")
    assert len(more.train) == 2


def test_episodes_of_another_vocabulary_are_rendered_anew(model: Path, tmp_path: Path) -> None:
    run = a_run(model, *EPISODES)
    other = resolve_model("tiny")
    data = read(other, str(run), "heldout=0")
    assert texts(other, data.train)[0] == "first<|im_end|>done<|im_end|>"
    assert any("are rendered anew from their messages" in note for note in data.notes)


def test_a_run_without_success_is_refused(model: Path) -> None:
    run = a_run(model, ("a", 0.5, "half"), ("held-b", GOOD, "unseen"))
    with pytest.raises(ConfigError, match=r"without an episode to imitate.*it has 1, the best wit"):
        read(model, str(run))


# the run itself


def learn(model: Path, *overrides: str) -> SftRun:
    return cg.run_sft(config_of(model, *overrides))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [dict(row) for row in read_json_lines(folder / "metrics.jsonl")]


def weights_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    files = [checkpoint / "model.safetensors", checkpoint / "adapter/adapter_model.safetensors"]
    weights: dict[str, torch.Tensor] = load_file(next(file for file in files if file.exists()))
    return weights


@pytest.mark.parametrize("learner", ["adamw", "lora"])
def test_the_held_out_loss_falls_and_the_checkpoint_is_a_policys_model(
    model: Path, learner: str
) -> None:
    run = learn(
        model, str(write(CHATS)), "epochs=6", f"learner={learner}", "run.dir=runs/sft",
        "learner.lr=1e-2",
    )  # fmt: skip
    assert run.losses[run.updates] < run.losses[0] - 1
    rows = rows_of(run.folder)
    assert [row["step"] for row in rows if "learner/loss" in row] == list(range(1, run.updates + 1))
    assert "held-out loss" in run.summary()
    # what train, evaluate, vLLM and transformers make of it
    config = cg.load_config(["policy.model=runs/sft"], "train")
    assert config.policy.model == str(last_checkpoint(run.folder))
    from transformers import AutoModelForCausalLM

    whole = resolve_model(config.policy.model)
    net = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32)
    sample = run.data.heldout[0]
    logprobs = net(torch.tensor([sample.ids_T])).logits[0].log_softmax(-1).detach()
    learned = [t for t, is_learned in enumerate(sample.mask_T) if is_learned]
    own = -sum(float(logprobs[t - 1, sample.ids_T[t]]) for t in learned) / len(learned)
    assert own < run.losses[0] - 1
    assert cg.export_run(run.folder, "out").step == run.updates
    card = Path("out/README.md").read_text()
    assert "| command | sft (supervised learning) |" in card
    assert "| environment |" not in card, "no demonstration was played"


def test_memory_that_is_short_names_the_keys_of_this_command(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", full)
    with pytest.raises(TrainerError, match=r"lower max_tokens_per_pack=2048"):
        learn(model, str(write(CHATS)))


class Stopped(Exception):
    """A test has seen enough."""


async def _interrupted(config: cg.SftConfig, after: str) -> None:
    """Cancels the run once it says something that begins so."""
    loop = asyncio.get_running_loop()
    said = asyncio.Event()

    def hear(part: str, phase: str) -> None:
        if phase.startswith(after):
            loop.call_soon_threadsafe(said.set)

    task = asyncio.ensure_future(sft(config, on_phase=hear))
    hearing = asyncio.ensure_future(said.wait())
    await asyncio.wait([task, hearing], return_when=asyncio.FIRST_COMPLETED)
    hearing.cancel()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None


@pytest.mark.parametrize("learner", ["adamw", "lora"])
def test_a_run_that_was_interrupted_ends_with_the_very_weights(model: Path, learner: str) -> None:
    file = write(CHATS)
    settings = [str(file), "epochs=8", f"learner={learner}"]
    whole = learn(model, *settings, "run.dir=whole")
    config = config_of(model, *settings, "run.dir=cut")
    asyncio.run(_interrupted(config, "held-out loss after update 4"))
    begun = max(list_checkpoints(Path("cut/checkpoints")))
    assert 4 <= begun < whole.updates
    assert main(["resume=cut"]) == 0
    ends = [last_checkpoint(Path(name)) for name in ("whole", "cut")]
    assert [int(end.name) for end in ends] == [whole.updates] * 2
    first, second = map(weights_of, ends)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)

    def by_step(name: str) -> dict[int, float]:
        return {r["step"]: r["learner/loss"] for r in rows_of(Path(name)) if "learner/loss" in r}

    assert by_step("whole") == by_step("cut")
    assert main(["resume=cut"]) == 0, "what is done stays done"


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(model: Path) -> None:
    file = write(CHATS)
    arguments = [str(file), f"policy.model={model}", "policy.max_model_len=512", "run.dir=sft"]
    with subprocess.Popen(
        [sys.executable, "-m", "clawrl_gym.sft", *arguments, "steps=1000000", "batch=4"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("sft: held-out loss after update"):
                break
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.endswith("resume with: python -m clawrl_gym.sft resume=sft\n")
    assert last_checkpoint(Path("sft"))


def test_checkpoints_are_the_newest_and_the_best_on_what_is_held_out(model: Path) -> None:
    same = [a_chat(f"copy file {n}", "it is so") for n in range(12)]
    other = [a_chat(f"sort file {n}", "another") for n in range(60)]
    run = learn(model, str(write([*same, *other])), "epochs=6", "learner.lr=3e-2", "heldout=0.3")
    kept = set(list_checkpoints(run.folder / "checkpoints"))
    measured = {update: loss for update, loss in run.losses.items() if update}
    newest = sorted(measured)[-2:]
    assert kept == {*newest, min(measured, key=lambda update: measured[update])}


def test_an_epoch_takes_everything_once() -> None:
    order = BatchOrder(samples=10, batch=4, seed=1)
    epochs = [[order.indices(3 * epoch + n) for n in range(3)] for epoch in range(2)]
    assert [list(map(len, epoch)) for epoch in epochs] == [[4, 4, 2]] * 2
    assert [sorted(chain(*epoch)) for epoch in epochs] == [list(range(10))] * 2
    assert epochs[0] != epochs[1]
    assert epochs[0] != [BatchOrder(10, 4, 2).indices(n) for n in range(3)]


def test_rates_are_those_of_supervision_and_of_what_is_trained() -> None:
    def rate(*overrides: str) -> float:
        return cg.load_config(["chats.jsonl", *overrides], "sft").learner.lr

    assert rate("policy=qwen3_0_6b") == 2e-5
    assert rate("policy=qwen3_0_6b", "learner=lora") == 2e-4
    assert rate("policy=qwen3_0_6b", "learner=lora", "learner.lr=1e-3") == 1e-3
    assert rate() == 2e-3, "of the tiny policy"
    packs = cg.load_config(["x.jsonl", "policy=qwen3_0_6b"], "sft").max_tokens_per_pack
    assert packs == cg.load_config(["policy=qwen3_0_6b"]).trainer.max_tokens_per_pack


def test_a_dry_run_says_how_much_there_is(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write([*CHATS, "{"])
    assert (
        main([str(file), f"policy.model={model}", "dry_run=true", "policy.max_model_len=512"]) == 0
    )
    out = capsys.readouterr().out
    assert "sequences to learn from" in out
    assert "left out 1: no JSON (chats.jsonl line 21)" in out
    assert not Path("runs").exists()


# demonstrations


@pytest.mark.sandbox
@pytest.mark.parametrize("protocol", ["native", "text"])
def test_the_oracles_episodes_are_learned(
    protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["demonstrations=6", "env=toolcall_plain", "batch=3", "epochs=1", "run.dir=demo"]
    assert main([*arguments, f"agent.protocol={protocol}", "heldout=0.3"]) == 0
    rows: list[dict[str, Any]] = [
        dict(row) for row in read_json_lines(Path("demo/demonstrations.jsonl"))
    ]
    assert len({row["task"] for row in rows}) == 6
    assert all("train" in row["task"] for row in rows)
    replies = [m for row in rows for m in row["messages"] if m["role"] == "assistant"]
    written = ("tool_calls" in replies[0], "<tool_call>" in str(replies[0]["content"]))
    assert written == (protocol == "native", protocol == "text")
    assert "sequences to learn from" in capsys.readouterr().out
    assert main(["resume=demo"]) == 0


@pytest.mark.sandbox
def test_in_the_terminal_the_oracle_submits() -> None:
    cg.run_sft(["demonstrations=2", "env=terminal_plain", "steps=1", "run.dir=demo", "heldout=0"])
    for row in read_json_lines(Path("demo/demonstrations.jsonl")):
        messages: Any = row["messages"]
        assert messages[-1]["content"] == "```bash\nsubmit\n```"


# what is refused


def refusals(*arguments: str) -> str:
    with pytest.raises(ConfigError) as refused:
        preflight_sft(cg.load_config(list(arguments), "sft"))
    error = refused.value
    return "\n".join(error.lines) if isinstance(error, ConfigErrors) else str(error)


@pytest.fixture
def places(model: Path) -> Callable[[str], str]:
    write(CHATS, "good.jsonl")
    write([], "empty.jsonl")
    write(["{", "["], "no_json.jsonl")
    write([{"text": "hello"}], "texts.jsonl")
    write(["x"], "notes.txt")
    Path("bare").mkdir()
    Path("broken.parquet").write_bytes(b"no table")
    bare = make_random_model(Path("no_template"), template="")
    settings = json.loads((bare / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (bare / "tokenizer_config.json").write_text(json.dumps(settings))
    return lambda text: text.format(model=model)


REFUSED = [
    ("", r"got no data, expected chats, a run's folder or demonstrations"),
    ("nothing.jsonl", r"got data 'nothing.jsonl', which does not exist"),
    ("empty.jsonl", r"got empty.jsonl without a row"),
    ("no_json.jsonl", r"nothing to learn from in no_json.jsonl.*left out 2: no JSON \(no_json.jso"),
    ("texts.jsonl", r"left out 1: neither of the forms"),
    ("notes.txt", r"got data 'notes.txt', expected a .jsonl, .json or .parquet file"),
    ("bare", r"a folder without .jsonl or .parquet files and without a run.db"),
    ("broken.parquet", r"cannot read broken.parquet"),
    ("good.jsonl policy.model=no_template", r"no chat template, expected one for data of chats"),
    ("good.jsonl policy.max_model_len=99999", r"longer than the \d+ tokens that the model"),
    ("good.jsonl policy.model=nobody", r"not a folder here .* and not an id like"),
    ("good.jsonl learner=simulated", r"expected torch: no other one learns from supervision"),
    ("good.jsonl heldout=0.9999", r"nothing to learn from in good.jsonl.*all of it is held out"),
    ("good.jsonl env=gui", r"got env without demonstrations, expected demonstrations=N"),
    ("good.jsonl data=good.jsonl", r"got good.jsonl and data="),
    ("good.jsonl bach=3", r"did you mean 'batch'\?"),
    ("good.jsonl trainer=opd", r"got trainer=, which sft does not have"),
    ("good.jsonl --config x.yaml", r"got --config, expected keys, or resume=FOLDER"),
    ("resume=nowhere", r"nowhere holds no run"),
    ("demonstrations=3 env.target=tests.support.guess_run:NumberEnv", r"has no oracle"),
    ("demonstrations=3 agent.type=harness agent.command=[x]", r"agent.type=harness"),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED)
def test_what_cannot_be_learned_from_is_one_clear_line(
    arguments: str, says: str, places: Callable[[str], str], model: Path
) -> None:
    given = places(arguments).split()
    if "resume" not in arguments and "policy.m" not in arguments:
        given += [f"policy.model={model}", "policy.max_model_len=512"]
    assert re.search(says, refusals(*given))
    assert not Path("runs").exists()


def test_a_run_goes_on_with_its_own_configuration_and_data(model: Path) -> None:
    file = write(CHATS)
    learn(model, str(file), "steps=2", "run.dir=sft", "every=1")
    assert "together with resume=" in refusals("resume=sft", "epochs=3")
    assert "together with resume=" in refusals("resume=sft", "chats.jsonl")
    assert "holds a run already" in refusals(str(file), f"policy.model={model}", "run.dir=sft")
    with pytest.raises(ConfigError, match=r"a run of the command sft, expected one of train"):
        cg.load_config(["resume=sft"])
    Path("rl").mkdir()
    Path("rl/config.yaml").write_text("trainer: {}\n")
    assert "expected a run of the command sft" in refusals("resume=rl")
    write(CHATS[1:])
    with pytest.raises(ConfigError, match="got other data than sft began with"):
        cg.run_sft(["resume=sft"])


def test_messages_of_a_request_are_rendered_as_the_policys_server_does(model: Path) -> None:
    renderer = ChatRenderer(model)
    messages: list[Message] = [{"role": "user", "content": "copy"}]
    (turn,) = renderer.turns(read_row(a_chat("copy", "it is"), "all"), "s")  # type: ignore[arg-type]
    assert renderer.prompt_ids(messages) == turn.prompt_ids_T
