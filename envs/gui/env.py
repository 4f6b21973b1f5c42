"""`ClawRL/Gui-v0`: tasks on web pages in a real browser, as a Gymnasium environment.

The environment knows tasks, turns and grades; what a page shows and how it is acted on is behind
`Screen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

from clawrl_gym.agents.tool_calls import Reply, decode, encode_results
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Tool, is_success
from clawrl_gym.envs.gui import text_calls
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.execution import CARRIED_OUT, Execution, MousePosition, execute
from clawrl_gym.envs.gui.observation import View
from clawrl_gym.envs.gui.parse import CoordinateSpace, describe_missing_action, parse_reply
from clawrl_gym.envs.gui.schema import tool
from clawrl_gym.envs.gui.screen import OpenScreen, Screen, open_browser_screen
from clawrl_gym.envs.gui.source import open_source
from clawrl_gym.envs.gui.task import GuiTask, Step, resolve
from clawrl_gym.envs.gui.text import heading, render
from clawrl_gym.envs.parts import encode_parts, plain
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.task_env import Info, Metadata, TaskEnv
from clawrl_gym.envs.task_source import TaskSource

if TYPE_CHECKING:
    from clawrl_gym.envs.gui.films.film import Film

OVER = "(done)"
_START_S = 60.0
_EMPTY = View("about:blank", "", ())


class GuiEnv(TaskEnv[GuiTask, Screen]):
    """A task on web pages, in a fresh window of a real browser; one task an episode.

    Observation
        Text (`Unicode`). At reset what is asked for, a blank line, and the page; later what went
        wrong in the reply ("Error: ..." and "Note: ..." lines) and the page as it is now. A page
        is its title and URL and then a line for each line of it, elements that can be acted on
        with a number: `button "Buy" [12]`. With `observation` "screenshot", "marked" (elements'
        numbers are drawn on it) or "both" it is JSON with a picture, see `envs/parts.py`. After
        tool calls it is a JSON list of `{"tool_call_id", "content"}` in the order of the calls,
        the page in the last of them; `info["next_state_role"]` is "tool" then, else "user".
        "(done)" when the task was ended.
    Action
        Text (`Unicode`): lines such as `click(12)` or `type(3, "pens")`, whatever stands around
        them; or calls of the tool `computer` as JSON `{"content": TEXT, "tool_calls": [{"id",
        "name", "arguments"}]}`. `info["tools"]` has the tool's schema. No text is illegal: what is
        no action, or cannot be done, gives an observation that says so. At most 16 actions of a
        reply are carried out, in order, up to the first that fails or opens another page.
    Reward
        0 until the end, then what the task's grader says: 1 when the servers' state, the answer
        and the pages are as they must be. A task that cannot be done earns 1 only by `give_up`,
        and one that can be done earns 0 by it; running out of turns gives up nothing.
    Start
        The task's first page in a fresh context (no cookies, no storage, a clock and random
        numbers of its own), its servers with the task's state. `options={"task": ID}` names the
        task; without it one of `options["split"]` ("train" unless given) is drawn from the seed.
    End
        Terminated by `answer`, `done` or `give_up`, when the task's page says that it is over, or
        when the task's own number of turns is used up. Truncated, and graded all the same, after
        `max_turns` replies of a task without such a number. A browser that dies raises EnvError:
        no reward is made up for it.
    Options
        The fields of `GuiEnvConfig`; `open_screen` (None for the real browser) and `render_mode`
        ("ansi": the conversation so far, "rgb_array": what is seen).
    Info
        Always `task`, `family`, `split`, `difficulty` (1 where nothing rates the tasks), `tools`,
        `next_state_role`, `error` (None: failures are exceptions) and `report`: empty until the
        end, then "Test report: passed", or "Test report: failed" with a line for each thing that is
        missing. No observation holds it.
    Version
        v0: first version.
    """

    metadata: ClassVar[Metadata] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}

    def __init__(
        self,
        *,
        open_screen: OpenScreen | None = None,
        render_mode: str | None = None,
        **options: object,
    ) -> None:
        """`options`: the keys of `GuiEnvConfig`. Raises ConfigError for wrong ones."""
        config = GuiEnvConfig.of(options, "env.")
        super().__init__(config.max_turns, render_mode)
        self._options = config
        self._source = open_source(config)
        self._open_screen = open_screen or open_browser_screen
        self.filming = False
        """Keep the next episodes as films; set before reset."""
        self._film: Film | None = None
        self._task: GuiTask | None = None
        self._view = _EMPTY
        self._first = ""
        self._page_instruction = ""
        self._ending: GuiAction | None = None
        self._mouse = MousePosition()
        self._replied_with_calls = False
        """The last reply called tools: what comes back are their results."""
        self._tool: Tool | None = None
        self._last_shot: bytes | None = None

    @staticmethod
    def source_of(config: GuiEnvConfig) -> TaskSource[GuiTask]:
        """Where a configuration's tasks come from. Raises ConfigError or TaskError for none."""
        return open_source(config)

    @staticmethod
    def prepare(config: GuiEnvConfig, say: Callable[[str], None]) -> None:
        """Start the browser that the first episodes will share.

        Raises ConfigError when there is none, EnvError for one that does not start, with the cure.
        """
        from clawrl_gym.envs.gui.browser.pool import process_browsers

        owner = process_browsers()
        shared = owner.run(owner.acquire(config.browser), _START_S)
        try:
            say(f"Chromium {shared.browser.version}: ready")
        finally:
            owner.run(owner.release(config.browser, shared), _START_S)

    @property
    def task(self) -> GuiTask:
        """Task of the current or the last episode. Raises TaskError before the first."""
        if self._task is None:
            raise TaskError("got no task, expected reset() first")
        return self._task

    @property
    def view(self) -> View:
        """The page as it was last seen, whole."""
        return self._view

    def shot(self) -> bytes:
        """Current picture of the screen, as JPEG. Raises EnvError outside of an episode."""
        return self._current("shot")[1].shot()

    def film(self) -> bytes | None:
        """The last episode as one JPEG, when it was filmed; until the next reset."""
        return None if self._film is None else self._film.strip()

    def solve(self) -> Iterator[str]:
        """The oracle: actions that solve the current task, one a step.

        Each is made when it is asked for, of the page that is there then. Raises TaskError for a
        task without a solution, or one whose page lacks what the solution acts on.
        """
        return (self.oracle(turn) for turn in range(len(self._solution("solve"))))

    def oracle(self, turn: int) -> str:
        """One turn of the oracle on the page that is there now."""
        turns = self._solution("oracle")
        if not 0 <= turn < len(turns):
            raise TaskError(f"got turn {turn}, expected 0 to {len(turns) - 1}")
        return "\n".join(self._resolved(step, turn) for step in turns[turn])

    def render(self) -> Any:
        """Rendering: mode "ansi" the transcript, mode "rgb_array" the page (height, width, 3)."""
        if self.render_mode != "rgb_array":
            return super().render()
        if self._episode is not None:
            self._last_shot = self._episode[1].shot()
        if self._last_shot is None:
            return None
        import numpy as np
        from PIL import Image

        with Image.open(BytesIO(self._last_shot)) as picture:
            return np.asarray(picture.convert("RGB"))

    def _solution(self, method: str) -> tuple[tuple[Step, ...], ...]:
        task, _ = self._current(method)
        solution = (
            task.solution(self._page_instruction) if callable(task.solution) else task.solution
        )
        if not solution:
            raise TaskError(f"task {task.id!r} has no solution")
        return solution

    def _resolved(self, step: Step, turn: int) -> str:
        action = resolve(step, self._view.lines)
        if action is None:
            has_start = resolve(Step(step.kind, step.locator), self._view.lines) is not None
            lacking = step.to if has_start else step.locator
            raise TaskError(
                f"the solution of task {self.task.id!r} needs {lacking} in turn {turn}, "
                f"and {self._view.url} has none"
            )
        return text_calls.format_action(action)

    def _request(self, task: GuiTask) -> str:
        return self._first

    def _open(self, task: GuiTask) -> Screen:
        self._task, self._view, self._ending, self._mouse = task, _EMPTY, None, MousePosition()
        self._replied_with_calls, self._last_shot, self._film = False, None, None
        screen = self._open_screen(task, self._options)
        try:
            self._page_instruction = screen.page_instruction
            parts = (task.instruction, self._page_instruction)
            instruction = "\n".join(part for part in parts if part)
            self._tool = tool(*self._spans(task, screen), self._thousandths)
            self._first = self._observe(screen, [], instruction + "\n")
            if self.filming:
                from clawrl_gym.envs.gui.films.film import Film

                self._film = Film(instruction, screen.viewport)
        except BaseException:
            screen.close()
            raise
        return screen

    def _act(self, task: GuiTask, screen: Screen, action: str) -> tuple[str, bool]:
        reply = decode(action)
        self._replied_with_calls = bool(reply.calls)
        if self._film is not None:
            self._film.expose(screen.shot)
        requested = parse_reply(reply, self._frame(task, screen))
        execution = execute(requested, screen, self._mouse)
        if not requested:
            execution.results.append(f"Error: {describe_missing_action(reply)}")
        if self._film is not None:
            self._film.add(self._view, tuple(execution.attempts), execution.failure)
        self._ending = execution.ending
        over = self._ending is not None or (bool(task.result_script) and _is_over(screen))
        return self._observation(reply, execution, screen, over), over or self._turns == task.turns

    def _observation(self, reply: Reply, execution: Execution, screen: Screen, over: bool) -> str:
        """The observation: a text, or one result a call with the page in the last."""
        if not reply.calls:
            return OVER if over else self._observe(screen, execution.messages)
        if over:
            return encode_results(reply.calls, execution.results)
        *before, last = execution.results
        page = self._observe(screen, [] if last == CARRIED_OUT else [last])
        return encode_results(reply.calls, [*before, page])

    def _observe(self, screen: Screen, messages: Sequence[str], first: str = "") -> str:
        """Observation for the model: words, and the page as text, as picture, or both."""
        self._view = screen.look()
        notes = [f"Note: {notice}" for notice in screen.notices()]
        kind, options = self._options.observation, self._options
        if kind in ("tree", "both"):
            page = render(self._view, options.max_tokens, screen.viewport[1])
        else:
            page = heading(self._view)
        text = "\n".join([*([first] if first else []), *messages, *notes, page])
        return encode_parts(text, [] if kind == "tree" else [self._picture(screen)])

    def _picture(self, screen: Screen) -> bytes:
        shot = screen.shot()
        if self._options.observation != "marked":
            return shot
        from clawrl_gym.envs.gui.films.picture import marked

        return marked(shot, self._view, screen.viewport)

    def _grade(self, task: GuiTask, screen: Screen) -> tuple[float, str]:
        """Only the model's own `give_up` gives up: no budget speaks for it."""
        ending = self._ending
        if self._film is not None:
            self._film.end(screen.shot)
        if self.render_mode == "rgb_array":
            self._last_shot = screen.shot()
        final_state = screen.final_state(
            ending.text if ending is not None and ending.kind == "answer" else None,
            ending is not None and ending.kind == "give_up",
            task.grader.needs_pages,
        )
        screen.close()
        reward, missing = task.grader.grade(replace(final_state, question=task.instruction))
        report = report_of(missing or ([] if is_success(reward) else [f"it earned {reward:g}"]))
        if self._film is not None:
            self._film.graded(reward, report)
        return reward, report

    def _turn_limit(self, task: GuiTask) -> int:
        return self._max_turns if task.turns is None else task.turns

    def _info(self, task: GuiTask) -> Info:
        return super()._info(task) | {
            "tools": [] if self._tool is None else [self._tool],
            "next_state_role": "tool" if self._replied_with_calls else "user",
            "difficulty": task.difficulty,
        }

    def _line(self, role: str, text: str) -> str:
        return super()._line(role, plain(text))

    @property
    def _thousandths(self) -> bool:
        return self._options.coordinates == "thousandths"

    def _frame(self, task: GuiTask, screen: Screen) -> CoordinateSpace:
        return CoordinateSpace(*screen.viewport, *self._spans(task, screen))

    def _spans(self, task: GuiTask, screen: Screen) -> tuple[int, int]:
        """Ranges of x and y: thousandths, or pixels of the picture."""
        if self._thousandths:
            return 1000, 1000
        scale = 1.0 if self._options.observation == "tree" else task.scale
        width, height = screen.viewport
        return round(width * scale), round(height * scale)


def _is_over(screen: Screen) -> bool:
    return screen.page_result() is not None
