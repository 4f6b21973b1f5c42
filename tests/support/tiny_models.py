"""Random-weight models small enough to be made in a second, for tests that need a real folder."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n<tools>\n"
    "{%- for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools><|im_end|>\n{% endif %}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = [
    "copy the file a.txt to b.csv and print its first lines",
    "count the words of every log below the folder, then sort them",
    "<tool_call> {\"name\": \"shell\", \"arguments\": {\"command\": \"ls -la\"}} </tool_call>",
    "system user assistant tool",
] * 4  # fmt: skip


def write_safetensors(path: Path, size: int = 8, fill: int = 0) -> Path:
    """A whole file with one tensor of `size` bytes, for tests that load nothing."""
    entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes([fill]) * size)
    return path


THINKING_TEMPLATE = (
    TEMPLATE.replace(
        "{{ message.content or '' }}",
        "{%- if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n"
        "{%- endif %}{{ message.content or '' }}",
    )
)  # fmt: skip
"""As Qwen3's: a policy thinks before it speaks."""
THOUGHT = "I look at it."
ANSWERS = ("red", "blue", "green", "black")


def make_tokenizer(
    folder: Path, vocab_size: int = 512, template: str = TEMPLATE, tags: Sequence[str] = ()
) -> int:
    """Write a byte-level BPE tokenizer with a ChatML template; the number of its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([*tags])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": template,
        "model_max_length": 1_000_000,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer.get_vocab_size()


def random_weights(folder: Path, seed: int = 0) -> Path:
    """Write `model.safetensors` for the folder's config.json, drawn from `seed`; its path."""
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(Qwen3Config.from_pretrained(folder))
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    tensors.pop("lm_head.weight", None)  # tied to the embedding
    path = folder / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    return path


def logprobs_by_transformers(folder: Path, prompt: list[int], sampled: list[int]) -> list[float]:
    """Log-probs of sampled ids under a folder's weights, computed by transformers in float32."""
    import torch
    from transformers import Qwen3ForCausalLM

    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + sampled])).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits, -1)
    return [row[token].item() for row, token in zip(logprobs, sampled, strict=True)]


def make_random_model(
    folder: Path,
    seed: int = 0,
    max_len: int = 4096,
    hidden: int = 64,
    template: str = TEMPLATE,
    tags: Sequence[str] = (),
) -> Path:
    """A two-layer Qwen3 of 0.2 M random parameters with tokenizer and template; its folder."""
    from transformers import Qwen3Config

    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = make_tokenizer(folder, template=template, tags=tags)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=max_len,
        tie_word_embeddings=True,
        eos_token_id=2,
        bos_token_id=None,
        pad_token_id=0,
        dtype="float32",
        initializer_range=0.2,
    )
    config.architectures = ["Qwen3ForCausalLM"]
    config.save_pretrained(folder)
    random_weights(folder, seed)
    return folder


def make_thinking_model(folder: Path, steps: int = 100) -> Path:
    """A small Qwen3 that was taught to think one thought and to name a colour, whatever is said."""
    import torch
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    make_random_model(folder, template=THINKING_TEMPLATE, tags=["<think>", "</think>"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = random.Random(0)
    for _ in range(steps):
        chats = [_thinking_chat(tokenizer, draw) for _ in range(8)]
        width = max(len(ids) for ids, _ in chats)
        ids = torch.tensor([row + [0] * (width - len(row)) for row, _ in chats])
        labels = torch.tensor([row + [-100] * (width - len(row)) for _, row in chats])
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return folder


def _thinking_chat(tokenizer: Any, draw: random.Random) -> tuple[list[int], list[int]]:
    """Ids of a chat, and those that are learned: the replies'."""
    said = ("Say red.", "Copy a.txt to b.txt.", "No, that is wrong. Please do it again.", "Hello")
    ids: list[int] = []
    labels: list[int] = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        prompt = f"<|im_start|>user\n{draw.choice(said)}<|im_end|>\n<|im_start|>assistant\n"
        answer = f"It is {draw.choice(ANSWERS)}.<|im_end|>"
        thoughts = f"<think>\n{THOUGHT}\n</think>\n\n"
        for text, is_learned in ((prompt, False), (thoughts + answer, True), ("\n", False)):
            part = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += part
            labels += part if is_learned else [-100] * len(part)
    return ids, labels
