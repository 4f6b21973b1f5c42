"""What others wrote reaches a judge's model as data: no family's control token stays whole."""

from __future__ import annotations

import pytest

from clawrl_gym.judge.models.prompt import as_data, case_text
from tests.support.fakes_judge import a_case, user

TOKENS = """
<|im_start|> <|im_end|> <|im_sep|> <|endoftext|> <|end|> <|user|> <|assistant|> <|system|>
<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|> <|python_tag|>
<|header_start|> <|eot|> <s> </s> <unk> <pad> [INST] [/INST] <<SYS>> <</SYS>> [TOOL_CALLS]
[AVAILABLE_TOOLS] [/TOOL_RESULTS] [SYSTEM_PROMPT] [IMG] [THINK] [/THINK] <bos> <eos>
<start_of_turn> <end_of_turn> <start_of_image> <think> </think> <tool_call> </tool_response>
<|channel|> <|message|> <|start|> <|return|> <|call|> <|constrain|> [gMASK] <sop> <eop>
<|observation|> <|begin_of_box|> <|im_user|> <|im_middle|> <|tool_calls_section_begin|>
<BOS_TOKEN> <|START_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|> <|START_THINKING|> <|START_RESPONSE|>
<|start_of_role|> <|end_of_role|> [|assistant|] [|endofturn|] ]~b] ]~!b[ [e~[ <|bom|> <|eom|>
<fim_prefix> <SPECIAL_12> <extra_id_0> <reserved_106> <seed:think> <[begin_of_sentence]>
<|action_start|> <|plugin|> <|vision_start|> <image> >>QUESTION<< <|fim_middle|> <mask:1>
<tool_response> </tool_call> <|tool|> <answer> <|thought|> <turn|> <|turn>
<\uff5cUser\uff5c> <\uff5cAssistant\uff5c> <\uff5cbegin\u2581of\u2581sentence\uff5c>
<\uff5ctool\u2581calls\u2581begin\uff5c> <\uff5chy_User\uff5c> <\uff5cDSML\uff5cinvoke>
"""
FULL_WIDTH = str.maketrans({code: code + 0xFEE0 for code in range(0x21, 0x7F)})
MATHEMATICAL = str.maketrans("<>|[]", "\u27e8\u27e9\u2223\u27e6\u27e7")
QUOTES = str.maketrans("<>|", "\u2039\u203a\u00a6")
ORNAMENTS = str.maketrans("<>", "\u2770\u2771")
DOUBLES = str.maketrans("<>", "\u27ea\u27eb")
MUCH_LESS = str.maketrans("<>", "\u226a\u226b")


@pytest.mark.parametrize("token", TOKENS.split())
def test_a_control_token_of_any_family_is_broken_in_every_script(token: str) -> None:
    for text in (token, token.upper(), *(token.translate(t) for t in (FULL_WIDTH, MATHEMATICAL))):
        quoted = as_data(f"a {text} b{text}")
        assert text not in quoted, text
        assert quoted.replace(" ", "") == f"a{text}b{text}"


@pytest.mark.parametrize("token", ["<|im_end|>", "</reply>", "<s>", "</ next_state >"])
def test_signs_that_look_alike_are_signs(token: str) -> None:
    for table in (FULL_WIDTH, MATHEMATICAL, QUOTES, ORNAMENTS, DOUBLES, MUCH_LESS):
        text = token.translate(table)
        assert text not in as_data(text)


@pytest.mark.parametrize(
    "text",
    ["a < b and c > d", "x<5", "if (a<b) return", "1 << 3", "[1, 2]", "[ok]", "see [here](url)",
     "a|b", "# Title", "### Results", "\u597d\u7684\uff0c\u8c22\u8c22", "\u00bfqu\u00e9?", ""],
)  # fmt: skip
def test_what_is_no_token_stays_as_it_is(text: str) -> None:
    assert as_data(text) == text


def test_nothing_in_a_case_ends_its_quotation() -> None:
    for tag in ("request", "tools", "reply", "next_state"):
        for form in (f"</{tag}>", f"\uff1c/{tag}\uff1e", f"< / {tag} >", f"</{tag.upper()}>"):
            text = case_text(a_case(user(f"x {form} y")), 6000)
            assert form not in text.split("<next_state", 1)[1].rsplit("</next_state>", 1)[0]


def test_no_text_takes_long() -> None:
    for text in ("<" * 6000, "[" * 6000, "<a" * 3000, "\uff1c" * 6000, "#" * 6000, "]~" * 3000):
        as_data(text)
