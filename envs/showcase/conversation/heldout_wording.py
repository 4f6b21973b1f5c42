"""Held-out user sentences: the same wishes in words that no shipped policy was supervised on.

Written apart from the sentences in `personas.py` and not derived from them by rule: short and long,
polite and not, with and without a reason. Nobody but ourselves wrote them, so they are other words
and no other people's words. Demonstrations, judges and their rules are made without this module:
`tests/conversation/test_conversation_wording.py` looks for its sentences in what policies are
supervised on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Wording:
    """One person's sentences; the fields are those of `Persona`."""

    ask: tuple[str, ...]
    read: tuple[str, ...]
    dislike: tuple[str, ...]
    wrong: tuple[str, ...]
    thanks: tuple[str, ...]
    save: tuple[str, ...]
    missing: tuple[str, ...]
    leave: tuple[str, ...]


_STUDENT = Wording(
    ask=(
        "got this for monday: {task}",
        "{task} i don't get it",
        "yo quick one. {task}",
        "maths again :( {task}",
        "what do i put here? {task}",
        "hey can u do this with me, {task}",
    ),
    read=(
        "the exercise is in {file}, what goes there?",
        "hey look at {file} for me, i need what comes out",
        "i saved the question as {file}. what do i put?",
        "see {file}. how does that go?",
    ),
    dislike=(
        "nobody in my class writes this neatly lol, tone it down",
        "ugh no, mr hill would know in a second that it's not mine",
        "can you make it sound more like me? i never use capitals",
        "way too fancy",
        "this looks copied from chatgpt",
        "less perfect pls. just a quick line, everything small letters",
        "i can't hand that in, it's obviously a bot",
        "drop the bullet points and the stars, i just scribble stuff down",
        "hmm make it lazier, like a text to a friend",
        "looks typed by a computer, can it be one plain line without all the formatting",
        "that's not how a 12 year old puts it",
        "kids don't number their steps you know",
        "you'd get me caught with that. put it sloppy, no big letters",
        "just tell it the way you'd tell a mate, one go, nothing bold",
        "too stiff! i want it chatty and quick",
        "i'd never say 'final answer', nobody does",
        "not so polished please, write like you can't be bothered with shift",
        "could you dumb the look down a bit, single line, small letters",
        "sounds like a textbook, i need it to pass as my own",
        "my mum will ask who did this for me. more normal words please",
        "shorter and messier, as if i typed it on my phone",
        "ehm this has headings and stuff. only a casual sentence, thx",
    ),
    wrong=(
        "nah that doesn't add up",
        "i counted on my fingers and got something else",
        "my friend has a different number there",
        "are you sure? that can't be how many",
        "you miscounted i think",
        "hm the answer at the back of the book isn't that",
    ),
    thanks=(
        "sweet, ty",
        "yesss that works",
        "cool, i'm taking that",
        "great you saved me",
        "nice one!",
        "awesome thx",
    ),
    save=(
        "cool, put it in {target} for me",
        "nice. can you store that as {target}?",
        "love it, stick it into {target}",
        "yep, keep it under {target} pls",
    ),
    missing=(
        "i opened {target} and it's empty",
        "hm {target} doesn't have it",
        "where is it? nothing's in {target} yet",
    ),
    leave=(
        "ok whatever, i'll ask my sister",
        "this is going nowhere, bye",
        "i'm out, doing it by hand",
    ),
)

