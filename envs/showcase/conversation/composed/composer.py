"""Draws a conversation: its facts, their corrections, its questions, and the form of replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import STEMS, Draw
from clawrl_gym.envs.phrasing import Phrasings, upper
from clawrl_gym.envs.showcase.conversation.composed.answers import Answer, accepts
from clawrl_gym.envs.showcase.conversation.composed.asks import (
    ASKS,
    FIRST,
    PICKS,
    Ask,
    dish,
    draw_options,
    recall,
)
from clawrl_gym.envs.showcase.conversation.composed.facts import (
    CORRECTED,
    FACTS,
    RECALLED,
    Facts,
    Value,
)
from clawrl_gym.envs.showcase.conversation.composed.plan import Held, Plan, Step, Write
from clawrl_gym.envs.showcase.conversation.composed.scenes import DIETS, PEOPLE, SCENES
from clawrl_gym.envs.showcase.conversation.composed.wishes import WISHES
from clawrl_gym.envs.showcase.conversation.composed.wording import (
    ACKS,
    AND_ALSO,
    OPENINGS,
    PROBLEMS,
    READS,
    TOLD_ONLY,
    UNDO,
    WRITES,
    listed,
)
from clawrl_gym.envs.showcase.conversation.problems import draw_problem

_TRIES = 30
_AN = re.compile(r"(?<=\b)a (?=[aeiou])")


_Work = Callable[[Facts], Answer]


class NotApplicable(Exception):
    """These draws come to no conversation."""


@dataclass(slots=True)
class _Message:
    """The next message while it is made."""

    remarks: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    stale: list[Answer] = field(default_factory=list)
    lured: list[Answer] = field(default_factory=list)
    excepted: Held | None = None
    told: set[str] = field(default_factory=set)
    """Kinds of facts."""
    needed: set[str] = field(default_factory=set)
    read: str | None = None
    write: Write | None = None


class Composer:
    """One conversation while it is made."""

    def __init__(self, draw: Draw, split: Split) -> None:
        self._draw, self._split = draw, split
        self._scene = draw.pick(SCENES[split])
        (item, items), (other, others), (extra, extras) = draw.some(self._scene.things, 3)
        names = draw.some(PEOPLE, 2)
        self._words = {
            "people": self._scene.people, "event": self._scene.event, "name": names[0],
            "item": item, "items": items, "other": other, "others": others,
            "extra": extra, "extras": extras,
        }  # fmt: skip
        self.facts: dict[str, Value] = {}
        self._former: dict[str, Value] = {}
        self._lures: dict[str, Value] = {}
        self._steps: list[Step] = []
        self._wishes: dict[int, list[Held]] = {}
        self._files: dict[str, str] = {}
        self._next = _Message()
        self._asked: set[str] = set()

    def tell(self, kind: str) -> None:
        """Says a fact in the next message. Raises NotApplicable for one that is known."""
        if kind in self.facts:
            raise NotApplicable
        self.facts[kind] = self._fresh(kind)
        self._say_fact(kind, FACTS[kind].told)
        self._next.skills.append(f"tell:{kind}")
        self._next.told.add(kind)

    def correct(self, kind: str) -> None:
        """Puts a fact right in the next message."""
        if kind not in self.facts or kind in self._former or kind in self._next.told:
            raise NotApplicable
        self._former[kind] = self.facts[kind]
        self.facts[kind] = self._fresh(kind)
        self._say_fact(kind, FACTS[kind].corrected, self._former[kind])
        self._next.skills.append(f"correct:{kind}")

    def undo(self, kind: str) -> None:
        """Takes a correction back in the next message."""
        if kind not in self._former:
            raise NotApplicable
        wrong = self.facts[kind]
        self.facts[kind], self._former[kind] = self._former[kind], wrong
        self._say_fact(kind, UNDO, wrong)
        self._next.skills.append(f"undo:{kind}")

    def distract(self, kind: str) -> None:
        """Mentions something like a fact that is none."""
        if kind not in self.facts or kind in self._lures or kind not in CORRECTED:
            raise NotApplicable
        self._lures[kind] = self._fresh(kind)
        text = self._pick(FACTS[kind].distracted)
        self._next.remarks.append(self._fill(text, v=FACTS[kind].word(self._lures[kind])))
        self._next.skills.append(f"distract:{kind}")

    def wish(self, *, told: bool = True) -> Held:
        """Something about the form of all answers from now on. Raises NotApplicable where it
        clashes."""
        wish = WISHES[self._draw.pick(sorted(WISHES))]
        known = {held.name for wishes in self._wishes.values() for held in wishes}
        if wish.name in known or wish.clashes & known:
            raise NotApplicable
        held = Held(wish.name, self._draw.pick(wish.choices), told)
        self._wishes.setdefault(len(self._steps), []).append(held)
        if told:
            self._next.remarks.append(self._pick(wish.said).format(x=held.word))
        self._next.skills.append(f"wish:{wish.name}" if told else f"hidden:{wish.name}")
        return held

    def except_once(self, held: Held) -> None:
        """The next message wants one answer in another form."""
        self._next.excepted = held
        self._next.skills.append(f"except:{held.name}")

    def ask(self, about: str | None = None) -> None:
        """A question that is worked out from facts, which are told with it where they are not
        known. Raises NotApplicable where there is none that is new."""
        draw = self._draw
        usable = [
            ask for ask in ASKS.values()
            if (about is None or about in ask.needs)
            and (ask.name not in self._asked or self._former.keys() & set(ask.needs))
        ]  # fmt: skip
        if not usable:
            raise NotApplicable
        ask = draw.pick(usable)
        for kind in ask.needs:
            if kind not in self.facts:
                self.tell(kind)
        self._put(ask, draw.between(ask.least, ask.most))

    def recall(self, kind: str) -> None:
        """Ask for a fact itself. Raises NotApplicable for one that is said in the same message."""
        if kind not in self.facts or kind in self._next.told or f"recall:{kind}" in self._asked:
            raise NotApplicable
        if kind in self._former and self._next.skills and self._next.skills[-1].endswith(kind):
            raise NotApplicable
        self._asked.add(f"recall:{kind}")
        self._question(
            f"recall:{kind}", self._fill(self._pick(FACTS[kind].recalled)), {kind},
            recall(kind, self.facts), *self._others(kind, lambda facts: recall(kind, facts)),
        )  # fmt: skip

    def pick(self) -> None:
        """Asks what somebody with a diet can have."""
        if "diet" not in self.facts:
            self.tell("diet")
        diet = str(self.facts["diet"])
        options = draw_options(diet, self._draw)
        spoken = f"{', '.join(options[:-1])} or {options[-1]}"
        text = self._fill(self._pick(PICKS), options=spoken)
        self._question("ask:pick", text, {"diet"}, dish(diet, options))

    def problem(self) -> None:
        """A small problem with all that it takes."""
        problem = draw_problem(self._split, self._draw)
        quotes = frozenset({problem.first, problem.second})
        said = f"{problem.answer} {problem.items}"
        answer = Answer(problem.answer, said, quotes, operands=quotes)
        text = self._pick(PROBLEMS).format(text=problem.text)
        self._question("ask:problem", text, set(), answer)

    def first_answer(self) -> None:
        """Asks for the first answer once more."""
        if not self._steps or len(self._steps[0].answers) != 1 or "first" in self._asked:
            raise NotApplicable
        if self._steps[0].read is not None or isinstance(self._steps[0].answers[0].value, str):
            raise NotApplicable
        self._asked.add("first")
        self._question("recall:first", self._pick(FIRST), {"first"}, self._steps[0].answers[0])

    def read_price(self) -> None:
        """Asks for a price that stands in a file."""
        if "listed" in self.facts:
            raise NotApplicable
        draw = self._draw
        path = f"prices/{draw.pick(STEMS)}.txt"
        prices = draw.some([n for n in range(3, 30) if n not in self.facts.values()], 3)
        goods = [self._words["other"], self._words["extra"], "table cloth"]
        self._files[path] = "".join(
            f"{thing}: {price} euros\n"
            for thing, price in draw.some(list(zip(goods, prices, strict=True)), 3)
        )
        self.facts["listed"] = prices[1]
        self._next.read = path
        text = self._fill(self._pick(READS), file=path)
        self._question("read:price", text, set(), Answer(prices[1], f"{prices[1]} euros"))

    def listed_cost(self) -> None:
        """A question that needs the price in the file, which is not repeated."""
        if "listed" not in self.facts or "listed" in self._asked:
            raise NotApplicable
        self._asked.add("listed")
        as_price = replace(ASKS["cost"], name="listed", needs=("listed",))
        price, k = int(self.facts["listed"]), self._draw.between(6, 19)
        answer = ASKS["cost"].answer({"price": price}, k)
        text = self._fill(self._pick(as_price.asked), k=k, items=self._words["extras"])
        self._question("ask:listed", text, {"listed"}, answer)

    def write(self, kinds: Sequence[str]) -> None:
        """Wants facts in a file."""
        if not kinds or not set(kinds) <= self.facts.keys() or set(kinds) & self._next.told:
            raise NotApplicable
        path = f"notes/{self._draw.pick(STEMS)}.txt"
        if self._next.write or path in self._written():
            raise NotApplicable
        nouns = listed([self._fill(FACTS[kind].noun) for kind in kinds])
        holds = tuple(recall(kind, self.facts) for kind in kinds)
        before = {**self.facts, **self._former}
        near = tuple(recall(kind, before) for kind in kinds)
        self._next.write = Write(path, holds, near if near != holds else ())
        text = self._pick(WRITES).format(what=nouns, file=path)
        self._next.questions.append(text)
        self._next.needed |= set(kinds)
        self._next.skills += [f"write:{kind}" for kind in kinds]

    def say(self) -> None:
        """The next message is done. Raises NotApplicable where it does not come to a good one."""
        message = self._next
        if message.excepted is not None and not self._can_be_excepted(message):
            raise NotApplicable
        if not message.remarks and not message.questions:
            raise NotApplicable
        if message.stale and len(message.stale) == len(message.answers):
            self._refuse_near(message.answers, message.stale)
        if message.lured and len(message.lured) == len(message.answers):
            self._refuse_near(message.answers, message.lured)
        first = not self._steps
        head = self._pick(OPENINGS).format(**self._words) if first else self._pick(ACKS)
        updated = any(name.split(":")[0] in ("correct", "undo") for name in message.skills)
        if not first and updated:
            head = ""  # thanks before a correction would be about what was just answered
        body = self._body(message)
        text = _AN.sub("an ", " ".join(part for part in (head, *body) if part))
        self._steps.append(
            Step(
                text, tuple(message.skills), tuple(message.answers), tuple(message.stale),
                tuple(message.lured), message.read, message.write,
                None if message.excepted is None else message.excepted.name,
                bool(message.needed - message.told),
            )
        )  # fmt: skip
        self._next = _Message()

    def plan(self) -> Plan:
        """The whole."""
        wishes = {at: tuple(held) for at, held in self._wishes.items()}
        return Plan(tuple(self._steps), wishes, dict(self._files))

    @property
    def known(self) -> list[str]:
        """Kinds of facts that can be asked for."""
        return [kind for kind in self.facts if kind in RECALLED]

    @property
    def correctable(self) -> list[str]:
        """Kinds that were told before this message, and never corrected."""
        known = self.facts.keys() - self._former.keys() - self._next.told
        return [kind for kind in CORRECTED if kind in known]

    def _put(self, ask: Ask, k: int) -> None:
        answer = ask.answer(self.facts, k)
        if answer.value in answer.quotes or self._is_odd(answer):
            raise NotApplicable
        self._asked.add(ask.name)
        text = self._fill(self._pick(ask.asked), k=k)
        near = [self._near(ask.needs, lambda facts: ask.answer(facts, k), values)
                for values in (self._former, self._lures)]  # fmt: skip
        self._question(f"ask:{ask.name}", text, set(ask.needs), answer, *near)

    def _is_odd(self, answer: Answer) -> bool:
        """Whether a price or a number of pieces is unnatural, or an hour is after midnight."""
        if isinstance(answer.value, str):
            return False
        return not 2 <= answer.value <= 2_000 or (":" in answer.said and answer.value > 23)

    def _question(
        self, name: str, text: str, needed: set[str], answer: Answer,
        stale: Answer | None = None, lured: Answer | None = None,
    ) -> None:  # fmt: skip
        message = self._next
        if any(answer.value == other.value for other in message.answers):
            raise NotApplicable
        message.questions.append(text)
        message.skills.append(name)
        message.answers.append(answer)
        message.needed |= needed
        message.stale = self._extended(message.stale, stale, answer)
        message.lured = self._extended(message.lured, lured, answer)

    def _extended(self, near: list[Answer], more: Answer | None, right: Answer) -> list[Answer]:
        """Near answers to all questions so far; none where they are the right ones."""
        before = near or self._next.answers[:-1]
        both = [*before, more or right]
        return [] if both == self._next.answers else both

    def _near(self, needs: Sequence[str], answer: _Work, values: Facts) -> Answer | None:
        """The answer that other values give for what is needed."""
        changed = {kind: values[kind] for kind in needs if kind in values}
        return answer({**self.facts, **changed}) if changed else None

    def _others(self, kind: str, answer: _Work) -> tuple[Answer | None, Answer | None]:
        return self._near([kind], answer, self._former), self._near([kind], answer, self._lures)

    def _refuse_near(self, answers: Sequence[Answer], near: Sequence[Answer]) -> None:
        if accepts(answers, " and ".join(answer.said for answer in near)):
            raise NotApplicable

    def _can_be_excepted(self, message: _Message) -> bool:
        held = message.excepted
        if held is None or len(message.answers) != 1 or message.write is not None:
            return False
        answer = message.answers[0]
        if held.name == "short":
            return len(answer.operands) >= 2
        if held.name == "spelt":
            return not isinstance(answer.value, str)
        return True

    def _body(self, message: _Message) -> list[str]:
        remarks, questions = list(message.remarks), list(message.questions)
        if not questions:
            return [*remarks, self._pick(TOLD_ONLY)]
        if len(questions) > 1:
            questions[1:] = [f"{self._pick(AND_ALSO)}{_lower(text)}" for text in questions[1:]]
        if message.excepted is not None:
            form = self._pick(message.excepted.wish.excepted).format(x=message.excepted.word)
            questions[0] = f"{form} {_lower(questions[0])}"
        updates = any(name.split(":")[0] in ("correct", "undo") for name in message.skills)
        if not updates and len(remarks) == 1 and self._steps and self._draw.below(4) == 0:
            return [*questions, *remarks]
        return [*remarks, *questions]

    def _say_fact(self, kind: str, ways: Phrasings, old: Value | None = None) -> None:
        fact = FACTS[kind]
        value = fact.word(self.facts[kind])
        if kind == "diet":
            value = DIETS[str(self.facts[kind])].told
        former = "" if old is None else fact.word(old)
        self._next.remarks.append(upper(self._fill(self._pick(ways), v=value, old=former)))

    def _fresh(self, kind: str) -> Value:
        """A value that nothing else in the conversation has."""
        taken = {*self.facts.values(), *self._former.values(), *self._lures.values()}
        for _ in range(_TRIES):
            value = FACTS[kind].draw(self._draw)
            if value not in taken and value != self._words["name"]:
                return value
        raise NotApplicable

    def _written(self) -> set[str]:
        return {step.write.path for step in self._steps if step.write is not None}

    def _pick(self, ways: Phrasings) -> str:
        return self._draw.pick(ways.of(self._split))

    def _fill(self, text: str, **more: object) -> str:
        return text.format(**{**self._words, **more})


def _lower(text: str) -> str:
    """The text without its first capital, unless that belongs to a name or "I"."""
    first = text.split(maxsplit=1)[0]
    if first.strip(",") in ("I", *PEOPLE):
        return text
    return text[:1].lower() + text[1:]
