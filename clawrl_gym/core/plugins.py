"""The one registry: for every seam, from a name or an import path to a class.

A name stands for one of ours (listed below, as strings: nothing is imported to know them) or for
an entry point of an installed package in the seam's group; anything with a colon is an import path,
`package.module:Name`. All are resolved the same way, here and in Ray workers, and checked before
anything starts: what cannot be imported, what is of another seam, which options it does not take.

A class says with a nested pydantic model `Options` which options it takes; without one it takes
none. It is called with its options, if it takes any, or built by a classmethod `from_config`, which
gets the seam's part of the configuration and what its docstring says.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clawrl_gym.core.errors import ConfigError

if TYPE_CHECKING:  # importing the package must stay light
    from pydantic import BaseModel, ValidationError


class Options(Protocol):
    """The part of a configuration that a plug-in's class checks itself."""

    @property
    def options(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True)
class Seam:
    """A place where a class of one's own fits."""

    name: str
    """In messages."""
    key: str
    """The configuration key that names the class."""
    options_key: str
    """The configuration key of the class's own options."""
    group: str
    """Entry points `NAME = "package.module:Name"` of this group are found by their names."""
    builtin: Mapping[str, str]
    """Import paths by name."""
    methods: tuple[str, ...] = ()
    """What a class must have to fit."""
    base: str | None = None
    """Import path of the class that it must extend."""
    words: tuple[str, ...] = ()
    """Values of the key that name no class."""

    def path(self, name: str) -> str:
        """The import path that a name stands for. Raises ConfigError for an unknown one."""
        if ":" in name:
            return name
        if name in self.builtin:
            return self.builtin[name]
        installed = self.installed()
        if name in installed:
            return installed[name].value
        names = [*self.words, *self.builtin, *installed]
        near = difflib.get_close_matches(name, names, n=1)
        raise ConfigError(
            f"got {self.key}={name!r}"
            + (f" (did you mean {near[0]!r}?)" if near else "")
            + f", expected one of {', '.join(names)}, a name that an installed package gives in "
            f"its entry points {self.group!r}, or package.module:Name"
        )

    def installed(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages, by name; names of ours are not replaced."""
        entries = {entry.name: entry for entry in entry_points(group=self.group)}
        return {name: entry for name, entry in entries.items() if name not in self.builtin}

    def resolve(self, name: str) -> Plugin:
        """The class that a name or an import path stands for.

        Raises ConfigError for what is unknown, cannot be imported, or does not fit here.
        """
        plugin = Plugin(self, name, load(self.path(name), f"{self.key}={name}"))
        plugin.check()
        return plugin

    def checked_options(self, name: str, options: Mapping[str, object]) -> dict[str, object]:
        """All options of a plug-in, its defaults too. Raises ConfigError for what does not fit.

        One of ours that is given no options is not imported: its name is enough.
        """
        if name in self.words:
            if options:
                raise ConfigError(f"{self.key}={name} takes no {self.options_key}")
            return {}
        if name in self.builtin and not options:
            return {}
        parsed = self.resolve(name).options(options)
        return {} if parsed is None else parsed.model_dump()

    def with_options(self, part: object, field: str, usual: str) -> object:
        """A configuration part's plain values with the plug-in's options checked and complete.

        `field` of the part names the plug-in, `usual` is what it is when nothing says. For pydantic
        validators of mode "before". Raises ConfigError.
        """
        if not isinstance(part, Mapping):
            return part
        name, options = part.get(field, usual), part.get("options", {})
        if not isinstance(name, str):
            raise ConfigError(f"got {self.key}={name!r}, expected a name or package.module:Name")
        if not isinstance(options, Mapping):
            raise ConfigError(f"got {self.options_key}={options!r}, expected KEY=VALUE pairs")
        if name not in self.words and not options and name in self.builtin:
            return part
        return {**part, "options": self.checked_options(name, options)}


@dataclass(frozen=True)
class Plugin:
    """A class that was found for a seam."""

    seam: Seam
    name: str
    """As the configuration has it."""
    target: Any
    """The class (any class at all until `check` has looked at it)."""

    def check(self) -> None:
        """Raises ConfigError when the class belongs to another seam."""
        seam = self.seam
        if not inspect.isclass(self.target):
            kind = type(self.target).__name__
            raise ConfigError(f"got {seam.key}={self.name}, a {kind}, expected a class")
        if seam.base is not None and not issubclass(self.target, load(seam.base, seam.key)):
            raise ConfigError(
                f"got {seam.key}={self.name}, a class that extends {_bases(self.target)}, expected "
                f"one that extends {seam.base} (the seam {seam.name!r})"
            )
        lacking = [name for name in seam.methods if not hasattr(self.target, name)]
        if lacking:
            raise ConfigError(
                f"got {seam.key}={self.name}, a class without {', '.join(lacking)}, expected one "
                f"with {', '.join(seam.methods)} (the seam {seam.name!r})"
            )

    @cached_property
    def options_model(self) -> type[BaseModel] | None:
        """The model of its options; None for a class that takes none."""
        from pydantic import BaseModel

        model = getattr(self.target, "Options", None)
        return model if inspect.isclass(model) and issubclass(model, BaseModel) else None

    def options(self, values: Mapping[str, object]) -> BaseModel | None:
        """Its options, checked. Raises ConfigError naming each wrong key."""
        from pydantic import ValidationError

        if self.options_model is None:
            if values:
                key = f"{self.seam.options_key}.{next(iter(values))}"
                raise ConfigError(
                    f"unknown configuration key {key!r}: {self.seam.key}={self.name} takes no "
                    "options (its class has no pydantic model `Options`)"
                )
            return None
        fields = set(self.options_model.model_fields)
        for name in values:
            if name not in fields:  # also for a model that would ignore it
                key = f"{self.seam.options_key}.{name}"
                raise ConfigError(
                    unknown_key(key, [f"{self.seam.options_key}.{n}" for n in fields])
                )
        try:
            return self.options_model.model_validate(values)
        except ValidationError as error:
            raise ConfigError(validation_message(error, f"{self.seam.options_key}.")) from error

    def build(self, config: Options, *arguments: object, plain: Sequence[object] = ()) -> Any:
        """An instance: `from_config(config, *arguments)`, or `Class(*plain, options)`.

        Which of the two the most derived class says that defines `from_config`, `__init__` or
        `Options`: one that extends a class of ours with a constructor of its own is called.
        """
        for base in self.target.__mro__:
            if "from_config" in vars(base):
                return self.target.from_config(config, *arguments)
            if {"Options", "__init__"} & set(vars(base)):
                break
        options = self.options(config.options)
        return self.target(*plain) if options is None else self.target(*plain, options)


def load(path: str, origin: str) -> Any:
    """The object at `package.module:Name`; `origin` is the setting that names it.

    Raises ConfigError naming what is missing: the colon, the module or the attribute.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"got {origin}, expected 'package.module:ClassName'")
    try:
        loaded = importlib.import_module(module_name)
    except ConfigError:
        raise
    except ImportError as error:
        raise ConfigError(
            f"cannot import {module_name!r} of {origin}: {error}; "
            "install the package or put its folder on PYTHONPATH"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"cannot import {module_name!r} of {origin}: its code raised "
            f"{type(error).__name__}: {error}"
        ) from error
    for part in name.split("."):
        if not hasattr(loaded, part):
            near = difflib.get_close_matches(part, dir(loaded), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"module {module_name!r} has no {name!r} ({origin}){hint}")
        loaded = getattr(loaded, part)
    return loaded


