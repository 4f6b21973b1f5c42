"""Asks sites of the shipped applications, and plays their tasks, without a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.site import Request, Response, Site
from clawrl_gym.envs.gui.task import Step, resolve
from clawrl_gym.envs.gui.text_calls import format_action
from clawrl_gym.envs.showcase.gui.families.family import Turns
from clawrl_gym.envs.showcase.gui.generated import make_task
from tools.tiny_policy.static_screen import StaticScreen


def get(site: Site, url: str) -> Response:
    """What a GET of a path with its query is answered."""
    parts = urlsplit(url)
    return site.handle(Request("GET", parts.path, dict(parse_qsl(parts.query))))


def post(site: Site, path: str, **form: str) -> Response:
    """What a form is answered."""
    return site.handle(Request("POST", path, form=form))


def state_of(site: Site) -> Any:
    """What a site stores, as JSON."""
    return site.state()


def text_of(response: Response) -> str:
    """What a page says, without its markup."""
    body = response.body if isinstance(response.body, str) else response.body.decode()
    return unescape(re.sub(r"<[^>]+>", " ", body.partition("</style>")[2]))


def paper_env(families: Sequence[str] | None = None) -> GuiEnv:
    """The environment with a browser on paper."""
    return GuiEnv(families=families, open_screen=StaticScreen.open)


def solution_of(task_id: str) -> Turns:
    """What the oracle does in a generated task."""
    solution = make_task(task_id).solution
    assert not callable(solution)
    return solution


def reward_of(
    env: GuiEnv, task_id: str, turns: Sequence[Sequence[Step] | str] | None = None
) -> float:
    """The reward of an episode with these replies; None: those of the oracle."""
    env.reset(options={"task": task_id})
    reward, over = 0.0, False
    for turn in solution_of(task_id) if turns is None else turns:
        assert not over, task_id
        reply = turn if isinstance(turn, str) else "\n".join(_written(env, step) for step in turn)
        _, reward, terminated, truncated, _ = env.step(reply)
        over = terminated or truncated
    assert over, task_id
    return float(reward)


def _written(env: GuiEnv, step: Step) -> str:
    action = resolve(step, env.view.lines)
    assert action is not None, (env.task.id, step)
    return format_action(action)
