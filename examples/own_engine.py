"""An engine of one's own: a model of transformers in the command's own process.

python -m clawrl_gym.train env=terminal trainer.steps=2 \\
    policy.engine=examples.own_engine:TransformersEngine

It samples from the ids that it is given, tells the log-prob of each token, and loads each version
from the folder that the run publishes to. One reply is made at a time, so each has one version. It
has no tool calls, no pictures and no adapters, and does not say so anywhere else than in its
`capabilities`: a run that needs one of them is refused before it starts.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

import clawrl_gym as cg
from clawrl_gym.core.errors import ContextError, PolicyUnavailable, RequestError
from clawrl_gym.core.types import ChatBody
from clawrl_gym.inference.engine import Connection
from clawrl_gym.inference.generation import ChatReply, Generation, Piece, Sampling, message_of
from clawrl_gym.inference.models.renderer import ChatRenderer
from clawrl_gym.inference.weights.serving_folder import ServingFolder, Take

_HONOURED = {"temperature", "top_p", "max_tokens", "seed"}


class TransformersEngine(cg.Engine):
    """See `clawrl_gym.inference.engine.Engine`, which has what is not written here."""

    label = "transformers"
    capabilities = cg.EngineCapabilities(token_ids=True, logprobs=True, weights=True, probe=True)

    def __init__(self, setup: cg.EngineSetup) -> None:
        """Made in a command that may be refused yet: nothing is loaded here."""
        assert setup.model is not None
        self._setup = setup
        self._folder = ServingFolder(setup.folder)
        self._renderer: ChatRenderer | None = None
        self._model: _Model | None = None
        self._one = asyncio.Lock()
        """Lock of the model's current user."""
        self._waiting = self._tokens = self._replies = 0
        self._ended = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self._model is not None and not self._ended.is_set()

    async def start(self, version: int, weights: Path | None) -> None:
        assert self._setup.model is not None
        self._setup.on_phase("loading the model")
        self._ended.clear()
        await asyncio.to_thread(self._folder.create, self._setup.model, version, weights)
        self._renderer = await asyncio.to_thread(ChatRenderer, self._folder.current)
        await self._load()
        self._setup.on_phase("ready")

    async def stop(self) -> None:
        self._ended.set()
        self._model = None

    async def watch(self) -> None:
        """Wait until the engine ends: it dies with the command."""
        await self._ended.wait()

    def connect(self, connection: Connection) -> "_Client":
        return _Client(self)

    async def stage(self, version: int, weights: Path, take: Take) -> None:
        await asyncio.to_thread(self._folder.stage, version, weights, take)

    def of_version(self, version: int) -> Path:
        return self._folder.of_version(version)

    async def switch(self, version: int) -> float:
        began_s = time.monotonic()
        with self._setup.hold():
            async with self._one:
                previous = self._folder.version
                self._folder.switch(version)
                try:
                    await self._load()
                except cg.PolicyError:
                    self._folder.switch(previous)
                    await self._load()
                    raise
        return time.monotonic() - began_s

    async def settle(self) -> None:
        await asyncio.to_thread(self._folder.settle)

    async def renew(self, version: int, weights: Path) -> None:
        await self.stage(version, weights, "share")
        await self.switch(version)

    # Questions of its clients.

    @property
    def renderer(self) -> ChatRenderer:
        if self._renderer is None or not self.alive:
            raise PolicyUnavailable("the model is not loaded yet")
        return self._renderer

    async def rendered(self, body: ChatBody) -> list[int]:
        renderer, tools = self.renderer, body.get("tools") or []
        options = body.keys() - {"messages", "tools", "tool_choice", "parallel_tool_calls"}
        if options:
            raise RequestError(f"got {', '.join(sorted(options))}, not supported here")
        try:
            ids: list[int] = await asyncio.to_thread(renderer.prompt_ids, body["messages"], tools)
        except Exception as error:
            raise RequestError(f"the chat template refuses it: {error}") from error
        return ids

    async def sampled(
        self, prompt_T: list[int], sampling: Sampling
    ) -> AsyncGenerator[tuple[int, float, int], None]:
        """Each token with its log-prob and version, up to one that ends the reply."""
        ends, room = self.renderer.end_ids, self._setup.config.max_model_len - len(prompt_T)
        foreign = sorted(sampling.changed.keys() - _HONOURED)
        if foreign or sampling.top_p < 1:
            raise RequestError(f"got {', '.join(foreign) or 'top_p'}, not supported here")
        if room < 1:
            longest = self._setup.config.max_model_len
            raise ContextError(f"got {len(prompt_T)} tokens, the context has {longest}")
        self._waiting += 1
        async with self._one:
            self._waiting -= 1
            version = self._folder.version
            drawing = self._loaded.drawing(prompt_T, sampling)
            for _ in range(min(room, sampling.max_tokens)):
                token, logprob = await asyncio.to_thread(next, drawing)
                self._tokens += 1
                yield token, logprob, version
                if token in ends:
                    break
        self._replies += 1

    async def logprobs(self, ids: list[int]) -> list[float]:
        async with self._one:
            values: list[float] = await asyncio.to_thread(self._loaded.logprobs, ids)
            return values

    def metrics(self) -> dict[str, float]:
        self.renderer  # noqa: B018 - raises where it does not answer
        return {
            "running": float(self._one.locked()),
            "waiting": float(self._waiting),
            "kv_usage": 0.0,
            "tokens": float(self._tokens),
            "requests": float(self._replies),
        }

    @property
    def _loaded(self) -> "_Model":
        if self._model is None:
            raise PolicyUnavailable("the model was closed")
        return self._model

    async def _load(self) -> None:
        try:
            threads = self._setup.config.threads
            self._model = await asyncio.to_thread(_Model, self._folder.current, threads)
        except Exception as error:
            raise cg.PolicyError(f"the model cannot be loaded: {error}") from error