def unknown_key(key: str, keys: Iterable[str]) -> str:
    """The message about a configuration key that does not exist, with the nearest that does."""
    near = [close for close in difflib.get_close_matches(key, sorted(keys), n=2) if close != key]
    return f"unknown configuration key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def validation_message(error: ValidationError, prefix: str = "", keys: Iterable[str] = ()) -> str:
    """All problems of a configuration in one line; `prefix` stands before each key.

    `keys` are those that unknown ones are compared with.
    """
    problems = []
    for problem in error.errors():
        key = prefix + ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "value_error" and not problem["loc"]:
            problems.append(problem["msg"].removeprefix("Value error, "))
        elif problem["type"] == "extra_forbidden":
            problems.append(unknown_key(key, keys))
        else:
            problems.append(f"{key}: got {problem['input']!r}: {problem['msg']}")
    return "; ".join(problems)


def fingerprints(paths: Iterable[str]) -> dict[str, str]:
    """Of each import path: the file of its module and a hash of the source.

    What differs between two processes is not the same plug-in.
    """
    return {path: _fingerprint(path) for path in sorted(set(paths))}


def check_fingerprints(expected: Mapping[str, str]) -> None:
    """Raises ConfigError when a plug-in here is not the driver's."""
    for path, fingerprint in expected.items():
        if (here := _fingerprint(path)) != fingerprint:
            raise ConfigError(
                f"the plug-in {path!r} differs between processes: the driver has {fingerprint}, "
                f"this worker {here}; give both the same files: install the package, or put its "
                "folder (as an absolute path) on PYTHONPATH"
            )


