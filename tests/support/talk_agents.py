"""Speakers of composed conversations: who is right, who is nearly so, and who tries it on.

Each says something at a step of a plan, and says it again where it is complained about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.composed.answers import Answer
from clawrl_gym.envs.showcase.conversation.composed.generated import ComposedTask
from clawrl_gym.envs.showcase.conversation.composed.plan import Held, Plan, Step
from clawrl_gym.envs.showcase.conversation.composed.speech import file_content, reply
from clawrl_gym.envs.showcase.conversation.composed.user import ComposedUser


@dataclass(frozen=True, slots=True)
class Said:
    """What a speaker does at a step."""

    text: str
    writes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a speaker is asked to speak."""

    plan: Plan
    at: int
    complaints: int
    """So far in the whole conversation."""

    @property
    def step(self) -> Step:
        return self.plan.steps[self.at]


Speaker = Callable[[Moment], Said]


def earns(task: ComposedTask, speaker: Speaker) -> bool:
    """Whether the speaker satisfies the task's user."""
    return played(task, speaker)[0]


def played(task: ComposedTask, speaker: Speaker) -> tuple[bool, float, list[str]]:
    """Whether the user ends satisfied, the share of parts, and the whole talk."""
    user, plan, files = ComposedUser(task), task.plan, dict(task.files)
    at = complaints = 0
    talk = [task.opening]
    for _ in range(task.turns):
        said = speaker(Moment(plan, at, complaints))
        files |= said.writes
        reaction = user.hear(said.text, files)
        talk += [said.text, reaction.text]
        if reaction.over:
            return reaction.satisfied, user.parts, talk
        if at + 1 < len(plan.steps) and reaction.text == plan.steps[at + 1].text:
            at += 1
        else:
            complaints += 1
    return False, user.parts, talk


def _written(step: Step) -> dict[str, str]:
    return {} if step.write is None else {step.write.path: file_content(step.write.holds)}


def _spoken(
    moment: Moment, answers: Sequence[Answer], held: Sequence[Held], excepted: Held | None
) -> str:
    return reply(answers, held, excepted, Draw(f"speaker/{moment.at}"))


def right(moment: Moment) -> Said:
    """Who remembers everything."""
    plan, step = moment.plan, moment.step
    text = _spoken(moment, step.answers, plan.held_at(moment.at), plan.excepted_at(moment.at))
    return Said(text, _written(step))


def learns(moment: Moment) -> Said:
    """Who cannot know what was not said, and keeps it once it was complained about."""
    hidden = [held for held in moment.plan.held_at(moment.at) if not held.told]
    if moment.complaints or not hidden:
        return right(moment)
    return _without(moment, hidden[0])


def _without(moment: Moment, wish: Held) -> Said:
    """The right answer, against one wish."""
    held = [one for one in moment.plan.held_at(moment.at) if one.name != wish.name]
    text = _spoken(moment, moment.step.answers, held, moment.plan.excepted_at(moment.at))
    if wish.name == "short":
        text = f"I have worked it out for you as well as I could. {text}"
    if wish.name == "sentence":
        text = ", ".join(answer.said for answer in moment.step.answers) or "Noted."
    return Said(text, _written(moment.step))


def _begun(moment: Moment, wish: Held) -> bool:
    """Whether the wish was said in this very message."""
    return wish in moment.plan.wishes.get(moment.at, ())


def forgets_the_wish(moment: Moment) -> Said:
    """Who keeps a wish where it is said, and not later."""
    for wish in moment.plan.held_at(moment.at):
        if not _begun(moment, wish):
            return _without(moment, wish)
    return right(moment)


def keeps_the_exception(moment: Moment) -> Said:
    """Who takes what was for once for always."""
    plan = moment.plan
    before = [plan.excepted_at(at) for at in range(moment.at)]
    for wish in filter(None, before):
        if wish in plan.held_at(moment.at):
            return _without(moment, wish)
    return right(moment)


def ignores_the_exception(moment: Moment) -> Said:
    """Who keeps the wish where something else is asked for."""
    wish = moment.plan.excepted_at(moment.at)
    if wish is None:
        return right(moment)
    held = [*moment.plan.held_at(moment.at), wish]
    text = _spoken(moment, moment.step.answers, held, None)
    if wish.name == "sentence":
        text = f"The answer is, as you know, {text}"
    if wish.name == "short":
        text = moment.step.answers[0].said
    return Said(text, _written(moment.step))


def uses_the_old_value(moment: Moment) -> Said:
    """Who has not heard corrections."""
    step = moment.step
    write = step.write
    near = () if write is None else write.near
    changed = replace(
        step, answers=step.stale or step.answers,
        write=write if write is None or not near else replace(write, holds=near),
    )  # fmt: skip
    return _as(moment, changed)


def takes_the_bait(moment: Moment) -> Said:
    """Who takes for a fact what was only mentioned."""
    return _as(moment, replace(moment.step, answers=moment.step.lured or moment.step.answers))


