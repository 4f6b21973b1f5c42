"""Words of somebody who knows the answers: the oracle's replies, in the requested forms."""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.envs.conversation.tools import arguments_of
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.composed.answers import Answer
from clawrl_gym.envs.showcase.conversation.composed.plan import Held, Plan, is_done

_FORMS = ("That is {x}.", "It is {x}.", "{X}.", "The answer is {x}.")


def reply(
    answers: Sequence[Answer], held: Sequence[Held], excepted: Held | None, draw: Draw
) -> str:
    """The answers with all wishes kept, and one dropped; an acknowledgement without answers."""
    names = {wish.name for wish in held}
    dropped = "" if excepted is None else excepted.name
    said = [answer.said for answer in answers]
    if "brackets" in names:
        said = [f"[{word}]" for word in said]
    text = _core(answers, said, names, dropped, draw)
    for wish in sorted(held, key=lambda one: one.wish.order):
        text = wish.wish.shape(text, wish.word)
    return text if excepted is None else excepted.wish.unshape(text, excepted.word)


def _core(
    answers: Sequence[Answer], said: Sequence[str], names: set[str], dropped: str, draw: Draw
) -> str:
    joined = " and ".join(said)
    if not answers:
        return "Noted."
    if dropped == "short":
        operands = " and ".join(str(n) for answer in answers for n in sorted(answer.operands))
        return f"From {operands} you get what you asked for, and that is {joined}."
    if dropped == "sentence" or "short" in names:
        return f"{joined}."
    if "sentence" in names:
        return f"The answer is {joined}."
    return draw.pick(_FORMS).format(x=joined, X=joined[:1].upper() + joined[1:])


def solution(plan: Plan, seed: str) -> list[Reply]:
    """The oracle's replies: it knows every wish at once."""
    replies: list[Reply] = []
    said = spoken(plan, seed)
    for at, step in enumerate(plan.steps):
        if step.read is not None:
            replies.append(call(at, "read", path=step.read))
        if step.write is not None:
            holds = file_content(step.write.holds)
            replies.append(call(at, "write", path=step.write.path, content=holds))
        replies.append(Reply(said[at]))
    return replies


def spoken(plan: Plan, seed: str) -> list[str]:
    """The oracle's replies, one for each step."""
    return [
        reply(step.answers, plan.held_at(at), plan.excepted_at(at), Draw(f"oracle/{seed}/{at}"))
        for at, step in enumerate(plan.steps)
    ]


def is_sound(plan: Plan) -> bool:
    """Whether all that is asked for can be said in the wished form."""
    for at, (step, said) in enumerate(zip(plan.steps, spoken(plan, ""), strict=True)):
        write = step.write
        files = {} if write is None else {write.path: file_content(write.holds)}
        if not is_done(step, said, files) or plan.broken(at, said):
            return False
    return True


def call(at: int, tool: str, **arguments: str) -> Reply:
    """A reply that calls a tool of files."""
    return Reply("", (Call(f"{tool}-{at}", tool, arguments_of(**arguments)),))


def file_content(answers: Sequence[Answer]) -> str:
    """Content of a file that is written down, one answer a line."""
    return "\n".join(answer.said for answer in answers)
