"""`sft`: supervised learning on the learner that RL has, from chats, episodes or demonstrations.

Everything follows from the configuration: which rows are held out, which samples each update takes,
at which rate. So a run that was stopped resumes from its newest checkpoint with the very updates
that it would have made. Its checkpoints are those of any run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from clawrl_gym.config import SftConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.files.files import private_files, replace_text
from clawrl_gym.core.files.folder_lock import lock_folder
from clawrl_gym.core.metrics import Metrics
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.core.progress import NowAndThen
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.inference.models.resolve import check_context, find_model, resolve_model
from clawrl_gym.inference.weights.checkpoints import checkpoint_dir, list_checkpoints
from clawrl_gym.preflight.problems import Problems
from clawrl_gym.run.demonstrations import check_demonstrable, write_demonstrations
from clawrl_gym.run.policy import OnPhase, quiet
from clawrl_gym.run.sft_data import SftData, SftReader
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import keep_model, kept_model
from clawrl_gym.trainers.capabilities import capabilities_of
from clawrl_gym.trainers.models import eight_bits, nf4
from clawrl_gym.trainers.updates.actor import LearnerSetup, make_learner
from clawrl_gym.trainers.updates.learner import Learner
from clawrl_gym.trainers.updates.supervised import BatchOrder, mean_loss

HELDOUT_LOSS = "sft/heldout_loss"
"""Metric: mean over the tokens of held-out replies, in nats."""
DATA_FILE = "data.json"
"""In the run's folder: digest of what it learns from."""
DEMONSTRATIONS_FILE = "demonstrations.jsonl"
_PACK = "max_tokens_per_pack"
_KEPT = 2
"""Newest checkpoints, where learner.keep_checkpoints is not a number."""


@dataclass(frozen=True, slots=True)
class SftRun:
    """A supervised run that has ended."""

    folder: Path
    updates: int
    losses: dict[int, float]
    """Held-out ones, by the updates before each; empty where nothing is held out."""
    data: SftData

    def summary(self) -> str:
        """The result in a few lines."""
        lines = [f"{self.folder}: {self.updates} updates on {self.data.summary()}"]
        if self.losses:
            first, last = self.losses[min(self.losses)], self.losses[max(self.losses)]
            lines.append(f"held-out loss {first:.3f} before, {last:.3f} after")
            best = min(self.losses, key=lambda update: self.losses[update])
            place = checkpoint_dir(RunFolder(self.folder).checkpoints, best)
            if best < self.updates and place.is_dir():
                lines.append(f"it was lowest, {self.losses[best]:.3f}, in policy.model={place}")
        lines.append(
            f"continue with RL: python -m clawrl_gym.train policy.model={self.folder} env=NAME"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SftPlan:
    """A supervised run that can begin, or resume."""

    config: SftConfig
    folder: RunFolder
    model: Path | None
    """The model; None: it is to be downloaded, and the data read then."""
    device: Device
    data: SftData | None = None
    """The data; None before the model is here, or the demonstrations are played."""

    def lines(self) -> list[str]:
        """Lines about what would be done."""
        config = self.config
        lines = [f"Configuration is valid. {self.folder.path} would be trained on {self.device}"]
        if config.demonstrations:
            lines.append(f"  demonstrations  {config.demonstrations} of env={config.env.type}")
        if self.data is None:
            return [*lines, "  data       read when that is here"]
        order = order_of(config, self.data)
        return [
            *lines,
            f"  data       {self.data.summary()}",
            f"  updates    {updates_of(config, order)}, of {config.batch} sequences",
            *(f"  note       {note}" for note in self.data.notes),
        ]


def order_of(config: SftConfig, data: SftData) -> BatchOrder:
    """The samples of each update."""
    return BatchOrder(len(data.train), config.batch, config.seed)


def updates_of(config: SftConfig, order: BatchOrder) -> int:
    """Updates of the whole run."""
    return config.steps or config.epochs * order.updates_per_epoch


def preflight_sft(config: SftConfig) -> SftPlan:
    """Check all. Raises ConfigErrors with all that would keep `sft` from running."""
    problems = Problems()
    folder = _folder_of(config)
    with problems.noted():
        folder.check_usable() if config.resume else folder.check_new()
    if not config.data and not config.demonstrations:
        problems.lines.append(
            "got no data, expected chats, a run's folder or demonstrations: "
            "python -m clawrl_gym.sft chats.jsonl, or demonstrations=200 env=NAME"
        )
    able = capabilities_of(config.learner)
    if able.remote or not able.supervised:
        problems.lines.append(
            f"got learner.backend={config.learner.backend}, expected torch: no other one learns "
            "from supervision"
        )
    if config.learner.adapter is not None and config.learner.base == "nf4":
        with problems.noted():
            nf4.check_installed()
    if config.learner.moment_bits == 8:
        with problems.noted():
            eight_bits.check_installed()
    if config.demonstrations:
        with problems.noted():
            check_demonstrable(config.env, config.agent)
    device: Device = "cpu"
    with problems.noted():
        device = engine_class(config.policy).device(config.policy.device)
    model = None
    with problems.noted():
        model = kept_model(folder.path, config.policy.model) or find_model(config.policy.model)
        if model is not None:
            check_context(config.policy.max_model_len, model)
    problems.raise_if_any()
    files = _demonstrations_in(config, folder)
    data = None
    if model is not None and not (config.demonstrations and not files):
        data = SftReader(config, model).read(files)
    return SftPlan(config, folder, model, device, data)


async def sft(config: SftConfig, *, on_phase: OnPhase = quiet) -> SftRun:
    """Learn as configured. Raises ClawError for what cannot be learned."""
    plan = await asyncio.to_thread(preflight_sft, config)
    way_on = plan.folder.way_on("sft")
    with private_files():
        lock = lock_folder(plan.folder.path)
        try:
            if not config.resume:
                _write_config(plan.folder, config)
            with INTERRUPTS.goes_on(way_on):
                return await _carried_out(plan, on_phase)
        finally:
            os.close(lock)


async def _carried_out(plan: SftPlan, on_phase: OnPhase) -> SftRun:
    config, folder = plan.config, plan.folder
    file = folder.path / DEMONSTRATIONS_FILE
    if config.demonstrations and not file.is_file():
        on_phase("sft", f"playing {config.demonstrations} episodes of env={config.env.type}")
        await write_demonstrations(
            file, config.demonstrations, config.env, config.agent, config.seed,
            lambda line: on_phase("demonstrations", line),
        )  # fmt: skip
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(_learn, plan, stop, on_phase))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        raise


