"""GGUF files become folders whose model and tokenizer are the file's own; others are refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models import resolve as models
from clawrl_gym.inference.models.gguf import gguf_of
from clawrl_gym.inference.models.gguf_conversion import write_folder
from clawrl_gym.inference.models.resolve import find_model, is_shipped, resolve_model
from clawrl_gym.inference.models.servable import model_problems
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from tests.inference.tiny_gguf import write_gguf
from tests.reference.tiny_model import make_samples

pytestmark = pytest.mark.timeout(600)
CHAT = [
    {"role": "user", "content": "Copy the file, 12 times."},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "  And 345?"},
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "clawrl_gym" / "converted"


@pytest.mark.slow
def test_a_converted_model_is_the_one_that_the_file_holds(tmp_path: Path, cache: Path) -> None:
    file = write_gguf(tmp_path / "a" / "model.gguf")
    folder = resolve_model(str(file))
    assert folder.parent == cache
    assert list(model_problems(folder, PolicyConfig(max_model_len=512))) == []
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())

    place = str(file.parent)
    direct = AutoModelForCausalLM.from_pretrained(place, gguf_file=file.name, dtype=torch.float32)
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    their_tokens = AutoTokenizer.from_pretrained(place, gguf_file=file.name)
    our_tokens = AutoTokenizer.from_pretrained(folder)
    ids, expected = (
        tokens.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
        for tokens in (our_tokens, their_tokens)
    )
    assert ids == expected
    with torch.no_grad():
        logits, their_logits = (model(torch.tensor([ids])).logits for model in (ours, direct))
    assert torch.equal(logits, their_logits)
    written = next(t for t in gguf.GGUFReader(file).tensors if t.name == "blk.1.ffn_down.weight")
    values = torch.from_numpy(gguf.dequantize(written.data, written.tensor_type))
    assert torch.equal(ours.model.layers[1].mlp.down_proj.weight.data, values)

    assert our_tokens.pad_token is None, "packs need none"
    assert "lm_head.weight" not in load_file(folder / "model.safetensors"), "it is tied"
    sample = replace(make_samples([40])[0], ids_T=ids[:40])
    net = PackedModel(str(folder), "cpu")
    scores = net.score(make_packs([sample], 64)[0])
    expected = torch.log_softmax(logits[0], -1)
    chosen = [float(expected[i - 1, ids[i]]) for i, m in enumerate(sample.mask_T) if m]
    assert scores.logprobs_M.tolist() == pytest.approx(chosen, abs=1e-4)
    scores.logprobs_M.sum().backward()
    inner: Any = net.net
    head, embedding = inner.get_output_embeddings(), inner.get_input_embeddings()
    assert head.weight is embedding.weight
    assert embedding.weight.grad.abs().sum() > 0


@pytest.mark.slow
def test_a_file_is_converted_once_for_all_processes_and_wherever_it_lies(
    tmp_path: Path, cache: Path
) -> None:
    file = write_gguf(tmp_path / "a" / "model.gguf")
    program = (
        "from clawrl_gym.inference.models.resolve import resolve_model\n"
        f"print(resolve_model({str(file)!r}))"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=500) for process in both]
    folders = {stdout.decode().strip() for stdout, _ in outputs}
    assert folders == {str(path) for path in cache.iterdir() if path.is_dir()}
    assert sum(stderr.count(b"this happens once") for _, stderr in outputs) == 1

    elsewhere = tmp_path / "b"
    elsewhere.mkdir()
    shutil.copyfile(file, elsewhere / "renamed.gguf")
    assert {str(resolve_model(str(elsewhere)))} == folders
    assert find_model(str(file)) == resolve_model(str(file))


def test_a_file_that_cannot_be_converted_is_refused_in_a_line_and_leaves_nothing(
    tmp_path: Path, cache: Path
) -> None:
    file = write_gguf(tmp_path / "model.gguf", "Q8_1")
    says = r"weights in Q8_1, expected one of F32, F16, Q4_0, .* take the model in another"
    with pytest.raises(ConfigError, match=says) as refused:
        resolve_model(str(file))
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"architecture": "nonsense"}, "architecture nonsense is not supported"),
        ({"words": {"model": "odd"}}, "stating tokenizer 'odd'"),
    ],
)
def test_a_model_of_an_unknown_kind_is_refused(
    words: dict[str, Any], says: str, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "model.gguf", "Q8_0", **words)
    with pytest.raises(ValueError, match=says):
        write_folder(file, tmp_path / "out")


def test_a_quantization_that_nobody_knows_is_refused_with_those_that_are(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", "Q8_0")
    content = bytearray(file.read_bytes())
    name = b"token_embd.weight"
    at = content.index(name) + len(name) + 4 + 2 * 8
    assert content[at] == gguf.GGMLQuantizationType.Q8_0
    content[at] = 99
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"type 99, a quant.* expected one of .*Q4_1") as error:
        write_folder(file, tmp_path)
    assert "another quantization" in str(error.value)


def test_a_file_that_is_cut_off_or_none_is_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf")
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ValueError, match="expected a whole GGUF file"):
        write_folder(file, tmp_path)
    file.write_bytes(b"something else")
    with pytest.raises(ValueError, match="expected a whole GGUF file"):
        write_folder(file, tmp_path)


def test_which_file_a_path_means(tmp_path: Path) -> None:
    (tmp_path / "one.gguf").touch()
    assert gguf_of(tmp_path) == gguf_of(tmp_path / "one.gguf") == tmp_path / "one.gguf"
    (tmp_path / "two.gguf").touch()
    with pytest.raises(ConfigError, match=r"holds 2 GGUF files \(one.gguf, two.gguf\)"):
        gguf_of(tmp_path)
    (tmp_path / "config.json").touch()
    assert gguf_of(tmp_path) is None, "the folder has a model of its own"
    part = tmp_path / "model-00001-of-00003.gguf"
    part.touch()
    with pytest.raises(ConfigError, match=r"one part of 3, .* --merge"):
        gguf_of(part)
    assert not is_shipped(str(tmp_path / "one.gguf"))


@pytest.mark.slow
def test_plain_values_keep_their_type_and_all_end_tokens_stay(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", "F16", words={"eot_token_id": 0})
    folder = tmp_path / "out"
    write_folder(file, folder)
    kinds = {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()}
    assert kinds == {torch.float16}
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [2, 0]


@pytest.mark.slow
def test_numbers_are_cut_as_the_files_own_tokenizer_does(tmp_path: Path) -> None:
    """By llama.cpp's rule for these kinds: each digit is a piece before all else is looked at."""
    pieces = {}
    for kind in ("gpt-2", "smollm"):
        file = write_gguf(tmp_path / kind / "model.gguf", words={"pre": kind})
        write_folder(file, tmp_path / kind / "out")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / kind / "out").backend_tokenizer
        pieces[kind] = [text for text, _ in tokenizer.pre_tokenizer.pre_tokenize_str("a  12")]
    space = "Ġ"
    assert pieces["smollm"] == ["a", space + space, "1", "2"]
    assert pieces["gpt-2"] == ["a", space, space + "12"]