def _fingerprint(path: str) -> str:
    try:
        load(path, path)
    except ConfigError as error:
        return f"nothing ({error})"
    file = getattr(sys.modules[path.partition(":")[0]], "__file__", None)
    if file is None or not Path(file).is_file():
        return "no file"
    return f"{Path(file).name} {hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]}"


def _bases(target: type) -> str:
    return ", ".join(base.__name__ for base in target.__mro__[1:-1]) or "nothing"


AGENTS = Seam(
    "agent", "agent.type", "agent.options", "clawrl_gym.agents",
    builtin={
        "terminal": "clawrl_gym.envs.terminal.agent:TerminalAgent",
        "conversation": "clawrl_gym.envs.conversation.agent:ConversationAgent",
        "swe": "clawrl_gym.envs.swe.agent:SweAgent",
        "toolcall": "clawrl_gym.envs.toolcall.agent:ToolCallAgent",
        "gui": "clawrl_gym.envs.gui.agent:GuiAgent",
        "text": "clawrl_gym.agents.text:TextAgent",
    },
    methods=("messages", "tools", "instructions", "action"),
    words=("auto", "harness"),
)  # fmt: skip
ALGORITHMS = Seam(
    "algorithm", "trainer.algorithm", "trainer.options", "clawrl_gym.algorithms",
    builtin={
        "grpo": "clawrl_gym.trainers.grpo:Grpo",
        "binary": "clawrl_gym.trainers.binary:Binary",
        "opd": "clawrl_gym.trainers.opd:Opd",
        "hybrid": "clawrl_gym.trainers.hybrid:Hybrid",
    },
    base="clawrl_gym.trainers.algorithm:Algorithm",
)  # fmt: skip
ENVIRONMENTS = Seam(
    "environment", "env.type", "env", "clawrl_gym.envs",
    builtin={
        "terminal": "clawrl_gym.envs.terminal.config:TerminalEnvConfig",
        "conversation": "clawrl_gym.envs.conversation.config:ConversationEnvConfig",
        "swe": "clawrl_gym.envs.swe.config:SweEnvConfig",
        "toolcall": "clawrl_gym.envs.toolcall.config:ToolCallEnvConfig",
        "gui": "clawrl_gym.envs.gui.config:GuiEnvConfig",
        "gym": "clawrl_gym.envs.gym.config:GymEnvConfig",
    },
    base="clawrl_gym.config.envs:EnvConfig",
)  # fmt: skip
HINT_SOURCES = Seam(
    "hint source", "judge.hints.source", "judge.hints.options", "clawrl_gym.hint_sources",
    builtin={}, methods=("hints",), words=("judge",),
)  # fmt: skip
JUDGES = Seam(
    "judge", "judge.type", "judge.options", "clawrl_gym.judges",
    builtin={
        "rule": "clawrl_gym.judge.rules:RuleJudge",
        "model": "clawrl_gym.judge.model:ModelJudge",
        "reward_model": "clawrl_gym.judge.reward_model:RewardModelJudge",
        "chain": "clawrl_gym.judge.chain:ChainJudge",
    },
    methods=("kind", "judge"),
    words=("none", "feedback"),
)  # fmt: skip
LEARNERS = Seam(
    "learner", "learner.backend", "learner.options", "clawrl_gym.learners",
    builtin={
        "torch": "clawrl_gym.trainers.learner:Learner",
        "simulated": "clawrl_gym.trainers.simulated:SimulatedLearner",
    },
    methods=("step", "save_weights", "save_checkpoint", "load_checkpoint"),
)  # fmt: skip
LOGGERS = Seam(
    "logger", "logger", "logger_options", "clawrl_gym.loggers",
    builtin={
        "tensorboard": "clawrl_gym.core.loggers:TensorBoardLogger",
        "wandb": "clawrl_gym.core.loggers:WandbLogger",
    },
    methods=("log", "close"),
    words=("none",),
)  # fmt: skip
SANDBOXES = Seam(
    "sandbox", "sandbox.type", "sandbox.options", "clawrl_gym.sandboxes",
    builtin={
        "bubblewrap": "clawrl_gym.envs.sandbox.bubblewrap:BubblewrapSandbox",
        "docker": "clawrl_gym.envs.sandbox.docker.sandbox:DockerSandbox",
    },
    methods=("exec", "write", "read", "mode", "successor", "close"),
    words=("auto",),
)  # fmt: skip

SEAMS = {
    seam.name: seam
    for seam in (
        AGENTS, ALGORITHMS, ENVIRONMENTS, HINT_SOURCES, JUDGES, LEARNERS, LOGGERS, SANDBOXES,
    )
}  # fmt: skip
"""By name."""
