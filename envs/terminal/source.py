"""Where the terminal's tasks come from: the shipped families, or a user's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.shipped_tasks import shipped
from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.folders.folder_tasks import FolderTasks
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures
from clawrl_gym.envs.terminal.task import Task

GENERATED, COMPOSED, PLAIN = "generated", "composed", "plain"
_SHIPPED = {
    GENERATED: "terminal.generated:generated_tasks",
    COMPOSED: "terminal.composed.generated:composed_tasks",
    PLAIN: "terminal.composed.generated:plain_tasks",
}


def open_source(config: TerminalEnvConfig) -> TaskSource[Task]:
    """The source that `env.tasks` names. Raises ConfigError, or TaskError for a wrong folder."""
    tasks, families = config.tasks, config.families
    if tasks == GENERATED:
        generated: TaskSource[Task] = shipped(_SHIPPED[tasks])(families, config.spare_replies)
        return generated
    if config.spare_replies is not None:
        raise ConfigError(
            f"env.spare_replies needs env.tasks={GENERATED!r}, got env.tasks={tasks!r}: its "
            "tasks say their budget already"
        )
    if tasks in _SHIPPED:
        source: TaskSource[Task] = shipped(_SHIPPED[tasks])(families)
        return source
    if families is not None:
        raise ConfigError(f"env.families chooses generated tasks only, got env.tasks={tasks!r} too")
    folder = Path(tasks).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"got env.tasks={tasks!r}, expected {GENERATED!r}, {COMPOSED!r}, {PLAIN!r} or a "
            f"folder of tasks (there is no folder {str(folder.absolute())!r})"
        )
    return FolderTasks.open(folder, _features(config), train_on_verified=config.train_on_verified)


def needs_of(config: TerminalEnvConfig) -> Mapping[str, str]:
    """Capabilities that the tasks need of their sandboxes, each with the reason."""
    if config.tasks not in (COMPOSED, PLAIN):
        return {}
    return {"lists_files": f"tasks of env.tasks={config.tasks} refuse side effects"}


def _features(config: TerminalEnvConfig) -> SandboxFeatures:
    sandbox = config.sandbox
    able = Sandboxes.of(sandbox).capabilities
    return SandboxFeatures(
        able.images,
        able.users,
        sandbox.rootfs is not None,
        network=able.network and sandbox.network,
        verifier=config.verifier,
        only_trusted=config.only_trusted,
        sandboxes=f"{sandbox.type} {sandbox.image} {sandbox.rootfs}",
    )