def _learn(plan: SftPlan, stop: threading.Event, on_phase: OnPhase) -> SftRun:
    """All that torch does, in one thread."""
    config, folder = plan.config, plan.folder
    model = plan.model or resolve_model(config.policy.model)
    data = plan.data or SftReader(config, model).read(_demonstrations_in(config, folder))
    for line in (data.summary(), *data.notes):
        on_phase("sft", line)
    _check_same(folder, data)
    order = order_of(config, data)
    updates = updates_of(config, order)
    trainer = TrainerConfig(steps=updates, max_tokens_per_pack=config.max_tokens_per_pack)
    kept = keep_model(folder.path, model)
    setup = LearnerSetup(
        trainer, config.learner, config.seed, plan.device, temperature=1.0, model_dir=str(kept)
    )
    learner: Learner = make_learner(setup)
    checkpoints = list_checkpoints(folder.checkpoints)
    if checkpoints:
        learner.load_checkpoint(str(checkpoints[max(checkpoints)]))
        on_phase("sft", f"resuming after update {learner.updates}")
    metrics = Metrics(folder.path, "none", config.model_dump(mode="json"))
    try:
        loop = _Loop(config, folder, data, order, updates, learner, metrics, on_phase)
        loop.run(stop)
    except TrainerError as error:  # what it advises has another name here
        raise TrainerError(str(error).replace(f"trainer.{_PACK}", _PACK)) from error
    finally:
        metrics.close()
    return SftRun(folder.path, learner.updates, loop.losses, data)


