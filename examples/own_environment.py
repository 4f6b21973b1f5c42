"""An environment of one's own, with tasks of its own: repeat the words in the order asked for.

python -m clawrl_gym.train env.target=examples.own_environment:WordOrderEnv trainer.steps=3

`TaskEnv` brings reset, step, budgets, the transcript and errors; a kind of task says where tasks
come from and fills four hooks. Held-out tasks are other words than those of training.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import clawrl_gym as cg

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
COUNT = {"train": 1000, "heldout": 100}


@dataclass(frozen=True)
class WordTask:
    """Three words, and whether they are wanted backwards."""

    id: str
    split: cg.Split
    words: tuple[str, ...]
    backwards: bool

    @property
    def family(self) -> str:
        return "backwards" if self.backwards else "forwards"

    @property
    def answer(self) -> str:
        return " ".join(reversed(self.words) if self.backwards else self.words)


class WordTasks:
    """Tasks by id, `train-0007`: a function of the id alone, so every worker has the same."""

    def ids(self, split: cg.Split) -> Sequence[str]:
        return [f"{split}-{number:04d}" for number in range(COUNT[split])]

    def load(self, task_id: str) -> WordTask:
        split, _, digits = task_id.partition("-")
        if split not in COUNT or not digits.isdigit():
            raise cg.TaskError(f"got task {task_id!r}, expected one such as 'train-0007'")
        number = int(digits) * 2 + (split == "heldout")  # odd numbers are held out
        words = tuple(WORDS[(number // 8**place) % 8] for place in range(3))
        named: cg.Split = "heldout" if split == "heldout" else "train"
        return WordTask(task_id, named, words, backwards=number % 3 == 0)


class Answers:
    """State of one episode: the answers given so far."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def close(self) -> None:
        """Do nothing: nothing is held."""


class WordOrderEnv(cg.TaskEnv[WordTask, Answers]):
    """Observation: the request, then whether the answer was right. Action: the words.

    Reward 1 for the right words in the right order, at the first or second try.
    """

    def __init__(self, max_turns: int = 2, render_mode: str | None = None) -> None:
        super().__init__(max_turns, render_mode)
        self._source = WordTasks()

    def _request(self, task: WordTask) -> str:
        order = "in reverse order" if task.backwards else "as they stand"
        return f"Say these words {order}: {' '.join(task.words)}"

    def _open(self, task: WordTask) -> Answers:
        return Answers()

    def _act(self, task: WordTask, workspace: Answers, action: str) -> tuple[str, bool]:
        workspace.given.append(" ".join(action.lower().split()))
        right = workspace.given[-1] == task.answer
        return ("Right." if right else "That is not it. Once more."), right

    def _grade(self, task: WordTask, workspace: Answers) -> tuple[float, str]:
        right = task.answer in workspace.given
        return float(right), f"expected {task.answer!r}, got {workspace.given!r}"