_TEACHER = Wording(
    ask=(
        "What would you put under this piece of work? {task}",
        "I am marking books tonight. {task} A remark, please.",
        "{task} What should I say to this child?",
        "One more for the pile: {task} Your feedback?",
        "Could you assess this for me? {task}",
    ),
    read=(
        "There is an exercise in {file}; what remark would you leave?",
        "Have a look at {file} and tell me what to put in the margin.",
        "I need a remark for the work in {file}.",
        "Assess what is in {file} for me, would you?",
    ),
    dislike=(
        "A seven-year-old has to read this. Be gentle.",
        "That reads like a report card. I'd rather encourage the kid.",
        "Where is the warmth? Address the child personally and mention what it did.",
        "It sounds so strict.",
        "Could we praise a little and speak to the child directly?",
        "My pupils deserve a kinder tone than that.",
        "Imagine you're sitting beside them: who are you talking to, and what did they manage?",
        "No grades like that, please. Something that cheers the child up.",
        "Too dry for me. Call the kid by the first name and point at the calculation.",
        "I would like it to be encouraging, with a word about how the problem was tackled.",
        "Parents will complain if I put this under the work; soften it.",
        "That would make anyone cry. Motivate instead.",
        "You forgot to address the learner. A bit of praise would not hurt either.",
        "Drop the verdict and the headings. Talk to the kid.",
        "It needs heart. Tell them which operation they used and that they are doing fine.",
        "Rather formal, isn't it? I want a few cheerful words to the child, in person.",
        "I asked for a comment, and this is a correction sheet. Make it human.",
        "Children give up when they read such a thing. Start with something positive.",
        "More personal, please, and more upbeat.",
        "Would you say that to a child's face? Try it with a smile and mention the working.",
        "Less of a judge, more of a coach, and speak to the kid by name.",
    ),
    wrong=(
        "I worked it out myself and the remark does not hold.",
        "Hold on, did the child get it or not? You have that backwards.",
        "The remark is mistaken about the result.",
        "I'm afraid the arithmetic in your remark is off.",
        "That does not match the key.",
    ),
    thanks=(
        "Lovely, I'll use that.",
        "That is just what I had in mind.",
        "Wonderful, they will be pleased.",
        "Excellent, much appreciated.",
        "Splendid, on to the next one.",
    ),
    save=(
        "Lovely. Would you store it as {target}?",
        "That will do nicely, please keep it in {target}.",
        "Excellent. Put it into {target} for me.",
        "I like that one. It belongs in {target}.",
    ),
    missing=(
        "I looked at {target}, and the remark has not arrived there.",
        "{target} still lacks it.",
        "Nothing of the kind in {target} so far.",
    ),
    leave=(
        "I'll phrase it myself, thank you.",
        "Enough for tonight, I'm closing this.",
        "This takes longer than doing it alone.",
    ),
)

_ENGINEER = Wording(
    ask=(
        "{task} Quick.",
        "Need a figure. {task}",
        "In a meeting, so briefly: {task}",
        "Figure for the sheet, please: {task}",
        "{task} How many?",
    ),
    read=(
        "The case is in {file}. Result?",
        "{file}: what's the figure?",
        "Get me the result for {file}.",
        "Look into {file} and report the figure.",
    ),
    dislike=(
        "I don't need the derivation.",
        "Just the figure, thanks.",
        "tl;dr",
        "Spare me the prose, I have thirty of these to enter.",
        "A value with what it counts. That's all.",
        "I'm pasting this into a single spreadsheet cell, so please strip everything else.",
        "Could you be briefer? Two words are plenty.",
        "Nobody reads that much text.",
        "Skip the explanation.",
        "Give me the result bare.",
        "No sentence, no steps, no formatting: quantity and item.",
        "Shorter. Far shorter.",
        "I can do the working myself, only the outcome matters.",
        "You talk a lot. How many of what, full stop.",
        "Cut it down to the essential.",
        "This should fit on a sticky note with room to spare.",
        "Why the essay? Digits and noun.",
        "Again without padding.",
        "My display shows ten characters.",
        "Answer as a gauge would: reading plus dimension.",
        "Get to the point and stop there.",
        "Bottom line, nothing around it.",
    ),
    wrong=(
        "Doesn't check out.",
        "My calculator disagrees.",
        "Off. Recompute.",
        "That figure can't be.",
        "Mismatch with my own count.",
    ),
    thanks=(
        "OK, noted.",
        "That's it.",
        "Perfect, next.",
        "Great, entered.",
        "Works for me.",
    ),
    save=(
        "Right, store as {target}.",
        "Fine, into {target} with it.",
        "Great. Save under {target}.",
        "Dump it in {target}.",
    ),
    missing=(
        "{target} is empty.",
        "Can't find it in {target}.",
        "{target} doesn't contain it yet.",
    ),
    leave=(
        "No time for this.",
        "I'll use the calculator.",
        "Closing the tab.",
    ),
)

