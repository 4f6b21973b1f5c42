"""Puts the reports on a repository into one request, in one of several layouts.

No sentence around the reports is used in both splits; the reports themselves belong to their
repository, which is of one split.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices
from clawrl_gym.envs.showcase.swe.composed.plan import Plan, Report
from clawrl_gym.envs.showcase.swe.composed.registers import (
    ALONE,
    PEOPLE,
    POINTERS,
    UNNAMED,
    UNNAMED_ALONE,
)

_Layout = Callable[[Draw, Split, Sequence[Report]], str]
_OPENING: Choices = MappingProxyType(
    {
        "train": (
            "", "", "Hi! Before the next release these have to be fixed.",
            "Our users wrote to us about this package.",
            "I went through the complaints of the last weeks.",
            "Here is what we know to be wrong with this repository.",
            "Hello, a few things do not work.", "We had a bug round yesterday.",
            "This came in over the weekend.", "Some trouble with this code:",
            "There is more than one thing to fix here.",
        ),
        "heldout": (
            "", "Support has handed these on to you.", "Friday's review came up with this.",
            "Good evening, this repository needs some care.",
        ),
    }
)  # fmt: skip
_FIRST: Choices = MappingProxyType(
    {
        "train": ("", "First: ", "To begin with: ", "For a start: "),
        "heldout": ("", "For one thing: "),
    }
)
_NEXT: Choices = MappingProxyType(
    {
        "train": ("", "Then: ", "Also: ", "Another one: ", "Next: ", "What is more: "),
        "heldout": ("", "Further: ", "In addition: "),
    }
)
_LAST: Choices = MappingProxyType(
    {
        "train": ("", "Finally: ", "And: ", "Last of all: "),
        "heldout": ("", "And lastly: "),
    }
)
CHECKS: Choices = MappingProxyType(
    {
        "train": (),
        "heldout": (
            "This should go through, and does not:",
            "I wrote these lines to see whether it works. It does not:",
            "Expected to hold (the names are those of the tests that are there):",
            "Try this, with what our tests import:",
        ),
    }
)
"""Text before code that should hold, as many as there are bugs at most: all held out."""
_RED: Choices = MappingProxyType(
    {
        "train": (
            "Besides, some of the tests in the repository fail at the moment; they have to pass "
            "again.",
            "The test suite is red, too. Make it green, by fixing the code.",
            "And somebody broke one more thing: our own tests show it. They must all pass.",
            "Run the tests as well: what fails there is part of this.",
        ),
        "heldout": (
            "On top of that, not all tests pass any more, which they should.",
            "Also, whatever our tests find wrong is to be put right.",
        ),
    }
)
_WARNING: Choices = MappingProxyType(
    {
        "train": (
            "Not all of it need be a bug: what the README, a docstring or one of our tests says is "
            "meant, and stays so.",
            "If somebody complains of what README, docstrings or tests want, leave that as it is.",
            "Mind that people also report what works as described (README, docstrings, tests). "
            "That stays.",
            "Nothing that README, docstrings or tests ask for may change, whatever a report says.",
        ),
        "heldout": (
            "Where a report wants something else than README, docstrings or tests, nothing is "
            "changed for it.",
            "People may want what was never promised; README, docstrings and tests have the last "
            "word.",
        ),
    }
)
_CLOSING: Choices = MappingProxyType(
    {
        "train": (
            "Please fix all of it.", "All of this has to work in the end.",
            "It is done when every one of these is.", "One patch for everything, please.",
            "Thanks for taking care of all of them!", "Please leave none of it undone.",
        ),
        "heldout": (
            "Kindly see to each of these.", "Nothing of this may be left when you submit.",
            "Much obliged if you get through all of it.",
        ),
    }
)  # fmt: skip
_CLOSING_WARNED: Choices = MappingProxyType(
    {
        "train": (
            "Fix all that is a bug.", "Every real bug has to go.",
            "Please fix the real ones, all of them.", "Whatever is a bug has to be gone then.",
        ),
        "heldout": ("See to each of those that are bugs.", "No bug may be left when you submit."),
    }
)  # fmt: skip


def request(draw: Draw, split: Split, plan: Plan) -> str:
    """The request of a task."""
    told = [report for report in plan.reports if not report.filed]
    blocks = [draw.pick(_OPENING[split])] if told else []
    if told:
        plain = all("\n" not in report.whole for report in told)
        layouts = [*_LAYOUTS, _run_on] if plain else _LAYOUTS
        blocks.append(draw.pick(layouts)(draw, split, told))
    if plan.register is not None:
        named, unnamed = (POINTERS, UNNAMED) if told else (ALONE, UNNAMED_ALONE)
        pointers = named if plan.register.is_named else unnamed
        blocks.append(draw.pick(pointers[split]).format(file=plan.register.path))
    if plan.made is not None:
        blocks.append(draw.pick(_RED[split]))
    ending = [draw.pick(_WARNING[split])] if plan.warned else []
    ending.append(draw.pick((_CLOSING_WARNED if plan.warned else _CLOSING)[split]))
    return "\n\n".join(block for block in (*blocks, " ".join(ending)) if block)


def check_texts(draw: Draw, split: Split, codes: Sequence[str]) -> list[str]:
    """Pieces of code that should hold, each with what is said of it."""
    leads = draw.some(CHECKS[split], len(codes))
    return [f"{lead}\n\n{code}" for lead, code in zip(leads, codes, strict=True)]


def _opened(draw: Draw, split: Split, reports: Sequence[Report]) -> list[str]:
    """Each with a word that says where it stands among others."""
    between = cycle(draw.some(_NEXT[split], len(_NEXT[split])))
    openers = [draw.pick(_FIRST[split]), *islice(between, max(0, len(reports) - 2))]
    openers.append(draw.pick(_LAST[split]))
    return [f"{opener}{report.whole}" for opener, report in zip(openers, reports, strict=False)]


def _paragraphs(draw: Draw, split: Split, reports: Sequence[Report]) -> str:
    return "\n\n".join(_opened(draw, split, reports))


def _run_on(draw: Draw, split: Split, reports: Sequence[Report]) -> str:
    return " ".join(_opened(draw, split, reports))


def _numbered(draw: Draw, split: Split, reports: Sequence[Report]) -> str:
    return _items([(f"{i}. ", report.whole) for i, report in enumerate(reports, 1)])


def _bullets(draw: Draw, split: Split, reports: Sequence[Report]) -> str:
    return _items([("- ", report.whole) for report in reports])


def _by_person(draw: Draw, split: Split, reports: Sequence[Report]) -> str:
    people = draw.some(PEOPLE[split], len(reports))
    verb = draw.pick(("writes", "says", "reports"))
    return "\n\n".join(
        f"{person} {verb}:\n{textwrap.indent(report.whole, '> ', lambda line: True)}"
        for person, report in zip(people, reports, strict=True)
    )


def _headed(draw: Draw, split: Split, reports: Sequence[Report]) -> str:
    return "\n\n".join(
        f"## {report.title or f'Report {i}'}\n\n{report.text}"
        for i, report in enumerate(reports, 1)
    )


def _items(items: Sequence[tuple[str, str]]) -> str:
    """A list; what belongs to an item stands below it."""
    texts = [mark + textwrap.indent(text, " " * len(mark)).lstrip() for mark, text in items]
    return ("\n\n" if any("\n" in text for text in texts) else "\n").join(texts)


_LAYOUTS: tuple[_Layout, ...] = (_paragraphs, _numbered, _bullets, _by_person, _headed)
