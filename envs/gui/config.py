"""The configuration of `ClawRL/Gui-v0`, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field

from clawrl_gym.config.envs import Films
from clawrl_gym.config.part import Part
from clawrl_gym.envs.gui import GYM_CLASS, GYM_ID
from clawrl_gym.envs.kind import RegisteredEnvConfig


class BrowserConfig(Part):
    """The browsers of an environment: shared by all its episodes, each in a fresh context."""

    executable: str | None = None
    """Path of Chromium, best chromium-headless-shell; None looks in the usual places."""
    contexts_per_browser: int = Field(100, ge=1)
    """Episodes at a time in one browser; more of them start another."""
    max_contexts: int = Field(1000, ge=1)
    """Episodes after which a browser is replaced by a new one."""
    memory_mb: int | None = Field(None, ge=64)
    """Memory limit in MiB of one browser with all its pages, held by cgroups. None: half of the
    memory that this process may have, and no limit where cgroups cannot be written (the doctor says
    whether)."""
    unsafe_no_isolation: bool = False
    """Accept that bubblewrap is missing on this host: the browser can reach files and network."""


class GuiEnvConfig(RegisteredEnvConfig):
    """`ClawRL/Gui-v0`: a task on web pages in a real browser."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "gui"
    tool_use: ClassVar[Literal["none", "some", "all"]] = "all"
    starts_here: ClassVar[bool] = True
    marks_failures: ClassVar[bool] = True
    task_keys: ClassVar[tuple[str, ...]] = ("tasks", "heldout")
    shipped_tasks: ClassVar[frozenset[str]] = frozenset(
        {"generated", "composed", "plain", "miniwob"}
    )

    type: Literal["gui"] = "gui"
    id: str = GYM_ID
    tasks: str = "generated"
    """`generated`: the shipped seeded families on small web applications; `composed`: families of
    several things to do in six of them at once; `plain`: one to three on the page that is open,
    said plainly; `miniwob`: the pages of MiniWoB++; else a JSON file or folder of tasks in
    OSWorld's form."""
    families: list[str] | None = None
    """Only these families of generated or composed tasks or of MiniWoB++; None takes all."""
    heldout: str | None = None
    """Where held-out tasks come from, like a path in `tasks`; None holds out a part of them."""
    observation: Literal["tree", "screenshot", "marked", "both"] = "tree"
    """Observation of a page: its text with numbered elements, a picture, a picture with the
    elements' numbers drawn on it, or text and picture."""
    coordinates: Literal["pixels", "thousandths"] = "pixels"
    """Unit of x and y: CSS pixels, or thousandths of the page's width and height."""
    width: int = Field(1024, ge=64, le=4096)
    """Width of the page in CSS pixels, for tasks that do not set it themselves."""
    height: int = Field(640, ge=64, le=4096)
    max_turns: int = Field(15, ge=1)
    """Replies after which an episode is truncated (a task may end earlier by itself)."""
    max_tokens: int = Field(3000, ge=512)
    """Most tokens of a page's text, estimated on the safe side; what is out of sight goes first."""
    action_timeout_s: float = Field(10.0, gt=0)
    page_timeout_s: float = Field(20.0, gt=0)
    """Seconds that loading a page may take."""
    allow: list[str] = Field(default_factory=list)
    """Hosts of the internet that pages may reach: "host", "host:port", "*.host". Empty: the
    browser has no network at all."""
    films: Films = "measured"
    """Which episodes are kept as strips of screenshots; `measured`: those that are not trained on.
    """
    browser: BrowserConfig = BrowserConfig()

    @property
    def node_resource(self) -> str:
        return "browser"

    @property
    def shows_pictures(self) -> bool:
        return self.observation != "tree"

    def prepare(self, say: Callable[[str], None]) -> None:
        self.env_class().prepare(self, say)