_CHILD = Wording(
    ask=(
        "i have a riddle from school, {task}",
        "grandma can't help so you have to! {task}",
        "i wonder about this, {task}",
        "guess what, {task}",
        "{task} do you know?",
    ),
    read=(
        "there is a riddle in {file}! what comes out?",
        "my brother hid the question in {file}, look and say!",
        "open {file} please please and tell what happens in it",
        "i can't read {file} alone, what is the end of it?",
    ),
    dislike=(
        "i don't like numbers all alone, who was it and what happened?",
        "can it be a bedtime one?",
        "you sound like school :(",
        "make it an adventure! with someone in it",
        "hmm grandpa always starts with once upon a time",
        "too many signs, say who did what and how it ended",
        "please please pretend it's a fairy tale",
        "where are the people? tell what happened to them",
        "this is no fun",
        "i wanted something to listen to, not homework",
        "say it so that i can imagine it, with a happy end",
        "could you do it as if it's a cartoon episode?",
        "i fell asleep reading that. more exciting!",
        "my teddy says it has to have a beginning and a hooray",
        "tell me about the kid and the things, first this and then that",
        "boo! no lists, a tale!",
        "can something happen in it please? with wow",
        "explain it with what the kid in it does, like in a picture book",
        "i only like it when it goes one day somebody...",
        "not so serious! make it a bit like a movie",
        "what's that supposed to be? i want to hear about the adventure",
    ),
    wrong=(
        "i counted with my blocks and got something else!",
        "that's not how many",
        "hihi you made a mistake",
        "my sister says there are a different number",
        "oops, count the things one more time",
    ),
    thanks=(
        "hooray, i love it!",
        "that was so good, more tomorrow!",
        "hihi, cool!",
        "wow you're great",
        "that's my favourite, thank youuu",
    ),
    save=(
        "hooray! can you keep it in {target} for me?",
        "so good! put it into {target} so mom can see",
        "i love that one, please store it as {target}",
        "wow! it has to go in {target}",
    ),
    missing=(
        "i looked in {target} but there's nothing!",
        "mom opened {target} and it wasn't there",
        "{target} has no tale in it",
    ),
    leave=(
        "i'm going outside now, bye",
        "you don't know how, i ask dad",
        "i don't want to play this any more",
    ),
)

_CLERK = Wording(
    ask=(
        "The following case is on my desk: {task}",
        "We have received an inquiry. {task}",
        "{task} Kindly state the outcome.",
        "File 12, open question: {task}",
        "Your determination is requested. {task}",
    ),
    read=(
        "Kindly see {file} and state the outcome.",
        "The documents are in {file}; your determination is requested.",
        "An inquiry lies in {file}. What is the outcome?",
        "I refer to {file}. Kindly state the result.",
    ),
    dislike=(
        "Our archive does not accept bullet points.",
        "Kindly express this in proper prose.",
        "The auditors insist on complete sentences.",
        "I cannot file a list. What is the statement?",
        "The tone is not appropriate for official correspondence.",
        "A single well-formed statement, if you would.",
        "This is too colloquial for our purposes.",
        "It should be something that I can read out in a session.",
        "Regulations ask for subject, verb and object, and a full stop at the end.",
        "May I ask for a more official phrasing?",
        "Markup is stripped by our system; use continuous text.",
        "Such notes do not go to the minutes.",
        "Formless.",
        "Put it the way a notary would.",
        "Without emphasis and numbering, please; one grammatical statement suffices.",
        "I require a properly phrased finding.",
        "That is a calculation, and what the form needs is a statement of the outcome.",
        "The head of section returns anything that is not written out.",
        "Kindly observe the usual register of this office.",
        "It lacks form. State who has how many of what, in due style.",
        "One reads this like a telephone note; a letter is what we send.",
        "For the minutes it has to be put soberly and completely.",
    ),
    wrong=(
        "Our own count differs.",
        "The outcome cannot be reconciled with the facts.",
        "An error has been noted in the result.",
        "The result is contested.",
        "This does not agree with the books.",
    ),
    thanks=(
        "Duly noted, the case is closed.",
        "That is satisfactory.",
        "Perfect. The inquiry has been answered.",
        "Much obliged.",
        "Good. It will be filed today.",
    ),
    save=(
        "Satisfactory. Kindly deposit it in {target}.",
        "Good. It is to be filed under {target}.",
        "Approved; please enter it in {target}.",
        "Very well. Record it as {target}.",
    ),
    missing=(
        "The document {target} does not contain it.",
        "Nothing has been entered in {target}.",
        "We cannot locate the statement in {target}.",
    ),
    leave=(
        "The request is withdrawn.",
        "The matter goes to a colleague.",
        "No further correspondence is required.",
    ),
)

HELDOUT_WORDING: Mapping[str, Wording] = MappingProxyType(
    {
        "student": _STUDENT,
        "teacher": _TEACHER,
        "engineer": _ENGINEER,
        "child": _CHILD,
        "clerk": _CLERK,
    }
)
"""Wordings by persona."""
