"""The user's side of a composed conversation: what it hears, minds, and says next.

What can be mended is complained about once: a slip in what was all in one message, and a wish that
nobody has said. What was said before is not said again for nothing: a reply without it fails its
part, and the conversation with it. What the user says follows from the task and the replies alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from clawrl_gym.envs.conversation.user import PATIENCE, Reaction
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.composed.answers import MAX_CHARS, accepts
from clawrl_gym.envs.showcase.conversation.composed.generated import ComposedTask
from clawrl_gym.envs.showcase.conversation.composed.plan import Step, is_done, is_echo

_WRONG = (
    "That is not right, please work it out again.",
    "No, that is wrong, please try again.",
    "That is wrong, have another look, please.",
)
_FORGOTTEN = (
    "No, that is wrong. It does not fit what I told you before.",
    "That is not right. You have all that it takes from me already.",
    "That is wrong, please look back at what I said.",
)
_MISSING = (
    "It is not in {file} as I asked, please write it there.",
    "That is wrong, {file} does not hold what I wanted in it.",
)
_STRANGE = (
    "You wrote {file}. I did not ask for that!",
    "That is wrong, {file} was none of your business.",
)
_WRONG_FORM = "That is not how I wanted this one. Please rewrite it. {again}"
_LONG = ("That is too long, please give me a shorter answer.",)
_ECHO = ("Please do not repeat what I say, just answer.",)
_THANKS = (
    "Thanks, that is great. I have all that I need.",
    "Perfect, thanks. That was all.",
    "Great, thank you. We are done.",
)
_DISAPPOINTED = (
    "That was all. I do not like to say things twice, though.",
    "We are done, but you did not listen well.",
)
_LEAVES = ("Never mind, I will do it myself.", "Forget it, I give up.")


class ComposedUser:
    """One user in one conversation."""

    def __init__(self, task: ComposedTask) -> None:
        self._task, self._plan = task, task.plan
        self._draw = Draw(f"user/{task.id}")
        self._at = 0
        self._complaints = Counter[str]()
        self._failed: set[str] = set()
        self._done: set[int] = set()

    @property
    def parts(self) -> float:
        """The share of messages that were met, and wishes that were kept to the end."""
        wishes = [held.name for held in self._plan.all_wishes]
        met = [n for n in self._done if str(n) not in self._failed]
        kept = [name for name in wishes if name not in self._failed and self._is_over]
        return (len(met) + len(kept)) / (len(self._plan.steps) + len(wishes))

    @property
    def _is_over(self) -> bool:
        return self._at >= len(self._plan.steps)

    def hear(self, text: str, files: Mapping[str, str]) -> Reaction:
        """React to a reply. `files` is the workspace as it is now."""
        strange = self._strange(files)
        if strange:
            self._failed.add("files")
            return Reaction(self._say(_STRANGE, file=strange), over=True)
        step = self._plan.steps[self._at]
        if not is_done(step, text, files):
            return self._complain(str(self._at), self._objection(step, text, files), step.remembers)
        broken = self._plan.broken(self._at, text)
        if broken:
            held = broken[0]
            is_exception = held.name == step.excepted
            forms = (_WRONG_FORM,) if is_exception else held.wish.complaint
            words = self._say(forms, x=held.word, again=_last_sentences(step.text))
            return self._complain(held.name, words, held.told or is_exception)
        return self._go_on()

    def _go_on(self) -> Reaction:
        self._done.add(self._at)
        self._at += 1
        if not self._is_over:
            return Reaction(self._plan.steps[self._at].text)
        if self._failed:
            return Reaction(self._say(_DISAPPOINTED), over=True)
        return Reaction(self._say(_THANKS), over=True, satisfied=True)

    def _complain(self, about: str, words: str, was_said: bool) -> Reaction:
        """Complain; a first complaint about what nobody could know costs nothing."""
        self._complaints[about] += 1
        if was_said or self._complaints[about] > 1:
            self._failed.add(about)
        if self._complaints[about] > 1 or self._complaints.total() > PATIENCE:
            return Reaction(self._say(_LEAVES), over=True)
        return Reaction(words)

    def _objection(self, step: Step, text: str, files: Mapping[str, str]) -> str:
        if len(text) > MAX_CHARS:
            return self._say(_LONG)
        if is_echo(step, text):
            return self._say(_ECHO)
        if step.write is not None:
            return self._say(_MISSING, file=step.write.path)
        return self._say(_FORGOTTEN if step.remembers else _WRONG)

    def _strange(self, files: Mapping[str, str]) -> str:
        """A file that was written unasked, or damaged; empty for none."""
        steps = self._plan.steps[: self._at + 1]
        wanted = {step.write.path: step.write for step in steps if step.write is not None}
        now = self._plan.steps[self._at].write
        for path, content in sorted(files.items()):
            write = wanted.get(path)
            if write is None and self._plan.files.get(path) != content:
                return path
            if write is not None and write is not now and not accepts(write.holds, content):
                return path
        return ""

    def _say(self, forms: tuple[str, ...], **words: str) -> str:
        return self._draw.pick(forms).format(**words)


def _last_sentences(text: str) -> str:
    """Sentences from the one with the exception on: it has the colon."""
    return re.split(r"(?<=[.!?])\s+(?=[^.!?]*:)", text)[-1]