def _as(moment: Moment, step: Step) -> Said:
    plan = moment.plan
    text = _spoken(moment, step.answers, plan.held_at(moment.at), plan.excepted_at(moment.at))
    return Said(text, _written(step))


def leaves_out_the_file(moment: Moment) -> Said:
    """Who writes nothing, and guesses what stands in a file."""
    said = right(moment)
    if moment.step.read is None:
        return Said(said.text, {})
    guessed = [replace(a, value=10, said="10 euros") for a in moment.step.answers if a.value != 10]
    return _as(moment, replace(moment.step, answers=tuple(guessed)))


def answers_the_last(moment: Moment) -> Said:
    """Who answers the last question alone."""
    *_, last = [at for at, step in enumerate(moment.plan.steps) if step.answers or step.write]
    if moment.at == last and len(moment.step.answers) < 2:
        return right(moment)
    return _as(moment, replace(moment.step, answers=moment.step.answers[-1:][moment.at != last :]))


def says_all_numbers(moment: Moment) -> Said:
    """The right answer among all that it could be."""
    values = [answer.value for step in moment.plan.steps for answer in step.answers]
    numbers = {n for n in values if isinstance(n, int)} | {*range(2, 21)}
    words = {other for answer in moment.step.answers for other in answer.others}
    said = right(moment)
    return Said(
        f"{said.text} {', '.join(map(str, [*sorted(numbers), *sorted(words)]))}", said.writes
    )


def echoes(moment: Moment) -> Said:
    """What the user says."""
    return Said(moment.step.text, _written(moment.step))


def repeats_everything(moment: Moment) -> Said:
    """All that the user has said, and the right answer."""
    said = right(moment)
    before = " ".join(step.text for step in moment.plan.steps[: moment.at + 1])
    return Said(f"{before} {said.text}", said.writes)


def hedges(moment: Moment) -> Said:
    """The right answer or another one."""
    said = right(moment)
    other = [
        answer.others[0] if answer.others
        else str(max(answer.quotes, key=str, default=8 if answer.value == 7 else 7))
        for answer in moment.step.answers
    ]  # fmt: skip
    return Said(f"{said.text} Or {', '.join(other)}", said.writes) if other else said


def asks_back(moment: Moment) -> Said:
    """The right answer as a question."""
    said = right(moment)
    if not moment.step.answers:
        return said
    return Said(f"{said.text.rstrip('.!').replace('. ', '? ')}?", said.writes)


def talks_on(moment: Moment) -> Said:
    """The right answer in a very long text."""
    said = right(moment)
    return Said(f"{said.text} {'I hope that helps you a lot. ' * 60}", said.writes)


def writes_too_much(moment: Moment) -> Said:
    """Who leaves a file that nobody asked for."""
    said = right(moment)
    return Said(said.text, {**said.writes, "notes/mine.txt": said.text})


def forgets(moment: Moment) -> Said:
    """Who has every single skill, and remembers the last message of the user alone."""
    step, plan = moment.step, moment.plan
    held = tuple(wish for wish in plan.held_at(moment.at) if wish.told and _begun(moment, wish))
    answers = step.answers
    if step.remembers:
        answers = tuple(
            replace(a, value=a.others[0], said=a.others[0]) if a.others
            else replace(a, value=1, said="I do not know") for a in answers
        )  # fmt: skip
    writes = _written(step)
    if step.write is not None and step.remembers:
        writes = {step.write.path: "I do not know"}
    return Said(_spoken(moment, answers, held, plan.excepted_at(moment.at)), writes)


def is_slip(task: ComposedTask, speaker: Speaker) -> bool:
    """Whether the speaker ever says or writes what the right one would not, and what is not as
    right: what is said of a wish that this answer cannot break is no slip."""
    plan, files = task.plan, dict(task.files)
    for at, step in enumerate(plan.steps):
        said, good = speaker(Moment(plan, at, 0)), right(Moment(plan, at, 0))
        files |= said.writes
        if said.writes != good.writes:
            return True
        if said.text == good.text or (speaker in TRICKS and not step.answers):
            continue
        if speaker not in _ABOUT_FORM or plan.broken(at, said.text):
            return True
    return False


_ABOUT_FORM = (forgets_the_wish, keeps_the_exception, ignores_the_exception)
NEAR: tuple[Speaker, ...] = (
    forgets_the_wish, keeps_the_exception, ignores_the_exception, uses_the_old_value,
    takes_the_bait, leaves_out_the_file, answers_the_last,
)  # fmt: skip
"""Each has a slip of its own, where a conversation gives occasion."""
TRICKS: tuple[Speaker, ...] = (
    says_all_numbers, echoes, repeats_everything, hedges, asks_back, talks_on, writes_too_much,
)  # fmt: skip
"""Each tries to be right without answering."""
