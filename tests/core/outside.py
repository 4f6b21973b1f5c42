"""Classes of somebody else's package, as text; `installed` puts them where they are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

GOOD = "Say the number alone, without words around it."
SEAMS = '''
"""A class or function for every seam, in a package outside of the repository."""

import time
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

import clawrl_gym as cg
from clawrl_gym.agents.text import TextAgent
from clawrl_gym.envs.sandbox.interface import ExecResult


GOOD = "Say the number alone, without words around it."


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


class Weighing(cg.Algorithm):
    Options = Options

    def __init__(self, options):
        super().__init__()
        self.size = options.size

    def weights(self, group, segments_G, verdicts_G, prompts_G):
        return [
            {turn: cg.TurnWeights(advantage=[self.size * n for n in range(length)])
             for segment in segments for turn, (_, length) in segment.spans.items()}
            for segments in segments_G
        ]


def weighed(tokens, options: Options):
    return cg.TokenLoss(-options.size * tokens.advantages_M * tokens.ratio_M)


class Shouting(TextAgent):
    Options = Options

    def __init__(self, options):
        super().__init__("S" * options.size)


class Plain(TextAgent):
    """A constructor of its own and no options."""

    def __init__(self):
        super().__init__("plain")


class Grumpy:
    kind = "rule"
    Options = Options

    def __init__(self, options):
        self.size = options.size

    async def judge(self, case):
        return cg.Verdict(case.turn_id, "rule", -1, -1.0, {}, time.time())


class Teaching:
    Options = Options

    def __init__(self, options):
        self.size = options.size

    async def hints(self, case):
        return [GOOD, "x", "\\\\boxed{1} is no hint at all"]


class Failing:
    async def hints(self, case):
        raise RuntimeError("no idea")


class Printing:
    Options = Options

    def __init__(self, folder, config, options):
        self.folder, self.config, self.size, self.rows = folder, config, options.size, []

    def log(self, step, values):
        self.rows.append((step, dict(values)))

    def close(self):
        pass


class Sleeping:
    Options = Options

    def __init__(self, trainer, learner, model_dir, seed, device, temperature=1.0, images=None):
        self.size = learner.options["size"]

    def step(self, samples, version): ...
    def save_weights(self, folder): ...
    def save_checkpoint(self, folder): ...
    def load_checkpoint(self, folder): ...


class Cardboard:
    Options = Options

    @classmethod
    def from_config(cls, config, spec):
        box = cls()
        box.size, box.workdir = config.options["size"], spec.workdir
        return box

    def exec(self, command, timeout_s):
        return ExecResult(command.upper(), 0)

    def write(self, path, data, mode=0o644): ...
    def read(self, path, max_bytes): return b""
    def mode(self, path): return 0o644
    def successor(self): return self
    def close(self): ...


not_a_class = 3
'''

KIND = '''
"""A kind of environments: its configuration, its tasks, its agent."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

import clawrl_gym as cg
from clawrl_gym.agents.text import TextAgent
from clawrl_gym.config import EnvConfig


@dataclass(frozen=True)
class EchoTask:
    id: str
    split: str
    family: str = "echo"


class EchoTasks:
    def ids(self, split):
        return [f"echo-{split}-{number}" for number in range(4)]

    def load(self, task_id):
        return EchoTask(task_id, task_id.split("-")[1])


class Nothing:
    def close(self): ...


class EchoEnv(cg.TaskEnv):
    def __init__(self, word="hello", max_turns=2, render_mode=None):
        super().__init__(max_turns, render_mode)
        self._word, self._source, self._said = word, EchoTasks(), ""

    def _request(self, task): return f"Say {self._word}."
    def _open(self, task): return Nothing()

    def _act(self, task, held, action):
        self._said = action
        return "ok", True

    def _grade(self, task, held):
        return float(self._said == self._word), "Test report: passed"


class EchoAgent(TextAgent):
    pass


class EchoConfig(EnvConfig):
    """Say a word."""

    usual_agent: ClassVar[str] = "outside_kind:EchoAgent"
    word: str = Field("hello", min_length=1)
    max_turns: int = Field(2, ge=1)

    def make(self):
        return EchoEnv(self.word, self.max_turns)

    def task_ids(self, split):
        return EchoTasks().ids(split)
'''


@contextmanager
def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, entry_points: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """`outside_seams` and `outside_kind` on the path; `entry_points` as GROUP -> "NAME = PATH"."""
    (folder / "outside_seams.py").write_text(SEAMS)
    (folder / "outside_kind.py").write_text(KIND)
    if entry_points:
        info = folder / "outside-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
        text = "".join(f"[{group}]\n{entry}\n" for group, entry in entry_points.items())
        (info / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
