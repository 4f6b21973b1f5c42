"""MiniWoB++: small pages that pose a problem from a seed and tell themselves when it is solved.

The pages come from the package `miniwob` (extra `gui`); nothing else of it is used. An episode is
the one that `start_script` begins: another document, even the same page once more, ends the task
unsolved, and the START cover of the pages is taken away, so none can be begun again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.folder_site import FolderSite
from clawrl_gym.envs.gui.miniwob.solutions import SOLUTIONS
from clawrl_gym.envs.gui.task import FinalState, GuiTask
from clawrl_gym.envs.task_ids import TaskIds, parse_id, select_families

HOST = "miniwob.test"
PREFIX = "miniwob-"
FIRST_HELDOUT_SEED = 1_000_000
"""Seeds of the train split are below, those of the held-out split from here on."""
VIEWPORT = (332, 214)
"""A page is 160 x 210, and some are wider."""
SCALE = 2.0
"""Their type is 10 pixels high: pictures are twice as large to be legible."""
LEFT_OUT = MappingProxyType(
    {
        "button-delay": "it measures seconds between two clicks: the machine's, not the model's",
        "chase-circle": "it measures how long the mouse is over a circle that moves all the time",
        "hover-shape": "it never ends",
        "moving-items": "it counts clicks on what moves all the time until 10 seconds are over",
        "simon-says": "it asks for what blinked before the first look",
    }
)
"""Pages that are no families, and why. The three copies of airlines' sites (flight/*) are none
either: they pose a table of fields, no instruction, in a frame that is larger than the rest."""

_START = """(async () => {
  const until = async (holds) => {
    for (let waited = 0; !holds(); waited += 10) {
      if (waited > 8000) throw new Error('the page does not become ready');
      await new Promise((go) => setTimeout(go, 10));
    }
  };
  await until(() => typeof core === 'object' && core.cover_div);
  Math.seedrandom(SEED);
  core.EPISODE_MAX_TIME = 2147483647;
  core.startEpisodeReal();
  await until(() => WOB_TASK_READY);
  core.clearTimer();
  core.startEpisode = () => {};
  core.cover_div.remove();
  for (const id of ['reward-display', 'click-canvas'])
    document.getElementById(id).style.display = 'none';
  core.begun = SEED;
  const said = core.getUtterance();
  return typeof said === 'string' ? said : said.utterance;
})()"""
_RESULT = """(() => {
  if (typeof core !== 'object' || core.begun !== SEED) return {left: true};
  return WOB_DONE_GLOBAL
    ? {won: WOB_RAW_REWARD_GLOBAL > 0, reason: String(WOB_REWARD_REASON || '')}
    : null;
})()"""


def open_miniwob(families: Sequence[str] | None = None) -> MiniwobTasks:
    """All pages, or those named. Raises ConfigError for an unknown one, or without the package."""
    return MiniwobTasks(select_families(tuple(pages()), families))


@dataclass(frozen=True, slots=True)
class MiniwobTasks:
    """Pages and seeds as a source of tasks."""

    families: tuple[str, ...]

    def ids(self, split: Split) -> TaskIds:
        return TaskIds(split, self.families, PREFIX)

    def load(self, task_id: str) -> GuiTask:
        return make_task(task_id)


@dataclass(frozen=True, slots=True)
class PageGrader:
    """Grade of the page when it was first done: any reward above 0 is a success."""

    needs_pages: bool = False

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        result = final_state.page_result
        if not isinstance(result, dict):
            return 0.0, ("the page does not say that the task is done",)
        if result.get("won") is True:
            return 1.0, ()
        if result.get("left"):
            return 0.0, ("the task's page was left",)
        return 0.0, (
            f"the page says that it was done wrong: {result.get('reason') or 'no reason'}",
        )


def make_task(task_id: str) -> GuiTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parts = parse_id(task_id, pages(), PREFIX)
    family, split, number = parts.family, parts.split, parts.number
    seed = number if split == "train" else FIRST_HELDOUT_SEED + number
    return GuiTask(
        id=task_id,
        family=f"{PREFIX}{family}",
        split=split,
        instruction="",
        start=f"http://{HOST}/{pages()[family]}",
        grader=PageGrader(),
        sites={HOST: functools.partial(FolderSite, html_folder())},
        solution=SOLUTIONS.get(family, ()),
        seed=seed,
        viewport=VIEWPORT,
        scale=SCALE,
        start_script=_START.replace("SEED", json.dumps(str(seed))),
        result_script=_RESULT.replace("SEED", json.dumps(str(seed))),
    )


@functools.cache
def pages() -> MappingProxyType[str, str]:
    """Path of each family's page below the folder."""
    root = html_folder()
    paths = {page.stem: f"miniwob/{page.name}" for page in (root / "miniwob").glob("*.html")}
    return MappingProxyType({name: paths[name] for name in sorted(paths) if name not in LEFT_OUT})


@functools.cache
def html_folder() -> Path:
    """Where the package's pages lie. Raises ConfigError when it is not installed."""
    try:
        root = Path(str(resources.files("miniwob"))) / "html"
    except ModuleNotFoundError:
        root = Path()
    if not (root / "miniwob").is_dir():
        raise ConfigError(
            "got env.tasks='miniwob' without its pages, expected the package miniwob: "
            + how_to_install("gui")
        )
    return root