@dataclass(slots=True)
class _Loop:
    """Updates, held-out losses and checkpoints, in their order."""

    config: SftConfig
    folder: RunFolder
    data: SftData
    order: BatchOrder
    updates: int
    learner: Learner
    metrics: Metrics
    on_phase: OnPhase
    losses: dict[int, float] = field(default_factory=dict)
    """Held-out ones, by the updates before each, earlier parts of the run included."""

    def run(self, stop: threading.Event) -> None:
        """To the last update; or, once `stop` is set, to a checkpoint after the one at hand."""
        self.losses = {
            int(row["step"]): row[HELDOUT_LOSS]
            for row in self.metrics.history
            if HELDOUT_LOSS in row and row["step"] <= self.learner.updates
        }
        begun = self.learner.updates
        if not begun:
            self._measure()
        now_and_then = NowAndThen(lambda line: self.on_phase("sft", line))
        every = self.config.every or self.order.updates_per_epoch
        while self.learner.updates < self.updates and not stop.is_set():
            line = self._update()
            done = self.learner.updates
            now_and_then(line + now_and_then.left(done - begun, self.updates - begun))
            if done % every == 0 or done == self.updates:
                self._measure()
                self._save()
        if stop.is_set() and begun < self.learner.updates < self.updates:
            self._save()

    def _update(self) -> str:
        """One update; what became of it."""
        update = self.learner.updates
        batch = [self.data.train[index] for index in self.order.indices(update)]
        stats = self.learner.supervised_step(batch, update)
        epoch = (update + 1) / self.order.updates_per_epoch
        self.metrics.log(update + 1, stats.metrics | {"sft/epoch": epoch})
        of = stats.metrics
        return (
            f"update {update + 1} of {self.updates}: loss {of['learner/loss']:.3f}, "
            f"{of['learner/tokens_per_s']:,.0f} tokens/s"
        )

    def _measure(self) -> None:
        if not self.data.heldout:
            return
        loss = mean_loss(self.learner.review(self.data.heldout).logprobs)
        update = self.learner.updates
        self.losses[update] = loss
        self.metrics.log(update, {HELDOUT_LOSS: loss})
        when = "before" if update == 0 else f"after update {update}"
        self.on_phase("sft", f"held-out loss {when}: {loss:.3f}")

    def _save(self) -> None:
        """A checkpoint; the newest ones and the best on what is held out stay."""
        self.learner.save_checkpoint(
            str(checkpoint_dir(self.folder.checkpoints, self.learner.updates))
        )
        number = self.config.learner.keep_checkpoints
        checkpoints = list_checkpoints(self.folder.checkpoints)
        kept = set(list(checkpoints)[-(number if isinstance(number, int) else _KEPT) :])
        measured = [update for update in checkpoints if update in self.losses]
        kept.update(sorted(measured, key=lambda update: self.losses[update])[:1])
        for update, place in checkpoints.items():
            if update not in kept:
                shutil.rmtree(place)


def _folder_of(config: SftConfig) -> RunFolder:
    if config.resume is not None:
        return RunFolder(Path(config.resume))
    if config.run.dir is not None:
        return RunFolder(Path(config.run.dir))
    name = f"sft-{Path(config.policy.model).name}-{time.strftime('%Y%m%d-%H%M%S')}"
    return RunFolder(Path(config.run.root) / (config.run.name or name))


def _demonstrations_in(config: SftConfig, folder: RunFolder) -> list[Path]:
    """Folders of demonstrations that were played; empty before."""
    file = folder.path / DEMONSTRATIONS_FILE
    return [file] if config.demonstrations and file.is_file() else []


def _write_config(folder: RunFolder, config: SftConfig) -> None:
    try:
        for place in (folder.path, folder.checkpoints):
            place.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
        replace_text(folder.config_file, text)
    except OSError as error:
        raise ConfigError(f"cannot make the run's folder {folder.path}: {error}") from error


def _check_same(folder: RunFolder, data: SftData) -> None:
    """Check that a resumed run has the data that it began with; the first time it is noted. Raises
    ConfigError."""
    file = folder.path / DATA_FILE
    now = {"digest": data.digest, "train": len(data.train), "heldout": len(data.heldout)}
    if not file.is_file():
        replace_text(file, json.dumps(now) + "\n")
        return
    before = json.loads(file.read_text("utf-8"))
    if before != now:
        raise ConfigError(
            f"got other data than {folder.path} began with ({_words(before)} then, {_words(now)} "
            "now), expected the same: restore it, or begin a new run with the weights: "
            f"policy.model={folder.path}"
        )


def _words(facts: dict[str, object]) -> str:
    return f"{facts.get('train')} + {facts.get('heldout')} sequences"
