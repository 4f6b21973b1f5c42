"""A learner on another machine, spoken to over HTTP, as somebody else would bring it: found by its
import path, it needs nothing of this project but what a learner's class may know.

    PYTHONPATH=. python -m tests.support.http_learner --port 8765
    PYTHONPATH=. python -m clawrl_gym.train learner=tests.support.http_learner:HttpLearner \
        learner.options.url=http://127.0.0.1:8765

`HttpLearner` is the run's side. `Host` is the other one, which makes the torch learner do the work:
one call after the other, as POST /METHOD. Bodies are numpy's npz without pickles: samples are its
arrays, folders a tar in one more, and what is no array is JSON. It asks for no key, so it is for a
machine of one's own.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import shutil
import signal
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

import aiohttp
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ClawError, LearnerDied, TrainerError
from clawrl_gym.core.files.whole_folder import begin_folder, end_folder
from clawrl_gym.core.types import DistilledTurn, StepStats
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.capabilities import LearnerCapabilities
from clawrl_gym.trainers.published_version import PublishedVersion, Way
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.actor import LearnerSetup
from clawrl_gym.trainers.updates.guard import Review

Arrays = Mapping[str, NDArray[Any]]
_FILES, _VALUES = "files", "values"
"""Arrays of a message: a tar's bytes, JSON's bytes."""
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Message:
    """What goes either way."""

    values: Any = None
    arrays: Arrays | None = None
    folder: Path | None = None
    """Whose files travel along."""

    def packed(self) -> bytes:
        arrays = dict(self.arrays or {})
        arrays[_VALUES] = np.frombuffer(json.dumps(self.values).encode(), np.uint8)
        if self.folder is not None:
            arrays[_FILES] = np.frombuffer(_tar(self.folder), np.uint8)
        body = io.BytesIO()
        np.savez(body, allow_pickle=False, **arrays)
        return body.getvalue()


@dataclass(frozen=True, slots=True)
class Received:
    """A message that came."""

    values: Any
    arrays: Arrays

    @classmethod
    def of(cls, body: bytes) -> Self:
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            named = {name: arrays[name] for name in arrays.files}
        return cls(json.loads(named.pop(_VALUES).tobytes()), named)

    def unpack(self, folder: Path) -> None:
        """Put the files that came along into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(self.arrays[_FILES].tobytes())) as tar:
            tar.extractall(folder, filter="data")


def _tar(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
        tar.add(folder, ".")
    return packed.getvalue()


# The run's side.


class HttpOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str
    timeout_s: float = Field(600.0, gt=0)
    """Seconds of one call, and of waiting for a host that does not answer."""


class HttpLearner:
    """An `AsyncLearner` whose work is done behind a URL."""

    Options = HttpOptions
    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(
        adapters=True,
        probe=True,
        review=True,
        teacher=True,
        remote=True,
        transfers=("name", "folder"),
    )

    def __init__(self, options: HttpOptions, setup: LearnerSetup) -> None:
        self._options = options
        self._setup = setup
        self._http: aiohttp.ClientSession | None = None

    @classmethod
    def from_config(cls, config: LearnerConfig, setup: LearnerSetup) -> HttpLearner:
        return cls(HttpOptions.model_validate(config.options), setup)

    async def ready(self) -> None:
        """Have the host load the model, which travels to it."""
        setup = self._setup
        learner = setup.learner.model_copy(update={"backend": "torch", "options": {}})
        # the algorithm stays here: what the host needs of it are the terms of the loss
        trainer = setup.trainer.model_copy(update={"algorithm": "grpo", "options": {}})
        values = {
            "trainer": trainer.model_dump(mode="json"),
            "learner": learner.model_dump(mode="json"),
            "seed": setup.seed,
            "temperature": setup.temperature,
            "objectives": sorted(setup.objectives or ()),
        }
        await self._call("begin", Message(values, folder=Path(setup.model_dir)))

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        reply = await self._call("step", Message({"version": version}, batch.arrays()))
        turns = [DistilledTurn(**one) for one in reply.values.pop("distilled_turns")]
        return StepStats(**reply.values, distilled_turns=turns)

    async def review(self, batch: SampleBatch) -> Review:
        return Review(**(await self._call("review", Message(arrays=batch.arrays()))).values)

    async def probe(self) -> Reading:
        return Reading(**(await self._call("probe")).values)

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        reply = await self._call("publish", Message({"as_adapter": as_adapter}))
        return NamedVersion(self, reply.values["name"])

    async def save_checkpoint(self, folder: str) -> None:
        reply = await self._call("save_checkpoint")
        await asyncio.to_thread(_put_whole, reply, Path(folder))

    async def load_checkpoint(self, folder: str) -> None:
        await self._call("load_checkpoint", Message(folder=Path(folder)))

    async def reset(self) -> None:
        await self.ready()

    async def restart(self, checkpoint: str | None) -> None:
        """Wait until a host answers again."""
        try:
            async with asyncio.timeout(self._options.timeout_s):
                await self._hello()
        except TimeoutError:
            raise TrainerError(
                f"no learner answers at {self._options.url} within {self._options.timeout_s:g} s"
            ) from None
        await self.ready()
        if checkpoint is not None:
            await self.load_checkpoint(checkpoint)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def fetch(self, name: str) -> Received:
        """The files of a version that was given out."""
        return await self._call("fetch", Message({"name": name}))

    async def _hello(self) -> None:
        while True:
            try:
                await self._call("hello")
                return
            except LearnerDied:
                await asyncio.sleep(_AGAIN_S)

    async def _call(self, method: str, message: Message | None = None) -> Received:
        """Raises TrainerError for what the host refuses, LearnerDied where none answers."""
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=self._options.timeout_s)
            self._http = aiohttp.ClientSession(timeout=timeout)
        body = await asyncio.to_thread((message or Message()).packed)
        url = f"{self._options.url.rstrip('/')}/{method}"
        try:
            async with self._http.post(url, data=body) as reply:
                answer = await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise LearnerDied(f"the learner at {url} does not answer: {error!r}") from error
        if reply.status != 200:
            raise TrainerError(f"the learner failed in {method}: {answer.decode()[:2000]}")
        return await asyncio.to_thread(Received.of, answer)


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """A version that lies at the host, under a name."""

    learner: HttpLearner
    name: str
    ways: tuple[Way, ...] = HttpLearner.capabilities.transfers

    async def to_folder(self, folder: Path) -> None:
        received = await self.learner.fetch(self.name)
        await asyncio.to_thread(_put_files, received, folder)


