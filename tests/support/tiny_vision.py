"""Random-weight vision-language models small enough to be made in a second.

Idefics3 is what vLLM's CPU build can serve: its image processor has a form in Pillow, and vLLM's
module of it imports no torchvision, which the CPU lock leaves out. Qwen3-VL is what people will
train: here the learner alone reads it, with its three-dimensional positions.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

from clawrl_gym.core.types import ImagePart, TextPart
from tests.support.tiny_models import TEMPLATE, make_tokenizer

IMAGE = "<image>"
_SPECIAL = (IMAGE, "<fake_token_around_image>", "<global-img>", "<end_of_utterance>",
            "<|vision_start|>", "<|vision_end|>", "<|video_pad|>")  # fmt: skip
_SHOWN = (
    "{% if message.content is string %}{{ message.content }}{% elif message.content %}"
    "{%- for part in message.content %}{%- if part.type == 'text' %}{{ part.text }}"
    "{%- else %}PICTURE{% endif %}{%- endfor %}{%- endif %}"
)


def picture(color: str, size: tuple[int, int] = (80, 64), kind: str = "JPEG") -> bytes:
    """A picture of one color with a dark square in it."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", size, color)
    ImageDraw.Draw(image).rectangle((5, 5, size[0] // 2, size[1] // 3), fill="black")
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def shown(data: bytes, kind: str = "image/jpeg") -> ImagePart:
    """A picture as a part of a message."""
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def said(text: str) -> TextPart:
    return {"type": "text", "text": text}


def make_vision_model(folder: Path, kind: str = "idefics3", seed: int = 0) -> Path:
    """A folder with 0.15 M random parameters, tokenizer, template and image processor."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    ids = _tokenizer(
        folder, IMAGE if kind == "idefics3" else f"<|vision_start|>{IMAGE}<|vision_end|>"
    )
    torch.manual_seed(seed)
    model = _idefics3(folder, ids) if kind == "idefics3" else _qwen3_vl(folder, ids)
    model.float().save_pretrained(folder)
    return folder


def _tokenizer(folder: Path, picture_text: str) -> dict[str, int]:
    """The tokenizer of the text models with tokens for pictures; their ids, and the vocabulary."""
    from tokenizers import AddedToken, Tokenizer

    make_tokenizer(folder)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL])
    tokenizer.save(str(path))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    template = TEMPLATE.replace("{{ message.content or '' }}", _SHOWN)
    settings["chat_template"] = template.replace("PICTURE", picture_text)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    ids = {text: tokenizer.token_to_id(text) or 0 for text in _SPECIAL}
    return ids | {"": tokenizer.get_vocab_size()}


def _text(vocabulary: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "max_position_embeddings": 4096, "tie_word_embeddings": True,
        "eos_token_id": 2, "bos_token_id": None, "pad_token_id": 0, "initializer_range": 0.2,
    }  # fmt: skip


def _idefics3(folder: Path, ids: dict[str, int]) -> Any:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    config = Idefics3Config(
        text_config={"model_type": "llama", **_text(ids[""])},
        vision_config={
            "model_type": "idefics3_vision", "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
            "initializer_range": 0.2,
        },
        image_token_id=ids[IMAGE],
        scale_factor=2,
        tie_word_embeddings=True,
        pad_token_id=0,
        dtype="float32",
    )  # fmt: skip
    config.architectures = ["Idefics3ForConditionalGeneration"]
    processor = {
        "image_processor_type": "Idefics3ImageProcessor", "processor_class": "Idefics3Processor",
        "do_image_splitting": False, "size": {"longest_edge": 56},
        "max_image_size": {"longest_edge": 56}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    (folder / "processor_config.json").write_text(
        json.dumps({"processor_class": "Idefics3Processor", "image_seq_len": 4})
    )
    return Idefics3ForConditionalGeneration(config)


def _qwen3_vl(folder: Path, ids: dict[str, int]) -> Any:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    rope = {
        "rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    }  # fmt: skip
    config = Qwen3VLConfig(
        text_config={**_text(ids[""]), "rope_parameters": rope},
        vision_config={
            "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64,
            "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "out_hidden_size": 64, "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1], "initializer_range": 0.2,
        },
        image_token_id=ids[IMAGE],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
        dtype="float32",
    )  # fmt: skip
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen3VLProcessor",
        "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,
        "size": {"shortest_edge": 1024, "longest_edge": 65536},
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return Qwen3VLForConditionalGeneration(config)