@pytest.mark.slow
def test_a_tokenizer_that_cuts_by_an_unknown_rule_is_warned_of(tmp_path: Path) -> None:
    said = {}
    for kind in ("gpt-2", "smollm", "llama-bpe", "something-new"):
        file = write_gguf(tmp_path / kind / "model.gguf", words={"pre": kind})
        said[kind] = write_folder(file, tmp_path / kind / "out")
    assert [kind for kind, words in said.items() if words] == ["something-new"]
    assert "the rule 'something-new', which is not known" in said["something-new"]


@pytest.mark.slow
def test_a_file_without_a_chat_template_is_refused_as_any_such_model(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", template=None)
    write_folder(file, tmp_path / "out")
    (problem,) = model_problems(tmp_path / "out", PolicyConfig(max_model_len=512))
    assert re.search("has no chat template .* instruction-tuned", problem)


def test_a_file_of_the_hub_is_taken_from_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository as huggingface_hub keeps it, and no network."""
    from huggingface_hub import constants

    commit = "0" * 40
    repository = tmp_path / "hub" / "models--some--model-GGUF"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    write_gguf(repository / "snapshots" / commit / "q8.gguf", "Q8_1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for look in (resolve_model, find_model):
        with pytest.raises(
            ConfigError, match=r"q8.gguf cannot be converted: it has weights in Q8_1"
        ):
            look("some/model-GGUF/q8.gguf")
        with pytest.raises(
            ConfigError, match=r"'some/model-GGUF/q4.gguf' is not in the local cach"
        ):
            look("some/model-GGUF/q4.gguf")


def test_what_a_repository_of_gguf_files_lacks_is_said() -> None:
    names = {"README.md", "q4.gguf", "q8.gguf"}
    with pytest.raises(ConfigError, match=r"expected one of them: policy.model=a/b/q4.gguf"):
        models.check_listed("a/b", None, names)
    file = models.HUB_GGUF.match("a/b/q5.gguf")
    with pytest.raises(ConfigError, match=r"has no q5.gguf, expected .*\(q4.gguf, q8.gguf\)"):
        models.check_listed("a/b/q5.gguf", file, names)
    models.check_listed("a/b", None, names | {"config.json"})
    models.check_listed("a/b/q4.gguf", models.HUB_GGUF.match("a/b/q4.gguf"), names)
