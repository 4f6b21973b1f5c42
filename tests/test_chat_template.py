"""What chat templates do with earlier turns: those of real families, as trl ships them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from clawrl_gym.policy.chat_template import (
    look_at,
    read_template,
    settings_of,
    template_source,
    token_text,
)
from clawrl_gym.policy.shipped import SHIPPED, shipped_dir
from tests.tiny_models import TEMPLATE

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
    notes = list(report.notes(eos))
    assert len(notes) == (0 if keeps_thoughts else 1)
    assert all("policy.keep_thoughts" in note for note in notes)


@pytest.mark.parametrize(
    ("source", "eos", "says"),
    [
        (NUMBERED, None, "otherwise than they were sampled"),
        (LAST_WITH_TOOLS, "</s>", "moves the tools"),
        (TEMPLATE, "<|endoftext|>", "is '<|endoftext|>': replies may not end"),
    ],
)
def test_what_a_template_does_otherwise_is_said(source: str, eos: str | None, says: str) -> None:
    report = look_at(source, {"eos_token": eos})
    assert report is not None
    assert [says in note for note in report.notes(eos)] == [True]


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_to_be_said_of_shipped_models(name: str) -> None:
    folder = shipped_dir(name)
    report = read_template(folder)
    assert report is not None
    assert list(report.notes(token_text(settings_of(folder), "eos_token"))) == []


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
