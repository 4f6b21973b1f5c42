"""The one registry: for every seam, from a name or an import path to a class, or to a function.

A name stands for a built-in one (listed below, as strings: nothing is imported to know them) or for
an entry point of an installed package in the seam's group; anything with a colon is an import path,
`package.module:Name`. All are resolved the same way, here and in Ray workers, and checked before
anything starts: a failed import, a class of another seam, an unknown option, a missing capability.

A class declares its options with a nested pydantic model `Options`; without one it takes none. It
is called with its options, if it takes any, or built by a classmethod `from_config`, which gets the
seam's part of the configuration and what its docstring says. A function (of the seam `loss`)
declares them with the annotation of its parameter `options`.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_type_hints

from clawrl_gym.core.errors import ClawError, ConfigError

if TYPE_CHECKING:  # importing the package must stay light
    from pydantic import BaseModel, ValidationError


class Options(Protocol):
    """The part of a configuration that a plug-in checks itself."""

    @property
    def options(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True)
class Seam:
    """An extension point that takes a class or a function of one's own."""

    name: str
    """Name in messages."""
    key: str
    """The configuration key that names the class."""
    options_key: str
    """The configuration key of the class's own options."""
    group: str
    """Entry points `NAME = "package.module:Name"` of this group are found by their names."""
    builtin: Mapping[str, str]
    """Import paths by name."""
    methods: tuple[str, ...] = ()
    """Methods that a class must have."""
    coroutines: tuple[str, ...] = ()
    """The members of `methods` that are written with `async def`."""
    fields: tuple[str, ...] = ()
    """Class attributes that a class must have."""
    base: str | None = None
    """Import path of the class that it must extend."""
    from_config: tuple[str, ...] = ()
    """Names of the arguments of its `from_config`, if it has one."""
    plain: tuple[str, ...] | None = ()
    """Names of its constructor's arguments before its options; None: a configuration part."""
    with_own_options: bool = True
    """Whether its constructor gets its options; otherwise they are part of its arguments."""
    takes: Literal["class", "function"] = "class"
    """A function is called with `plain`, and its options if it takes any."""
    says_options: bool = False
    """Whether a configuration lists all options of built-in ones, defaults included. Their modules
    then import nothing heavy."""
    words: tuple[str, ...] = ()
    """Values of the key that do not name a class."""
    capabilities: str | None = None
    """Import path of the frozen dataclass in which a class declares what it can do beyond
    `methods`, as its attribute `capabilities`. A class without one can do no more."""
    capability_methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Methods that a class must have as well when it declares the capability."""
    declared: Mapping[str, str] = field(default_factory=dict)
    """Import paths of built-in declarations, by name, where the class's own module is heavy."""

    def path(self, name: str) -> str:
        """The import path that a name stands for. Raises ConfigError for an unknown one."""
        if ":" in name:
            return name
        if name in self.builtin:
            return self.builtin[name]
        installed = self.installed()
        if name in installed:
            return _path_of(installed[name], self.key)
        names = [*self.words, *self.builtin, *installed]
        near = difflib.get_close_matches(name, names, n=1)
        raise ConfigError(
            f"got {self.key}={name!r}"
            + (f" (did you mean {near[0]!r}?)" if near else "")
            + f", expected one of {', '.join(names)}, a name that an installed package gives in "
            f"its entry points {self.group!r}, or package.module:Name"
        )

    def installed(self) -> dict[str, list[EntryPoint]]:
        """Entry points of installed packages by name; built-in names are not replaced."""
        entries: dict[str, list[EntryPoint]] = {}
        for entry in sorted(entry_points(group=self.group), key=_package):
            if entry.name not in self.builtin and entry.name not in self.words:
                entries.setdefault(entry.name, []).append(entry)
        return entries

    def resolve(self, name: str) -> Plugin:
        """The class or function that a name or an import path stands for.

        Raises ConfigError for what is unknown, cannot be imported, or does not fit here.
        """
        path = self.path(name)
        origin = f"{self.key}={name}" + ("" if path == name else f" ({path})")
        plugin = Plugin(self, name, load(path, origin))
        plugin.check()
        return plugin

    def capabilities_of(self, name: str) -> Any:
        """The capabilities that the class declares; of the type that `capabilities` names.

        Raises ConfigError for what is unknown, cannot be imported, or does not fit here.
        """
        if name in self.declared:
            return load(self.declared[name], self.key)
        return self.resolve(name).capabilities

    def require(self, name: str, needs: Mapping[str, str]) -> None:
        """Raise ConfigError for a capability that the class does not declare.

        `needs`: who needs it and what for, by capability.
        """
        for capability, why in needs.items():
            if getattr(self.capabilities_of(name), capability):
                continue
            able = [one for one in self.builtin if getattr(self.capabilities_of(one), capability)]
            raise ConfigError(
                f"got {self.key}={name}, which has no {capability} ({why}), expected a {self.name} "
                f"that has: {', '.join([*able, 'or a class of your own that declares it'])}"
            )

    def checked_options(self, name: str, options: Mapping[str, object]) -> dict[str, object]:
        """All options of a plug-in, its defaults too. Raises ConfigError for wrong ones.

        A built-in one without options is not imported, unless the seam `says_options`: its name is
        enough.
        """
        if name in self.words:
            if options:
                raise ConfigError(f"{self.key}={name} takes no {self.options_key}")
            return {}
        if self._needs_no_look(name, options):
            return {}
        from pydantic_core import PydanticSerializationError

        plugin = self.resolve(name)
        parsed = plugin.options(options)
        if parsed is None:
            return {}
        try:
            values = parsed.model_dump(mode="json")
        except PydanticSerializationError:
            values = None
        if (
            values is None or plugin.options(values) != parsed
        ):  # as config.yaml and other processes have them
            raise ConfigError(
                f"the options of {self.key}={name} cannot be written to config.yaml and read "
                f"again: {parsed!r:.200}; expected numbers, texts, paths, lists and the like"
            )
        return values

    def with_options(self, part: object, field: str, usual: str) -> object:
        """A configuration part's plain values with the plug-in's options checked and complete.

        `field` of the part names the plug-in, `usual` is its default. For pydantic validators of
        mode "before". Raises ConfigError.
        """
        if not isinstance(part, Mapping):
            return part
        name, options = part.get(field, usual), part.get("options", {})
        if not isinstance(name, str):
            raise ConfigError(f"got {self.key}={name!r}, expected a name or package.module:Name")
        if not isinstance(options, Mapping):
            raise ConfigError(f"got {self.options_key}={options!r}, expected KEY=VALUE pairs")
        if self._needs_no_look(name, options):
            return part
        return {**part, "options": self.checked_options(name, options)}

    def _needs_no_look(self, name: str, options: Mapping[str, object]) -> bool:
        return name in self.builtin and not options and not self.says_options