def _put_whole(received: Received, folder: Path) -> None:
    """A checkpoint takes the place of the folder, whole."""
    received.unpack(begin_folder(folder))
    end_folder(folder)


def _put_files(received: Received, folder: Path) -> None:
    """Each file is there in one step."""
    arrived = folder.with_name(f".{folder.name}.arrived")
    shutil.rmtree(arrived, ignore_errors=True)
    received.unpack(arrived)
    folder.mkdir(parents=True, exist_ok=True)
    for path in arrived.iterdir():
        path.replace(folder / path.name)
    arrived.rmdir()


# The other side.


class Host:
    """One torch learner at a time; all calls are made in one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun = self._given_out = 0
        self._thread = ThreadPoolExecutor(1)
        self._learner: Any = None

    def call(self, method: str, body: bytes) -> bytes:
        """Raises ClawError, or ValueError for what is no call."""
        if method not in _METHODS:
            raise ValueError(f"got the method {method!r}, expected one of {', '.join(_METHODS)}")
        return self._thread.submit(self._answer, method, body).result()

    def _answer(self, method: str, body: bytes) -> bytes:
        reply: Message = getattr(self, method)(Received.of(body))
        return reply.packed()

    def hello(self, _: Received) -> Message:
        return Message()

    def begin(self, received: Received) -> Message:
        from clawrl_gym.inference.device import torch_device
        from clawrl_gym.trainers.updates.learner import Learner

        self._begun += 1
        model, values = self._folder / f"model-{self._begun}", received.values
        received.unpack(model)
        self._learner = Learner(
            TrainerConfig.model_validate(values["trainer"]),
            LearnerConfig.model_validate(values["learner"]),
            str(model),
            values["seed"],
            torch_device("auto"),
            values["temperature"],
            objectives=frozenset(values["objectives"]),
        )
        return Message()

    def step(self, received: Received) -> Message:
        samples = SampleBatch.of_arrays(received.arrays).samples()
        return Message(asdict(self._learner.step(samples, received.values["version"])))

    def review(self, received: Received) -> Message:
        samples = SampleBatch.of_arrays(received.arrays).samples()
        return Message(asdict(self._learner.review(samples)))

    def probe(self, _: Received) -> Message:
        return Message(asdict(self._learner.probe()))

    def publish(self, received: Received) -> Message:
        """The newest one alone stays."""
        shutil.rmtree(self._version(self._given_out), ignore_errors=True)
        self._given_out += 1
        folder = str(self._version(self._given_out))
        if received.values["as_adapter"]:
            self._learner.save_adapter(folder)
        else:
            self._learner.save_weights(folder)
        return Message({"name": str(self._given_out)})

    def fetch(self, received: Received) -> Message:
        return Message(folder=self._version(int(received.values["name"])))

    def save_checkpoint(self, _: Received) -> Message:
        folder = self._folder / "checkpoint"
        self._learner.save_checkpoint(str(folder))
        return Message(folder=folder)

    def load_checkpoint(self, received: Received) -> Message:
        folder = self._folder / "loaded"
        _put_whole(received, folder)
        self._learner.load_checkpoint(str(folder))
        return Message()

    def _version(self, number: int) -> Path:
        return self._folder / f"version-{number}"


_METHODS = (
    "hello", "begin", "step", "review", "probe", "publish", "fetch", "save_checkpoint",
    "load_checkpoint",
)  # fmt: skip


def serve(host: Host, port: int) -> ThreadingHTTPServer:
    """Answer at a port of loopback; 0 takes any."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                status, answer = 200, host.call(self.path.strip("/"), body)
            except (ClawError, ValueError, OSError) as error:
                status, answer = 500, f"{type(error).__name__}: {error}".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None: ...

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description="A learner behind HTTP.")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as folder:
        server = serve(Host(Path(folder)), arguments.port)
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
