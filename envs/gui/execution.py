"""One reply, carried out: its actions in order, up to the first that fails or leads elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from clawrl_gym.envs.gui.action import ENDINGS, GuiAction
from clawrl_gym.envs.gui.attempt import Attempt
from clawrl_gym.envs.gui.parse import RequestedAction
from clawrl_gym.envs.gui.schema import MAX_ACTIONS
from clawrl_gym.envs.gui.screen import Screen

CARRIED_OUT = "done"


@dataclass(slots=True)
class MousePosition:
    """Where the mouse was left: a drag may begin there."""

    at: GuiAction | None = None

    def follow(self, action: GuiAction) -> None:
        if action.kind == "drag":
            self.at = GuiAction("hover", id=action.to_id, x=action.to_x, y=action.to_y)
        elif action.id is not None or action.x is not None:
            self.at = action

    def start_of(self, action: GuiAction) -> GuiAction | None:
        """A drag with its beginning; None when nothing says where it begins."""
        if action.kind != "drag" or action.id is not None or action.x is not None:
            return action
        if self.at is None:
            return None
        return replace(action, id=self.at.id, x=self.at.x, y=self.at.y)


@dataclass(slots=True)
class Execution:
    """Result of a reply."""

    results: list[str] = field(default_factory=list)
    """One for each thing that was asked: "done", "Error: ..." or "Note: not carried out"."""
    attempts: list[Attempt] = field(default_factory=list)
    """Attempted actions."""
    ending: GuiAction | None = None
    """The action that ended the task."""

    @property
    def messages(self) -> list[str]:
        """Errors and notes, for an observation that is one text."""
        return [result for result in self.results if result != CARRIED_OUT]

    @property
    def failure(self) -> str:
        """Failure of a reply without any action; failed attempts report themselves."""
        errors = [result for result in self.results if result.startswith("Error: ")]
        failed = any(attempt.failed for attempt in self.attempts)
        return errors[0].removeprefix("Error: ") if errors and not failed else ""


def execute(
    requested: Sequence[RequestedAction], screen: Screen, mouse: MousePosition
) -> Execution:
    """Act. Raises EnvError for what fails by itself, never for what the model does wrong."""
    execution = Execution()
    for number, one in enumerate(requested, 1):
        stop = _carry_out(one, screen, mouse, execution)
        if not stop and number == MAX_ACTIONS and len(requested) > MAX_ACTIONS:
            stop = f"at most {MAX_ACTIONS} actions a reply are carried out"
        if stop:
            left = requested[number:]
            execution.results += [
                f"Note: not carried out, {stop}: {action.source}" for action in left
            ]
            break
    return execution


def _carry_out(
    one: RequestedAction, screen: Screen, mouse: MousePosition, execution: Execution
) -> str:
    """Why what follows is not carried out; empty when it is."""
    if one.action is None:
        execution.results.append(f"Error: {one.source}: {one.wrong}")
        return "an action before it is wrong"
    if one.action.kind in ENDINGS:
        execution.attempts.append(Attempt(one.action))
        execution.results.append(CARRIED_OUT)
        execution.ending = one.action
        return "the task was ended"
    action = mouse.start_of(one.action)
    if action is None:
        failed: str | None = "got no place to drag from, expected id, or x and y"
        action = one.action
    else:
        failed = screen.act(action)
    execution.attempts.append(Attempt(action, failed or ""))
    if failed is not None:
        execution.results.append(f"Error: {one.source}: {failed}")
        return "an action before it failed"
    mouse.follow(action)
    execution.results.append(CARRIED_OUT)
    if screen.left_document:
        mouse.at = None
        return "another page has come up"
    return ""