@dataclass(frozen=True)
class Plugin:
    """A class or function that was found for a seam."""

    seam: Seam
    name: str
    """Its name in the configuration."""
    target: Any
    """The class or function (anything at all until `check` has looked at it)."""

    def check(self) -> None:
        """Raise ConfigError when it belongs to another seam."""
        seam = self.seam
        misfit = self._misfit()
        if misfit is not None:
            raise ConfigError(
                f"got {seam.key}={self.name}, {misfit}, expected a {seam.takes} (the seam "
                f"{seam.name!r})"
            )
        if seam.base is not None and not issubclass(self.target, load(seam.base, seam.key)):
            raise ConfigError(
                f"got {seam.key}={self.name}, a class that extends {_bases(self.target)}, expected "
                f"one that extends {seam.base} (the seam {seam.name!r})"
            )
        members = (*seam.fields, *seam.methods)
        lacking = [name for name in members if not hasattr(self.target, name)]
        if lacking:
            raise ConfigError(
                f"got {seam.key}={self.name}, a class without {', '.join(lacking)}, expected one "
                f"with {', '.join(members)} (the seam {seam.name!r})"
            )
        self._check_methods()
        if seam.capabilities is not None:
            self._check_capabilities(seam.capabilities)
        _ = self.options_model
        if seam.plain is not None:
            self._check_call()

    def _misfit(self) -> str | None:
        """A description of its type, where the seam does not take it."""
        is_class = inspect.isclass(self.target)
        if is_class == (self.seam.takes == "class") and callable(self.target):
            is_async = inspect.iscoroutinefunction(inspect.unwrap(self.target))
            return "an async function" if is_async else None
        return "a class" if is_class else f"of type {type(self.target).__name__}"

    def _check_methods(self) -> None:
        seam = self.seam
        for name in seam.methods:
            method = getattr(self.target, name)
            if not callable(method):
                raise ConfigError(
                    f"got {seam.key}={self.name}, whose {name} is {method!r}, expected a method"
                )
            method = inspect.unwrap(method)
            is_plain = inspect.isfunction(method) and not inspect.iscoroutinefunction(method)
            if name in seam.coroutines and is_plain:
                raise ConfigError(
                    f"got {seam.key}={self.name}, whose {name} is a plain method, expected "
                    f"`async def {name}`"
                )
        unwritten = sorted(getattr(self.target, "__abstractmethods__", ()))
        if unwritten:
            raise ConfigError(
                f"got {seam.key}={self.name}, a class that leaves {', '.join(unwritten)} open, "
                "expected it to write what its base declares"
            )

    def _check_call(self) -> None:
        """Raise ConfigError when it cannot be called with the seam's arguments."""
        seam = self.seam
        arguments = seam.plain or ()
        if self._has_from_config:
            callee, name, arguments = self.target.from_config, "from_config", seam.from_config
        else:
            callee = self.target
            name = "constructor" if seam.takes == "class" else "call"
            if seam.with_own_options and self.options_model is not None:
                arguments = (*arguments, "options")
        try:
            signature = inspect.signature(callee)
        except (TypeError, ValueError):  # written in C
            return
        try:
            signature.bind(*arguments)
        except TypeError as error:
            without = "" if "options" in arguments or not seam.with_own_options else self._without()
            raise ConfigError(
                f"got {seam.key}={self.name}, whose {name} takes {signature}: {error}; expected "
                f"one that is called with ({', '.join(arguments)}){without}"
            ) from error

    def _without(self) -> str:
        return f"; options come as well where {self._options_place()}"

    def _options_place(self) -> str:
        if self.seam.takes == "class":
            return "the class has a pydantic model `Options`"
        return "its parameter `options` is annotated with a pydantic model"

    def _check_capabilities(self, path: str) -> None:
        """Raise ConfigError for an invalid declaration, or of capabilities that it lacks."""
        expected = load(path, self.seam.key)
        if not isinstance(self.capabilities, expected):
            raise ConfigError(
                f"got {self.seam.key}={self.name}, whose capabilities are "
                f"{self.capabilities!r:.200}, expected a {expected.__name__} ({path})"
            )
        for capability, methods in self.seam.capability_methods.items():
            lacking = [name for name in methods if not callable(getattr(self.target, name, None))]
            if lacking and getattr(self.capabilities, capability):
                raise ConfigError(
                    f"got {self.seam.key}={self.name}, which declares the capability {capability} "
                    f"without the method {', '.join(lacking)}: write it, or do not declare it"
                )

    @cached_property
    def capabilities(self) -> Any:
        """The capabilities that the class declares, of `Seam.capabilities`."""
        if self.seam.capabilities is None:
            raise ConfigError(f"the seam {self.seam.name!r} has no capabilities")
        declared = getattr(self.target, "capabilities", None)
        return load(self.seam.capabilities, self.seam.key)() if declared is None else declared

    @property
    def _has_from_config(self) -> bool:
        """Whether it is built by `from_config`.

        The most derived class that defines `from_config`, `__init__` or `Options` decides: one that
        extends a built-in class with a constructor of its own is called.
        """
        for base in self.target.__mro__ if self.seam.takes == "class" else ():
            if "from_config" in vars(base):
                return True
            if {"Options", "__init__"} & set(vars(base)):
                return False
        return False

    @cached_property
    def options_model(self) -> type[BaseModel] | None:
        """The model of its options; None for one that takes none.

        Raises ConfigError for an `Options` that is not a pydantic model.
        """
        from pydantic import BaseModel

        if self.seam.takes == "class":
            where, model = "Options", getattr(self.target, "Options", None)
        else:
            where, model = "parameter options", _annotated(self.target, "options")
        if model is None:
            return None
        if not (inspect.isclass(model) and issubclass(model, BaseModel)):
            raise ConfigError(
                f"got {self.seam.key}={self.name}, whose {where} is {_shown(model)}, expected a "
                "class that extends pydantic.BaseModel"
            )
        return model

    def options(self, values: Mapping[str, object]) -> BaseModel | None:
        """Its options, checked. Raises ConfigError naming each wrong key."""
        from pydantic import ValidationError

        if self.options_model is None:
            if values:
                key = f"{self.seam.options_key}.{next(iter(values))}"
                raise ConfigError(
                    f"unknown configuration key {key!r}: {self.seam.key}={self.name} takes no "
                    f"options, which it would where {self._options_place()}"
                )
            return None
        fields = set(self.options_model.model_fields)
        for name in values:
            if name not in fields:  # also for a model that would ignore it
                key = f"{self.seam.options_key}.{name}"
                raise ConfigError(
                    unknown_key(key, [f"{self.seam.options_key}.{n}" for n in fields])
                    + f" ({self.seam.key}={self.name} takes {', '.join(sorted(fields))})"
                )
        try:
            return self.options_model.model_validate(values, by_name=True, by_alias=False)
        except ValidationError as error:
            raise ConfigError(validation_message(error, f"{self.seam.options_key}.")) from error
        except Exception as error:
            raise ConfigError(
                f"the options of {self.seam.key}={self.name} cannot be checked: its code raised "
                f"{raised(error)}"
            ) from error

    def build(self, config: Options, *arguments: object, plain: Sequence[object] = ()) -> Any:
        """An instance: `from_config(config, *arguments)`, or `Class(*plain, options)`.

        Raises ConfigError when its code raises a foreign error.
        """
        try:
            return self.make(config, *arguments, plain=plain)
        except ClawError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{self.seam.key}={self.name} cannot be made: its code raised {raised(error)}"
            ) from error

    def make(self, config: Options, *arguments: object, plain: Sequence[object] = ()) -> Any:
        """The same as `build`, but errors of its code are raised unchanged."""
        if self._has_from_config:
            return self.target.from_config(config, *arguments)
        options = self.options(config.options) if self.seam.with_own_options else None
        return self.target(*plain) if options is None else self.target(*plain, options)


