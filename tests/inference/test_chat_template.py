"""What chat templates do with earlier turns: those of real families, as trl ships them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from clawrl_gym.inference.models.chat_template import (
    look_at,
    read_template,
    settings_of,
    template_source,
)
from clawrl_gym.inference.models.end_tokens import end_token_problems, end_tokens
from clawrl_gym.inference.models.shipped import SHIPPED, shipped_dir
from tests.support.tiny_models import TEMPLATE, make_tokenizer

LAST_WITH_TOOLS = (
    "{% for m in messages %}{% if loop.last and tools %}[TOOLS]{% endif %}"
    "<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}<assistant>"
)
NUMBERED = "{% for m in messages %}{{ messages | length }}<{{ m.role }}>{{ m.content }}{% endfor %}"


def source_of(name: str) -> str:
    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / f"chat_templates/{name}.jinja").read_text()


@pytest.mark.parametrize(
    ("family", "eos", "keeps_thoughts"),
    [
        ("qwen3", "<|im_end|>", False),
        ("qwen3_5_think", "<|im_end|>", False),
        ("qwen3_instruct_2507", "<|im_end|>", True),
        ("qwen3_vl", "<|im_end|>", True),
        ("llama3", "<|eot_id|>", True),
        ("llama3_1", "<|eot_id|>", True),
        ("llama3_2", "<|eot_id|>", True),
    ],
)
def test_turns_of_the_presets_families_extend_each_other(
    family: str, eos: str, keeps_thoughts: bool
) -> None:
    report = look_at(source_of(family), {"eos_token": {"content": eos}})
    assert report is not None
    assert (report.extends, report.extends_with_tools) == (True, True)
    assert report.keeps_thoughts is keeps_thoughts
    assert report.ends.startswith(eos)
    notes = list(report.notes([eos]))
    assert len(notes) == (0 if keeps_thoughts else 1)
    assert all("policy.keep_thoughts" in note for note in notes)


@pytest.mark.parametrize(
    ("source", "eos", "says"),
    [
        (NUMBERED, None, "otherwise than they were sampled"),
        (LAST_WITH_TOOLS, "</s>", "moves the tools"),
        (TEMPLATE, "<|endoftext|>", "none of the tokens that end one ('<|endoftext|>')"),
    ],
)
def test_what_a_template_does_otherwise_is_said(source: str, eos: str | None, says: str) -> None:
    report = look_at(source, {"eos_token": eos})
    assert report is not None
    assert [says in note for note in report.notes([eos] if eos else [])] == [True]


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_to_be_said_of_shipped_models(name: str) -> None:
    folder = shipped_dir(name)
    report = read_template(folder)
    assert report is not None
    assert list(report.notes(end_tokens(folder))) == []
    assert list(end_token_problems(folder)) == []
    assert (report.shows_tools, report.takes_system, report.own_system) == (True, True, "")


@pytest.mark.parametrize(
    "source", ["{{ raise_exception('no system') }}", "{% if %}", "{{ messages[7].content.x }}"]
)
def test_a_template_that_cannot_be_rendered_is_nothing_known(source: str) -> None:
    assert look_at(source, {}) is None


def test_a_template_is_found_wherever_folders_have_it(tmp_path: Path) -> None:
    assert read_template(tmp_path) is None
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"chat_template": [{"name": "default", "template": "x"}]}')
    assert template_source(tmp_path) == "x"
    (tmp_path / "chat_template.jinja").write_text("y")
    assert template_source(tmp_path) == "y"
    settings.write_text("broken")
    assert settings_of(tmp_path) == {}


PLAIN = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""SmolLM2's: no tools, no thoughts, and a system message of its own."""
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}"
    "<end_of_turn>\n{% endfor %}<start_of_turn>model\n"
)
"""Gemma's, nearly."""


def test_what_a_template_shows_of_tools_thoughts_and_system_messages_is_known() -> None:
    plain, gemma = look_at(PLAIN, {}), look_at(NO_SYSTEM, {})
    qwen = look_at(source_of("qwen2_5"), {})
    thinks = look_at(source_of("qwen3"), {})
    assert plain is not None
    assert gemma is not None
    assert qwen is not None
    assert thinks is not None
    assert [r.shows_tools for r in (plain, gemma, qwen, thinks)] == [False, False, True, True]
    assert [r.takes_system for r in (plain, gemma, qwen, thinks)] == [True, False, True, True]
    assert [r.shows_thoughts for r in (plain, gemma, qwen, thinks)] == [False, False, False, True]
    assert plain.own_system == "You are a helpful AI assistant named SmolLM"
    assert qwen.own_system.startswith("You are Qwen, created by Alibaba Cloud.")
    assert (gemma.own_system, thinks.own_system) == ("", "")
    assert (gemma.extends, gemma.ends.startswith("<end_of_turn>")) == (True, True)


def model_with(folder: Path, template: str, eos: str, generation: object = None) -> Path:
    make_tokenizer(folder, template=template)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": eos}))
    (folder / "config.json").write_text("{}")
    if generation is not None:
        text = json.dumps({"eos_token_id": generation})
        (folder / "generation_config.json").write_text(text)
    return folder


def test_replies_that_would_never_end_are_refused_with_the_cure(tmp_path: Path) -> None:
    folder = model_with(tmp_path, TEMPLATE, "<|endoftext|>")
    (problem,) = end_token_problems(folder)
    assert "ends them with '<|im_end|>', and vLLM stops at '<|endoftext|>' alone" in problem
    cure = json.loads("{" + problem.rpartition("generation_config.json: ")[2] + "}")
    (folder / "generation_config.json").write_text(json.dumps(cure))
    assert list(end_token_problems(folder)) == []


def test_an_end_token_that_generation_config_names_is_one(tmp_path: Path) -> None:
    folder = model_with(tmp_path, TEMPLATE, "<|endoftext|>", generation=[0, 2])
    assert end_tokens(folder) == ("<|endoftext|>", "<|im_end|>")
    report = read_template(folder)
    assert report is not None
    assert (list(end_token_problems(folder)), list(report.notes(end_tokens(folder)))) == ([], [])


def test_of_a_model_without_a_configuration_for_generating_its_own_counts(tmp_path: Path) -> None:
    folder = model_with(tmp_path, TEMPLATE, "<|endoftext|>")
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    assert list(end_token_problems(folder)) == []
    (folder / "generation_config.json").write_text("{}")
    assert list(end_token_problems(folder)) != [], "vLLM asks this file alone where it is"


def test_a_model_that_names_no_end_token_is_refused(tmp_path: Path) -> None:
    folder = model_with(tmp_path, TEMPLATE, "")
    (problem,) = end_token_problems(folder)
    assert "names no token that ends a reply" in problem


def test_a_template_that_writes_no_end_token_makes_each_turn_a_sequence(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    folder = model_with(tmp_path, template, "<|im_end|>")
    assert list(end_token_problems(folder)) == [], "the model may end its replies all the same"
    report = read_template(folder)
    assert report is not None
    (note,) = report.notes(end_tokens(folder))
    assert "each turn is trained as a sequence of its own" in note
