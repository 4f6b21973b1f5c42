"""Where page tasks come from: the shipped families, MiniWoB++, or a user's files."""

from __future__ import annotations

from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.task import GuiTask
from clawrl_gym.envs.shipped_tasks import shipped
from clawrl_gym.envs.task_source import TaskSource

GENERATED, MINIWOB, COMPOSED, PLAIN = "generated", "miniwob", "composed", "plain"
_SHIPPED = {
    GENERATED: "gui.generated:generated_tasks",
    COMPOSED: "gui.composed.generated:composed_tasks",
    PLAIN: "gui.composed.generated:plain_tasks",
}


def open_source(config: GuiEnvConfig) -> TaskSource[GuiTask]:
    """The source that `env.tasks` names. Raises ConfigError, or TaskError for wrong files."""
    tasks, families = config.tasks, config.families
    family_names = None if families is None else tuple(families)
    if tasks in (GENERATED, MINIWOB, COMPOSED, PLAIN):
        if config.heldout is not None:
            raise ConfigError(f"env.heldout works with files of tasks, got env.tasks={tasks!r} too")
        return _checked(_named(tasks, family_names))
    if families is not None:
        raise ConfigError(
            f"env.families chooses generated tasks and pages of MiniWoB++ only, got "
            f"env.tasks={tasks!r} too: add env.families=null (those of the tiny policy are preset)"
        )
    from clawrl_gym.envs.gui.osworld.files import open_osworld

    heldout = config.heldout
    return open_osworld(
        _existing("tasks", tasks),
        tuple(config.allow),
        None if heldout is None else _existing("heldout", heldout),
    )


def _named(tasks: str, families: tuple[str, ...] | None) -> TaskSource[GuiTask]:
    if tasks == MINIWOB:
        from clawrl_gym.envs.gui.miniwob.pages import open_miniwob

        return open_miniwob(families)
    source: TaskSource[GuiTask] = shipped(_SHIPPED[tasks])(families)
    return source


def _checked(source: TaskSource[GuiTask]) -> TaskSource[GuiTask]:
    """Refuse an unknown family now, not at the first reset."""
    source.ids("train")
    return source


def _existing(option: str, entry: str) -> Path:
    path = Path(entry).expanduser()
    if not path.exists():
        raise ConfigError(
            f"got env.{option}={entry!r}, expected {GENERATED!r}, {COMPOSED!r}, {PLAIN!r}, "
            f"{MINIWOB!r}, or a file or folder of tasks (there is no {str(path.absolute())!r})"
        )
    return path
