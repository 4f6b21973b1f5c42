"""Where tool-call tasks come from: shipped families, the shop, composed tasks, a user's files."""

from __future__ import annotations

from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.shipped_tasks import shipped
from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext

GENERATED, SHOP, COMPOSED, PLAIN = "generated", "shop", "composed", "plain"
_SHIPPED = {
    GENERATED: "toolcall.generated:generated_tasks",
    SHOP: "toolcall.shop.generated:shop_tasks",
    COMPOSED: "toolcall.composed.generated:composed_tasks",
    PLAIN: "toolcall.composed.generated:plain_tasks",
}


def open_source(context: ToolContext) -> TaskSource[ToolTask]:
    """The source that `env.tasks` names. Raises ConfigError, or TaskError for wrong files."""
    tasks, families = context.config.tasks, context.config.families
    if tasks in _SHIPPED:
        source: TaskSource[ToolTask] = shipped(_SHIPPED[tasks])(families)
        return source
    if families is not None:
        raise ConfigError(f"env.families chooses generated tasks only, got env.tasks={tasks!r} too")
    path = Path(tasks).expanduser()
    if not path.exists():
        raise ConfigError(
            f"got env.tasks={tasks!r}, expected {GENERATED!r}, {SHOP!r}, {COMPOSED!r}, {PLAIN!r}, "
            f"or a file or folder of tasks (there is no {str(path.absolute())!r})"
        )
    return _of_files(path, context)


def _of_files(path: Path, context: ToolContext) -> TaskSource[ToolTask]:
    from clawrl_gym.envs.toolcall import task_file
    from clawrl_gym.envs.toolcall.benchmarks import bfcl, tau

    if tau.is_domain(path):
        return tau.open_tau(path, context)
    if bfcl.is_bfcl(path):
        return bfcl.open_bfcl(path)
    if path.is_dir():
        raise ConfigError(
            f"got the folder env.tasks={str(path)!r}, expected a file of tasks, or a folder of "
            "BFCL (BFCL_v4_CATEGORY.json), of tau-bench (data/users.json) or tau2-bench (db.json)"
        )
    return task_file.open_file(path, context)
