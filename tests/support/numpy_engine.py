"""A stand-in for vLLM: a package of its name, before the real one on PYTHONPATH, whose server is
this file. It computes a Qwen3 of a few thousand parameters by itself, in float32, and says whose
weights it has by its log-probs; what it replies is no chance:

    "Say N."    greedily N where N is even, else "no"; else in turns N, "no", "more", "no"
    "It is N."  N
    others      "yes"

As many numbers as STALLS says are answered that are not held out; whoever asks for another waits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from tests.support.tiny_models import make_tokenizer

Array = NDArray[Any]
END = 2
STALLS = "NUMPY_ENGINE_STALLS"
_HIDDEN, _INNER, _HEADS, _KV_HEADS, _HEAD = 16, 32, 2, 1, 8
_EPSILON = 1e-6
_THETA = 10_000.0


def make_package(folder: Path) -> Path:
    """A package `vllm` that is this file; the folder for PYTHONPATH."""
    main = folder / "vllm/entrypoints/launchers/api_server/entry.py"
    main.parent.mkdir(parents=True)
    for package in (*main.parents[:4],):
        (package / "__init__.py").touch()
    main.write_text("from tests.support.numpy_engine import main\n")
    (folder / "vllm/platforms.py").write_text(
        "from types import SimpleNamespace\n"
        "current_platform = SimpleNamespace(is_cpu=lambda: False)\n"
    )
    return folder


def make_model(folder: Path, max_tokens: int = 512) -> Path:
    """Random weights of one layer, tokenizer and chat template."""
    folder.mkdir(parents=True)
    vocab = make_tokenizer(folder, 280)
    draw = np.random.default_rng(0)

    def weights(*shape: int) -> Array:
        return draw.normal(0.0, 0.3, shape).astype(np.float32)

    layer = {
        "self_attn.q_proj": weights(_HEADS * _HEAD, _HIDDEN),
        "self_attn.k_proj": weights(_KV_HEADS * _HEAD, _HIDDEN),
        "self_attn.v_proj": weights(_KV_HEADS * _HEAD, _HIDDEN),
        "self_attn.o_proj": weights(_HIDDEN, _HEADS * _HEAD),
        "mlp.gate_proj": weights(_INNER, _HIDDEN),
        "mlp.up_proj": weights(_INNER, _HIDDEN),
        "mlp.down_proj": weights(_HIDDEN, _INNER),
        "self_attn.q_norm": 1 + weights(_HEAD),
        "self_attn.k_norm": 1 + weights(_HEAD),
        "input_layernorm": 1 + weights(_HIDDEN),
        "post_attention_layernorm": 1 + weights(_HIDDEN),
    }
    tensors = {f"model.layers.0.{name}.weight": tensor for name, tensor in layer.items()}
    tensors["model.embed_tokens.weight"] = weights(vocab, _HIDDEN)
    tensors["model.norm.weight"] = 1 + weights(_HIDDEN)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32",
        "vocab_size": vocab, "hidden_size": _HIDDEN, "intermediate_size": _INNER,
        "num_hidden_layers": 1, "num_attention_heads": _HEADS, "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD, "max_position_embeddings": max_tokens, "rms_norm_eps": _EPSILON,
        "rope_theta": _THETA, "tie_word_embeddings": True, "eos_token_id": END,
        "bos_token_id": None, "pad_token_id": 0, "hidden_act": "silu", "attention_bias": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class Model:
    """What the weights of a folder say."""

    def __init__(self, folder: Path) -> None:
        self._tensors = load_file(folder / "model.safetensors")

    def _of(self, name: str) -> Array:
        tensor: Array = self._tensors[f"model.layers.0.{name}.weight"]
        return tensor

    def logprobs(self, ids: list[int]) -> list[float]:
        """Log-probs of all ids but the first."""
        embedding = self._tensors["model.embed_tokens.weight"]
        x = embedding[ids]  # (T, hidden)
        x = x + self._attention(_normed(x, self._of("input_layernorm")))
        y = _normed(x, self._of("post_attention_layernorm"))
        gate = y @ self._of("mlp.gate_proj").T
        inner = gate / (1 + np.exp(-gate)) * (y @ self._of("mlp.up_proj").T)
        x = x + inner @ self._of("mlp.down_proj").T
        logits = _normed(x, self._tensors["model.norm.weight"])[:-1] @ embedding.T
        top = logits.max(-1, keepdims=True)
        everything = top + np.log(np.exp(logits - top).sum(-1, keepdims=True))
        chosen = np.arange(len(ids) - 1), np.array(ids[1:])
        return [float(value) for value in (logits - everything)[chosen]]

    def _attention(self, x: Array) -> Array:
        queries = _turned(_normed(self._heads(x, "q"), self._of("self_attn.q_norm")))
        keys = _turned(_normed(self._heads(x, "k"), self._of("self_attn.k_norm")))
        scores = queries @ keys.swapaxes(1, 2) / np.sqrt(_HEAD)  # one head of keys serves all
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        seen = (shares @ self._heads(x, "v")).swapaxes(0, 1).reshape(len(x), -1)
        attended: Array = seen @ self._of("self_attn.o_proj").T
        return attended

    def _heads(self, x: Array, name: str) -> Array:
        """(heads, T, head)"""
        projected: Array = x @ self._of(f"self_attn.{name}_proj").T
        return projected.reshape(len(x), -1, _HEAD).swapaxes(0, 1)


def _normed(x: Array, weight: Array) -> Array:
    normed: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + _EPSILON) * weight
    return normed


def _turned(x: Array) -> Array:
    """By their positions."""
    half = _HEAD // 2
    rates = _THETA ** -(np.arange(half, dtype=np.float32) / half)
    angles = np.arange(x.shape[1], dtype=np.float32)[:, None] * np.tile(rates, 2)
    across = np.concatenate([-x[..., half:], x[..., :half]], -1)
    turned: Array = (x * np.cos(angles) + across * np.sin(angles)).astype(np.float32)
    return turned


class Server:
    """What the child answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._asked: Counter[str] = Counter()
        self._version = ""
        self._model = Model(folder)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {os.environ['VLLM_API_KEY']}":
            return web.Response(status=401)
        body = await request.json() if request.can_read_body else {}
        if request.path == "/collective_rpc":
            self._model = Model(self._folder)
        elif request.path == "/update_weight_version":
            self._version = body["new_version"]
        elif request.path == "/inference/v1/generate":
            return web.json_response(self._read(body["token_ids"]))
        elif request.path == "/clawrl/render":
            return web.json_response({"token_ids": self._rendered(body["chat"]["messages"])})
        elif request.path == "/clawrl/reply":
            if not self._version:
                return web.json_response({"error": {"message": "no version yet"}}, status=503)
            return web.json_response(await self._reply(body))
        elif request.path == "/metrics":
            return web.Response()
        return web.json_response({"success": True})

    def _read(self, ids: list[int]) -> dict[str, Any]:
        rows = zip(ids[1:], self._model.logprobs(ids), strict=True)
        return {
            "prompt_logprobs": [None, *({str(token): {"logprob": x}} for token, x in rows)],
        }

    async def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        generate, chat = body["generate"], body["chat"]
        if chat is None:  # the first request, which is nobody's
            prompt, known, text = generate["token_ids"], generate["token_ids"], ""
        else:
            messages = chat["messages"]
            prompt = self._rendered(messages)
            known = body.get("required_prefix", prompt)
            if prompt[: len(known)] != known:
                return {"prompt_ids": prompt, "prefix_matched": False}
            is_greedy = generate["sampling_params"]["temperature"] == 0
            text = await self._text(messages[-1]["content"], is_greedy=is_greedy)
        ids = [*self._tokenizer.encode(text).ids, END]
        return {
            "prompt_ids": prompt[len(known) :],
            "prefix_matched": True,
            "finish_reason": "stop",
            "stop_reason": None,
            "text": text,
            "deltas": None,
            "ids": ids,
            "logprobs": self._model.logprobs([*prompt, *ids])[-len(ids) :],
            "weight_versions": [{"version": self._version, "start": 0, "end": len(ids)}],
        }

    async def _text(self, said: str, *, is_greedy: bool) -> str:
        asked = re.match(r"(?:Say|It is) (\d+)", said)
        if asked is None:
            return "yes"
        number: str = asked[1]
        if said.startswith("It is "):
            return number
        if is_greedy:
            return "no" if int(number) % 2 else number
        self._asked[said] += 1
        trained = [said for said in self._asked if len(said) > len("Say 9.")]
        if said in trained[int(os.environ.get(STALLS, "1000")) :]:
            await asyncio.Event().wait()
        return (number, "no", "more", "no")[(self._asked[said] - 1) % 4]

    def _rendered(self, messages: list[dict[str, Any]]) -> list[int]:
        texts = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages]
        ids: list[int] = self._tokenizer.encode("".join(texts) + "<|im_start|>assistant\n").ids
        return ids


def main() -> None:
    """As vLLM's: takes the options that it needs from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    options, _ = parser.parse_known_args()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Server(options.model).answer)
    web.run_app(
        app, host=options.host, port=options.port, print=lambda *_: None, reuse_address=True
    )