class _Model:
    """The weights of a folder."""

    def __init__(self, folder: Path, threads: int | Literal["auto", "all"]) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        if isinstance(threads, int):
            torch.set_num_threads(threads)
        net: Any = AutoModelForCausalLM.from_pretrained(folder.resolve(), dtype=torch.float32)
        self._net = net.eval()

    def logprobs(self, ids: list[int]) -> list[float]:
        """Log-probs of all ids but the first."""
        import torch

        with torch.no_grad():
            logits_TV = self._net(torch.tensor([ids])).logits[0, :-1].float()
        chosen = torch.tensor(ids[1:])[:, None]
        values: list[float] = logits_TV.log_softmax(-1).gather(1, chosen)[:, 0].tolist()
        return values

    def drawing(self, prompt_T: list[int], sampling: Sampling) -> Any:
        """Tokens without end, each with the log-prob that it was drawn with."""
        import torch

        draw = torch.Generator()
        if sampling.seed is None:
            draw.seed()
        else:
            draw.manual_seed(sampling.seed)
        cache, ids = None, prompt_T
        while True:
            with torch.no_grad():
                out = self._net(torch.tensor([ids]), past_key_values=cache, use_cache=True)
            logits_V = out.logits[0, -1].float()
            logprobs_V = (logits_V / (sampling.temperature or 1.0)).log_softmax(-1)
            if sampling.temperature == 0:
                token = int(logits_V.argmax())
            else:
                token = int(torch.multinomial(logprobs_V.exp(), 1, generator=draw))
            yield token, float(logprobs_V[token])
            cache, ids = out.past_key_values, [token]


class _Client(cg.EngineClient):
    """The part that gateway, judge and probe hold of it."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    async def render(self, body: ChatBody) -> list[int]:
        return await self._engine.rendered(body)

    async def tokenize(self, text: str) -> list[int]:
        raise RequestError("got a prompt that is no chat, expected messages or ids")

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
    ) -> Generation:
        pieces = self.stream(prompt_ids, sampling, None, version=version)
        whole = [piece.generation async for piece in pieces][-1]
        assert whole is not None
        return whole

    async def generate_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        prompt_ids: list[int] | None = None,
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> ChatReply:
        ids = await self._engine.rendered(body) if prompt_ids is None else prompt_ids
        if ids[: len(required_prefix)] != list(required_prefix):
            return ChatReply(ids, None)
        whole = await self.generate(ids, sampling, version=version)
        return ChatReply(ids, (whole, message_of([{"content": whole.text or ""}])))

    async def stream(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        body: ChatBody | None,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
        resume_from: Sequence[Piece] = (),
    ) -> AsyncGenerator[Piece, None]:
        """The text comes with the last piece: of a token alone it is not known. There is no other
        engine that could have begun a reply (`resume_from`)."""
        ids_T: list[int] = []
        logprobs_T: list[float | None] = []
        versions_T: list[int] = []
        async with aclosing(self._engine.sampled(prompt_ids, sampling)) as tokens:
            async for token, logprob, by in tokens:
                ids_T.append(token)
                logprobs_T.append(logprob)
                versions_T.append(by)
                yield Piece([token], [logprob], {}, versions_T=[by])
        has_ended = ids_T[-1] in self._engine.renderer.end_ids
        text = self._engine.renderer.decode(ids_T[:-1] if has_ended else ids_T)
        reason = "stop" if has_ended else "length"
        whole = Generation(prompt_ids, ids_T, logprobs_T, versions_T, reason, text)
        yield Piece([], [], {"content": text} if text else {}, whole)

    async def stream_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]:
        ids = await self._engine.rendered(body)
        yield Piece([], [], {}, prompt_ids_T=ids)
        if ids[: len(required_prefix)] == list(required_prefix):
            async with aclosing(self.stream(ids, sampling, body, version=version)) as pieces:
                async for piece in pieces:
                    yield piece

    async def logprobs(self, ids: list[int], *, version: int, user: str = "") -> list[float]:
        return await self._engine.logprobs(ids)

    async def metrics(self) -> dict[str, float]:
        return self._engine.metrics()

    async def close(self) -> None:
        """There is no connection."""
