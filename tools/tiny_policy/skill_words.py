"""People's words around the single skill that a demonstration shows."""

from __future__ import annotations

PEOPLE = ("a colleague", "my colleague", "somebody else", "I")
WILL_BE_DONE = (
    "After that, {who} will {do}.", "Then {who} will {do}.", "Next, {who} will {do}.",
    "Later {who} will {do}.", "Finally, {who} will {do}.", "At the end, {who} will {do}.",
    "Last of all, {who} will {do}.", "When that is done, {who} will {do}.", "Now {who} will {do}.",
)  # fmt: skip
HAS_BEEN_DONE = (
    "To {do} was my part, and it is done.", "First, {who} had to {do}; that is done.",
    "To begin with, {who} had to {do}; done.", "I asked {who} to {do}, which is done.",
)  # fmt: skip
NOT_ASKED = (" (not you)", " (leave it to me)", " (somebody else does this)")
"""Remarks behind an entry of a list."""
DONE = (" (done)", " (done already)", " (I did this)")
NODS = ("OK.", "Good.", "Fine.", "I see.", "Right.", "Yes.")
"""Answers to something done, which do not say whether there is more to do."""
ORDERS = (
    "Go on.", "Now the next one.", "And the rest?", "Continue, please.",
    "What about the other thing?", "Now the second part.",
)  # fmt: skip
"""Answers that do."""