def _annotated(function: Any, parameter: str) -> object:
    """The annotation of a function's parameter; None when it has no such parameter."""
    function = inspect.unwrap(function)
    if not inspect.isfunction(function):  # an object that can be called
        function = inspect.unwrap(type(function).__call__)
    if parameter not in inspect.signature(function).parameters:
        return None
    annotation = getattr(function, "__annotations__", {}).get(parameter, "without an annotation")
    if not isinstance(annotation, str):
        return annotation
    try:  # of this parameter alone: others may be known to type checkers only
        return get_type_hints(
            SimpleNamespace(__annotations__={parameter: annotation}), function.__globals__
        )[parameter]
    except (NameError, SyntaxError):
        return annotation


def _shown(found: object) -> str:
    return found if isinstance(found, str) else repr(found)


def load(path: str, origin: str) -> Any:
    """The object at `package.module:Name`; `origin` is the setting that names it.

    Raises ConfigError naming what is missing: the colon, the module or the attribute.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"got {origin}, expected 'package.module:Name'")
    try:
        loaded = importlib.import_module(module_name)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        if _is_missing(module_name, error):
            raise ConfigError(
                f"cannot import {module_name!r} of {origin}: {error}; "
                "install the package or put its folder on PYTHONPATH"
            ) from error
        raise ConfigError(
            f"cannot import {module_name!r} of {origin}: its code raised {raised(error)}"
        ) from error
    for part in name.split("."):
        if not hasattr(loaded, part):
            near = difflib.get_close_matches(part, dir(loaded), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"module {module_name!r} has no {name!r} ({origin}){hint}")
        loaded = getattr(loaded, part)
    return loaded


def _path_of(entries: Sequence[EntryPoint], key: str) -> str:
    """The import path of a name. Raises ConfigError where two packages mean different classes."""
    if len({entry.value for entry in entries}) > 1:
        packages = " and ".join(f"{_package(entry)} ({entry.value})" for entry in entries)
        raise ConfigError(
            f"got {key}={entries[0].name}, an entry point of {packages}, expected one: uninstall "
            "the other, or give the import path"
        )
    entry = entries[0]
    module, colon, name = entry.value.partition(":")
    if not (module and colon and name.replace(".", "_").isidentifier()):
        raise ConfigError(
            f"got {key}={entry.name}, the entry point {entry.name} = {entry.value!r} of "
            f"{_package(entry)}, expected 'package.module:Name'"
        )
    return entry.value


def _package(entry: EntryPoint) -> str:
    return "a package" if entry.dist is None else f"the package {entry.dist.name!r}"


def _is_missing(module_name: str, error: BaseException) -> bool:
    """Whether the module itself is missing, not something that it imports."""
    if isinstance(error, TypeError) and module_name.startswith("."):
        return True
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return module_name == error.name or module_name.startswith(error.name.rstrip(".") + ".")


def raised(error: BaseException) -> str:
    """An error of foreign code in one line, with the place where it was raised."""
    place = ""
    if not isinstance(error, SyntaxError):  # says it itself
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith("<")]
        place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}{place}"


def unknown_key(key: str, keys: Iterable[str]) -> str:
    """The message about a configuration key that does not exist, with the nearest that does."""
    near = [close for close in difflib.get_close_matches(key, sorted(keys), n=2) if close != key]
    return f"unknown configuration key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def validation_message(error: ValidationError, prefix: str = "", keys: Iterable[str] = ()) -> str:
    """All problems of a configuration in one line; `prefix` stands before each key.

    `keys` are those that unknown ones are compared with.
    """
    from pydantic import BaseModel

    problems = []
    for problem in error.errors():
        key = prefix + ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "value_error" and not problem["loc"]:
            problems.append(problem["msg"].removeprefix("Value error, "))
        elif problem["type"] == "extra_forbidden":
            problems.append(unknown_key(key, keys))
        elif problem["type"] == "missing":
            problems.append(f"{key}: got nothing, expected a value: {key}=VALUE")
        elif isinstance(problem["input"], Mapping | BaseModel):
            problems.append(f"{key}: {problem['msg'].removeprefix('Value error, ')}")
        else:
            problems.append(f"{key}: got {problem['input']!r:.200}: {problem['msg']}")
    return "; ".join(problems)


def fingerprints(paths: Iterable[str]) -> dict[str, str]:
    """The file of each import path's module and a hash of its source.

    Where they differ between two processes, the plug-ins differ.
    """
    return {path: _fingerprint(path) for path in sorted(set(paths))}


def check_fingerprints(expected: Mapping[str, str]) -> None:
    """Raise ConfigError when a plug-in here is not the driver's."""
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
        "dataset": "clawrl_gym.envs.dataset.agent:DatasetAgent",
    },
    methods=("messages", "tools", "instructions", "action"),
    from_config=("config",),
    words=("auto", "cli", "harness"),
)  # fmt: skip
ALGORITHMS = Seam(
    "algorithm", "trainer.algorithm", "trainer.options", "clawrl_gym.algorithms",
    builtin={
        "grpo": "clawrl_gym.trainers.algorithms.grpo:Grpo",
        "binary": "clawrl_gym.trainers.algorithms.binary:Binary",
        "opd": "clawrl_gym.trainers.algorithms.opd:Opd",
        "hybrid": "clawrl_gym.trainers.algorithms.hybrid:Hybrid",
    },
    base="clawrl_gym.trainers.algorithms.algorithm:Algorithm",
    from_config=("config", "group_size"),
)  # fmt: skip
ENGINES = Seam(
    "engine", "policy.engine", "policy.options", "clawrl_gym.engines",
    builtin={
        "vllm": "clawrl_gym.inference.vllm.engine:VllmEngine",
        "openai": "clawrl_gym.inference.openai.engine:OpenAiEngine",
    },
    fields=("label", "capabilities", "alive", "secrets"),
    methods=(
        "problems", "device", "has_compiled", "reserve", "when_lost", "connect", "start", "stop",
        "watch",
    ),
    coroutines=("start", "stop", "watch"),
    plain=("setup",),
)  # fmt: skip
ENVIRONMENTS = Seam(
    "environment", "env.type", "env", "clawrl_gym.envs",
    builtin={
        "terminal": "clawrl_gym.envs.terminal.config:TerminalEnvConfig",
        "conversation": "clawrl_gym.envs.conversation.config:ConversationEnvConfig",
        "swe": "clawrl_gym.envs.swe.config:SweEnvConfig",
        "toolcall": "clawrl_gym.envs.toolcall.config:ToolCallEnvConfig",
        "gui": "clawrl_gym.envs.gui.config:GuiEnvConfig",
        "text": "clawrl_gym.envs.text.config:TextEnvConfig",
        "dataset": "clawrl_gym.envs.dataset.config:DatasetEnvConfig",
        "gym": "clawrl_gym.envs.gym.config:GymEnvConfig",
    },
    base="clawrl_gym.config.envs:EnvConfig",
    plain=None,
)  # fmt: skip
HINT_SOURCES = Seam(
    "hint source", "judge.hints.source", "judge.hints.options", "clawrl_gym.hint_sources",
    builtin={}, methods=("hints",), coroutines=("hints",), words=("judge",),
    from_config=("config", "parts"),
)  # fmt: skip
JUDGES = Seam(
    "judge", "judge.type", "judge.options", "clawrl_gym.judges",
    builtin={
        "rule": "clawrl_gym.judge.rules:RuleJudge",
        "model": "clawrl_gym.judge.model:ModelJudge",
        "reward_model": "clawrl_gym.judge.reward_model:RewardModelJudge",
        "chain": "clawrl_gym.judge.chain:ChainJudge",
    },
    fields=("kind",),
    methods=("judge",),
    coroutines=("judge",),
    from_config=("config", "parts"),
    words=("none", "feedback"),
)  # fmt: skip
LEARNERS = Seam(
    "learner", "learner.backend", "learner.options", "clawrl_gym.learners",
    builtin={
        "torch": "clawrl_gym.trainers.updates.learner:Learner",
        "simulated": "clawrl_gym.trainers.simulated:SimulatedLearner",
    },
    methods=("step", "save_checkpoint", "load_checkpoint"),
    from_config=("config", "setup"),
    plain=("trainer", "learner", "model_dir", "seed", "device", "temperature", "images"),
    with_own_options=False,
    capabilities="clawrl_gym.trainers.capabilities:LearnerCapabilities",
    capability_methods={
        "probe": ("probe",),
        "review": ("review",),
        "supervised": ("supervised_step", "review"),
        "users": ("use", "forget"),
    },
    declared={
        "torch": "clawrl_gym.trainers.capabilities:TORCH",
        "simulated": "clawrl_gym.trainers.capabilities:SIMULATED",
    },
)  # fmt: skip
LOGGERS = Seam(
    "logger", "logger", "logger_options", "clawrl_gym.loggers",
    builtin={
        "tensorboard": "clawrl_gym.core.loggers:TensorBoardLogger",
        "wandb": "clawrl_gym.core.loggers:WandbLogger",
    },
    methods=("log", "close"),
    from_config=("options", "folder", "config"),
    plain=("folder", "config"),
    words=("none",),
)  # fmt: skip
LOSSES = Seam(
    "loss", "trainer.loss.type", "trainer.loss.options", "clawrl_gym.losses",
    builtin={
        "ppo": "clawrl_gym.trainers.losses.ppo:ppo",
        "gspo": "clawrl_gym.trainers.losses.gspo:gspo",
        "cispo": "clawrl_gym.trainers.losses.cispo:cispo",
        "sapo": "clawrl_gym.trainers.losses.sapo:sapo",
        "dppo": "clawrl_gym.trainers.losses.dppo:dppo",
    },
    takes="function",
    plain=("tokens",),
    says_options=True,
)  # fmt: skip
SANDBOXES = Seam(
    "sandbox", "env.sandbox.type", "env.sandbox.options", "clawrl_gym.sandboxes",
    builtin={
        "bubblewrap": "clawrl_gym.envs.sandbox.bubblewrap:BubblewrapSandbox",
        "docker": "clawrl_gym.envs.sandbox.docker.sandbox:DockerSandbox",
    },
    methods=("exec", "write", "read", "mode", "successor", "close"),
    from_config=("config", "spec"),
    words=("auto",),
    capabilities="clawrl_gym.envs.sandbox.interface:SandboxCapabilities",
    capability_methods={"agents": ("listen",), "lists_files": ("tree",)},
)  # fmt: skip

SEAMS = {
    seam.name: seam
    for seam in (
        AGENTS, ALGORITHMS, ENGINES, ENVIRONMENTS, HINT_SOURCES, JUDGES, LEARNERS, LOGGERS, LOSSES,
        SANDBOXES,
    )
}  # fmt: skip
"""All seams by name."""
