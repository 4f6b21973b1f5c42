"""Families about numbers: add, bill, both, steps with a calculator, range with Python."""

from __future__ import annotations

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.problems import ITEMS
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec, TaskContent, replies
from clawrl_gym.envs.toolcall.goals import AnswerGoal, MentionGoal

CALCULATOR = ("calculator",)
CALCULATE = ("calculate",)

_PLUS = ("What is {a} plus {b}?", "What is {a} + {b}?", "Add {a} and {b}.")
_MINUS = ("What is {a} minus {b}?", "What is {a} - {b}?", "Subtract {b} from {a}.")


def calculate(expression: str) -> CallSpec:
    """The call of the calculator."""
    return "calculate", {"expression": expression}


def add(draw: Draw) -> TaskContent:
    """One sum or difference of numbers that are too large for the head."""
    a, b = sorted((draw.between(11, 899), draw.between(11, 899)), reverse=True)
    forms, sign, value = draw.pick(((_PLUS, "+", a + b), (_MINUS, "-", a - b)))
    return TaskContent(
        instruction=draw.pick(forms).format(a=a, b=b),
        solution=replies([calculate(f"{a} {sign} {b}")], f"The answer is {value}."),
        goals=(AnswerGoal(str(value)),),
        toolsets=CALCULATOR,
        tools=CALCULATE,
    )


def bill(draw: Draw) -> TaskContent:
    """So many things at one price."""
    count, price, items = draw.between(12, 99), draw.between(3, 99), draw.pick(ITEMS)
    form = draw.pick(
        ("How many coins are {a} {t} at {b} each?", "{a} {t} at {b} coins each: how many coins?")
    )
    value = count * price
    return TaskContent(
        instruction=form.format(a=count, b=price, t=items),
        solution=replies([calculate(f"{count} * {price}")], f"The answer is {value}."),
        goals=(AnswerGoal(str(value)),),
        toolsets=CALCULATOR,
        tools=CALCULATE,
    )


def both(draw: Draw) -> TaskContent:
    """Two questions at once: two calls in one reply."""
    a, b, c, d = (draw.between(11, 99) for _ in range(4))
    first, second = a + b, c * d
    form = draw.pick(("What is {a} + {b} and {c} * {d}?", "Solve both: {a} + {b} and {c} * {d}."))
    return TaskContent(
        instruction=form.format(a=a, b=b, c=c, d=d),
        solution=replies(
            [calculate(f"{a} + {b}"), calculate(f"{c} * {d}")],
            f"The answers are {first} and {second}.",
        ),
        goals=(MentionGoal((str(first), str(second))),),
        toolsets=CALCULATOR,
        tools=CALCULATE,
    )


def steps(draw: Draw) -> TaskContent:
    """A sum whose order matters."""
    a, b, c = draw.between(11, 99), draw.between(11, 99), draw.between(3, 19)
    form = draw.pick(
        ("Add {a} and {b}, then the sum times {c}.", "What is the sum of {a} and {b}, times {c}?")
    )
    value = (a + b) * c
    return TaskContent(
        instruction=form.format(a=a, b=b, c=c),
        solution=replies([calculate(f"({a} + {b}) * {c}")], f"The answer is {value}."),
        goals=(AnswerGoal(str(value)),),
        toolsets=CALCULATOR,
        tools=CALCULATE,
    )


def range_(draw: Draw) -> TaskContent:
    """A sum over whole numbers, in a line of Python."""
    first = draw.between(2, 60)
    last = first + draw.between(5, 99)
    form = draw.pick(
        (
            "Add all numbers from {a} to {b}. Answer in \\boxed{{}}.",
            "What is the sum of all numbers from {a} to {b}? Answer in \\boxed{{}}.",
        )
    )
    value = sum(range(first, last + 1))
    return TaskContent(
        instruction=form.format(a=first, b=last),
        solution=replies(
            [("python", {"code": f"sum(range({first}, {last} + 1))"})],
            f"The answer is \\boxed{{{value}}}.",
        ),
        goals=(AnswerGoal(str(value), boxed=True),),
        toolsets=("python",),
        tools=("python",),
    )
