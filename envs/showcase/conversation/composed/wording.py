"""Words around facts and questions: openings, thanks, and requests for files."""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.envs.phrasing import Phrasings

OPENINGS = Phrasings(
    (
        "Hi! I am planning a {event}.", "Hello, I need some help with a {event}.",
        "I am in charge of a {event} and not good with numbers.",
        "Good morning. It is about our {event}.",
        "Hey, can you help me think through a {event}?", "So, the {event} is mine to organise.",
        "We are having a {event} soon.", "There is a {event} to prepare, let us go.",
    ),
    (
        "Evening! A {event} has landed on my desk.", "They made me run a {event}.",
        "Hi there, I could use a second head for a {event}.",
    ),
)  # fmt: skip
ACKS = Phrasings(
    (
        "", "", "Thanks.", "Good.", "Great, thank you.", "Perfect.", "Ok, thanks.", "All right.",
        "That helps.", "Fine.", "Got it.", "Good to know.",
    ),
    ("", "Lovely, thanks.", "Right.", "Very good.", "Splendid.", "Much obliged."),
)  # fmt: skip
AND_ALSO = Phrasings(
    ("And also: ", "And another one: ", "Besides, "), ("On top of it: ", "Together with it: ")
)
TOLD_ONLY = Phrasings(
    ("That is all for now.", "Questions will follow.", "Just so you know.",
     "Keep it in mind, please.",
     "More in a moment.", "I will need that later."),
    ("Bear with me, questions come next.", "Hold on to that for me."),
)  # fmt: skip
PROBLEMS = Phrasings(
    (
        "{text}",
        "My son has to solve this: {text}",
        "A riddle from the children: {text}",
        "Something else, for the quiz: {text}",
    ),
    ("From a workbook that lies here: {text}", "A little sum in between: {text}"),
)
READS = Phrasings(
    (
        "There is a price list in {file}. What does one {extra} cost?",
        "Please look into {file}: how many euros is one {extra}?",
        "Have a look at {file} and tell me the price of one {extra}.",
        "The prices are in {file}. How much is a single {extra}?",
    ),
    ("In {file} you find prices, so what do they ask for one {extra}?",
     "Check {file} for me, what is one {extra}?"),
)  # fmt: skip
WRITES = Phrasings(
    (
        "Please write {what} into {file}.",
        "Could you note {what} in {file}?",
        "Put {what} down in the file {file}, please.",
        "Make me a file {file} with {what} in it.",
    ),
    ("Record {what} in {file} for me.", "Let {file} hold {what}, nothing else."),
)
UNDO = Phrasings(
    (),
    (
        "No, forget my correction: {v} was right after all, not {old}.",
        "I was right the first time, {v} it is and not {old}.",
        "Take my correction back, please: {v} again instead of {old}.",
    ),
)


def listed(words: Sequence[str]) -> str:
    """The words with commas, and an "and" before the last."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
