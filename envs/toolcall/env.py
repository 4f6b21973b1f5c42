"""`ClawRL/ToolCall-v0`: a request and tools to meet it with, as a Gymnasium environment.

The environment knows tasks, turns and grades; what a call does is behind `Toolset`, and who
answers is behind `Customer`.
"""

from __future__ import annotations

from clawrl_gym.agents.tool_calls import Reply, decode, encode, encode_results
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Tool
from clawrl_gym.envs.example import Example, Examples, with_example
from clawrl_gym.envs.sandbox.sandboxes import Opener, Sandboxes
from clawrl_gym.envs.task_env import Info, TaskEnv
from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.toolcall.agent import reply_text
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.grading import ProgramGoal, grade
from clawrl_gym.envs.toolcall.source import open_source
from clawrl_gym.envs.toolcall.task import Customer, ExecutedCall, Outcome, ToolTask, Utterance
from clawrl_gym.envs.toolcall.toolbox import Toolbox, UserTools
from clawrl_gym.envs.toolcall.toolset import ToolContext


class ToolCallEnv(TaskEnv[ToolTask, Toolbox]):
    """A request, tools, and perhaps a user who answers; one task an episode.

    Observation
        Text (`Unicode`). At reset the user's request. After tool calls their results, a JSON list
        of `{"tool_call_id", "content"}` in the order of the calls; `info["next_state_role"]` is
        "tool" then, else "user". After something said what the user answers; "(done)" without one.
    Action
        Text (`Unicode`): what is said; or a reply with tool calls, as JSON
        `{"content": TEXT, "tool_calls": [{"id", "name", "arguments"}]}` with `arguments` as JSON
        text. `info["tools"]` has the tools' schemas. No text is illegal: an unknown tool, or
        arguments that do not fit its schema, give a result that says so. At most 16 calls of one
        reply are carried out, one after the other.
    Reward
        0 until the end, then 1 when all goals of the task are met, else 0: the answer that was
        said, the state that the tools were left in, what was said to the user, the calls that were
        made, or a program that says whether it is solved.
    Start
        Fresh tools with the task's state. `options={"task": ID}` names the task; without it one of
        `options["split"]` ("train" unless given) is drawn from the seed.
    End
        Terminated by a reply without calls when there is no user who answers, when the user has no
        more to say, or when the task's own number of turns is used up. Truncated, and graded all
        the same, after `max_turns` replies of a task without such a number. Tools that fail by
        themselves, or a user's model that does, raise EnvError: no reward is made up for it.
    Options
        `tasks` ("generated", "shop", "composed", or the path of tasks: our JSON, BFCL, tau-bench,
        tau2-bench), `families` (of generated tasks, None for all), `mcp` (servers whose tools are
        offered too), `user` ("scripted", or "model": a model finds the words of a simulated user)
        with `user_base_url`, `user_key`, `user_model`, `user_timeout_s`; `judge_base_url`,
        `judge_key`, `judge_model`, `judge_timeout_s` (who grades assertions in words); `max_turns`,
        `call_timeout_s`, `sandbox` (of the Python interpreter and of programs that grade, as in
        `SandboxConfig`), `open_sandbox` (None for the configured kind), `render_mode` ("ansi": the
        conversation so far).
    Info
        Always `task`, `family`, `split`, `tools`, `next_state_role`, `system` (what the assistant
        is told before, such as a shop's rules), `difficulty` (1 where nothing rates the tasks),
        `error` (None: failures are exceptions) and `report`: empty until the end, then
        "Test report: passed", or "Test report: failed" with a line for each thing that is missing.
        No observation holds the report. `scores`: of a task that a program grades, `trusted` is 0
        where code of the policy may give the program values that are equal to anything.
    Version
        v0: first version.
    """

    def __init__(
        self,
        *,
        open_sandbox: Opener | None = None,
        render_mode: str | None = None,
        **options: object,
    ) -> None:
        """`options`: the keys of `ToolCallEnvConfig`. Raises ConfigError for wrong ones."""
        config = ToolCallEnvConfig.of(options, "env.")
        super().__init__(config.max_turns, render_mode)
        self._context = ToolContext(config, open_sandbox)
        self._call_timeout_s = config.call_timeout_s
        self._source = open_source(self._context)
        self._examples = Examples(self._source, _example_of) if config.example else None
        self._customer: Customer | None = None
        self._user_tools: UserTools | None = None
        self._utterances: list[Utterance] = []
        self._ended = False
        """Nobody has more to say."""
        self._replies: list[str] = []
        self._calls: list[tuple[ExecutedCall, ...]] = []
        self._tools: list[Tool] = []
        self._awaits_results = False
        """The last reply called tools: what comes back are their results."""

    @staticmethod
    def source_of(config: ToolCallEnvConfig) -> TaskSource[ToolTask]:
        """Where a configuration's tasks come from. Raises ConfigError or TaskError for none."""
        return open_source(ToolContext(config))

    @staticmethod
    def long_preparation(config: ToolCallEnvConfig) -> str | None:
        """Reason for a long start, with Docker only; None where an episode can begin at once."""
        return Sandboxes.of(config.sandbox).missing_image()

    def solve(self) -> tuple[str, ...]:
        """The oracle: actions that solve the current task, one a step."""
        task, _ = self._current("solve")
        if not task.solution:
            raise TaskError(f"task {task.id!r} has no solution")
        return tuple(encode(reply) for reply in task.solution)

    def _request(self, task: ToolTask) -> str:
        return task.instruction

    def _open(self, task: ToolTask) -> Toolbox:
        tools = Toolbox.open(task, self._context)
        try:
            self._user_tools = tools.user_tools()
            self._customer = _customer(task, self._context.config, self._user_tools)
        except BaseException:
            tools.close()
            raise
        self._utterances, self._ended = [Utterance("user", task.instruction)], False
        self._replies, self._calls, self._awaits_results = [], [], False
        self._tools = tools.schemas
        return tools

    def _act(self, task: ToolTask, tools: Toolbox, action: str) -> tuple[str, bool]:
        reply = decode(action)
        self._awaits_results = bool(reply.calls)
        observation = self._hear(reply, tools)
        self._ended = observation is None
        if observation is None:
            return "(done)" if self._customer is None else "(the user left)", True
        return observation, self._turns == task.turns

    def _hear(self, reply: Reply, tools: Toolbox) -> str | None:
        """Answer to a reply; None when there is none and the episode ends."""
        if reply.content.strip():
            self._replies.append(reply.content)
        self._utterances.append(Utterance("assistant", encode(reply)))
        if reply.calls:
            calls = tools.carry_out(reply.calls, self._call_timeout_s)
            self._calls.append(calls)
            self._utterances += [Utterance("tool", call.result) for call in calls]
            return encode_results(reply.calls, [call.result for call in calls])
        answer = None if self._customer is None else self._customer.hear(reply.content)
        if answer is not None:
            self._utterances.append(Utterance("user", answer))
        return answer

    def _grade(self, task: ToolTask, tools: Toolbox) -> tuple[float, str]:
        try:
            outcome = Outcome(
                tuple(self._replies),
                tuple(self._calls),
                tools.states(),
                tuple(self._user_tools.calls) if self._user_tools else (),
                tuple(self._utterances),
                self._ended,
            )
        finally:
            tools.close()
        graded = grade(task.goals, outcome)
        return graded.reward, graded.report

    def _turn_limit(self, task: ToolTask) -> int:
        return self._max_turns if task.turns is None else task.turns

    def _info(self, task: ToolTask) -> Info:
        return super()._info(task) | {
            "tools": self._tools,
            "next_state_role": "tool" if self._awaits_results else "user",
            "system": with_example(task.system, self._examples, task),
            "difficulty": task.difficulty,
            "scores": _scores(task),
        }


def _example_of(task: ToolTask) -> Example:
    return Example(task.instruction, tuple(map(reply_text, task.solution)))


def _scores(task: ToolTask) -> dict[str, float]:
    """`trusted`, of tasks that a program grades."""
    programs = [goal for goal in task.goals if isinstance(goal, ProgramGoal)]
    return {"trusted": float(all(goal.is_trusted for goal in programs))} if programs else {}


def _customer(
    task: ToolTask, config: ToolCallEnvConfig, tools: UserTools | None
) -> Customer | None:
    if task.customer is None:
        return None
    from clawrl_gym.envs.toolcall.customer import make_customer

    return make_customer(task.customer, config, tools)
