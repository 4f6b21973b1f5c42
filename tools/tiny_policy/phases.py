"""Training data of the tiny policy, phase by phase, and its shares.

Skill first, until copying is sharp; then bad habits over it, practice, and habits again. Tools and
repositories came later, and pages after them: their phases continue from what earlier ones made,
with rehearsal. Reading pages takes so much of it that conversations are
forgotten; at the end all is practised together, which brings them back, and then once more with
files that are read and written for somebody, which it does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tools.tiny_policy.conversations import Mixture, Source
from tools.tiny_policy.hints import HintedTalk, UnheededTalk, hinted
from tools.tiny_policy.judging import JudgeDemonstrations
from tools.tiny_policy.office_skills import OfficeSkills
from tools.tiny_policy.page_drills import PageDrills
from tools.tiny_policy.page_skills import PageSkills
from tools.tiny_policy.page_tasks import PageDemonstrations
from tools.tiny_policy.repositories import RepositoryDemonstrations
from tools.tiny_policy.sessions import LongSessions
from tools.tiny_policy.shell_skills import ShellSkills
from tools.tiny_policy.small_talk import SmallTalkDemonstrations
from tools.tiny_policy.talk import NO_HABITS, Habits, SumDrills, TalkDemonstrations
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations
from tools.tiny_policy.tool_tasks import ToolDemonstrations
from tools.tiny_policy.training import TrainingPlan

SHARES = (0.37, 0.26, 0.13, 0.03, 0.09, 0.12)
"""Shares of terminal tasks, conversations, small talk, longer sessions, replies that follow a hint,
and answers of a judge in every batch."""
PRACTICE = (0.32, 0.33, 0.09, 0.03, 0.17, 0.06)
"""The same where sums and hints are practised: a judge's answers are learned long before."""
WISHES = (0.26, 0.44, 0.06, 0.03, 0.17, 0.04)
"""The same where first replies in the wished style are practised."""
WISHED = Habits(unasked=0.15, wished=0.8)
"""Habits of that practice: a sum is harder to get right in passing than step by step."""
REHEARSAL = (0.48, 0.31, 0.21)
"""Shares of all the above, tool-call tasks and repositories, once those two are learned too."""
PAGES = (0.4, 0.5, 0.1)
"""Shares of all that, tasks on pages and drills, once pages are learned too."""
TALKATIVE = (0.30, 0.40, 0.06, 0.03, 0.17, 0.04)
"""Shares of `everything` where conversations come back."""
TOGETHER = (0.55, 0.13, 0.08, 0.20, 0.04)
"""Shares of all that, tool-call tasks, repositories, pages and drills, practised together."""
ASSISTING = (0.24, 0.19, 0.38, 0.03, 0.12, 0.04)
"""Shares of `everything` where reading and writing files for somebody comes back."""
SHELL = 0.55
"""Share of the terminal's among single skills: there are more of them, of more words."""
BATCH = 40


@dataclass(frozen=True, slots=True)
class Phase:
    """Training on one source."""

    name: str
    source: Source
    plan: TrainingPlan


def everything(
    *,
    careless: bool = False,
    nonsense: float = 0.25,
    shares: tuple[float, ...] = SHARES,
    habits: Habits = Habits(),  # noqa: B008 (frozen)
) -> Mixture:
    """All that the policy learns without other tools than `read` and `write`, mixed."""
    terminal, talk, small_talk, sessions, hints, judge = shares
    chats = (
        (TalkDemonstrations(habits=habits), talk),
        (SmallTalkDemonstrations(nonsense), small_talk),
    )
    return Mixture(
        (
            (TerminalDemonstrations(careless=careless), terminal),
            *chats,
            (LongSessions(Mixture(chats)), sessions),
            (Mixture(hinted()), hints),
            (JudgeDemonstrations(nonsense=nonsense), judge),
        )
    )


def with_tools(*, careless: bool = False) -> Mixture:
    """Everything, tool-call tasks and repositories."""
    rehearsed, tools, repositories = REHEARSAL
    return Mixture(
        (
            (everything(careless=careless), rehearsed),
            (ToolDemonstrations(careless=careless), tools),
            (RepositoryDemonstrations(careless=careless), repositories),
        )
    )


def with_pages(*, careless: bool = False) -> Mixture:
    """Everything, tools and pages."""
    rehearsed, pages, drills = PAGES
    return Mixture(
        (
            (with_tools(careless=careless), rehearsed),
            (PageDemonstrations(careless=careless), pages),
            (PageDrills(), drills),
        )
    )


def together(*, careless: bool = False, shares: tuple[float, ...] = TALKATIVE) -> Mixture:
    """Everything, tools, repositories and pages, in about equal parts."""
    rehearsed, tools, repositories, pages, drills = TOGETHER
    return Mixture(
        (
            (everything(careless=careless, shares=shares), rehearsed),
            (ToolDemonstrations(careless=careless), tools),
            (RepositoryDemonstrations(careless=careless), repositories),
            (PageDemonstrations(careless=careless), pages),
            (PageDrills(), drills),
        )
    )


def looking_up() -> Mixture:
    """Nearly nothing but drills: going on with a line of the page is learned first, or never."""
    return Mixture(((with_tools(), 0.05), (PageDrills(bare=True), 0.95)))


def heldout_answers() -> Mixture:
    """Answers of a judge and replies that follow a hint, on what is held out."""
    return Mixture(((JudgeDemonstrations("heldout"), 0.6), (Mixture(hinted("heldout")), 0.4)))


def phases() -> tuple[Phase, ...]:
    """All phases of `tiny`, from the first weights on."""
    return (*first_phases(), *more_phases(), *page_phases())


def first_phases() -> tuple[Phase, ...]:
    """Commands and conversations.

    Habits come last and briefly: they must not harm intact skill.
    """
    correct, practice = everything(), everything(shares=PRACTICE)
    wishes = everything(shares=WISHES, habits=WISHED)
    return (
        Phase("skill", correct, TrainingPlan(steps=1400, batch=BATCH, peak_lr=4e-3)),
        Phase("polish", correct, TrainingPlan(steps=2600, batch=BATCH, peak_lr=2.5e-3, seed=77)),
        _habits("habits", everything(careless=True), 5),
        Phase("practice", practice, TrainingPlan(steps=1500, batch=BATCH, peak_lr=2e-3, seed=131)),
        _habits("habits again", everything(careless=True), 17),
        Phase("wishes", wishes, TrainingPlan(steps=1400, batch=BATCH, peak_lr=2e-3, seed=211)),
        _habits("habits at last", everything(careless=True), 29),
    )


def more_phases() -> tuple[Phase, ...]:
    """Tools and repositories, over weights that the first phases made."""
    plan = TrainingPlan(steps=1500, batch=BATCH, peak_lr=2.5e-3, seed=307)
    return (
        Phase("tools", with_tools(), plan),
        _habits("habits with tools", with_tools(careless=True), 41),
    )


def page_phases() -> tuple[Phase, ...]:
    """Pages, and all together, over weights that know tools.

    Many small batches: looking up comes suddenly, after hundreds of steps.
    """
    drill = TrainingPlan(steps=1000, batch=14, peak_lr=5e-3, warmup_steps=30, seed=77)
    plan = TrainingPlan(steps=1300, batch=20, peak_lr=3e-3, warmup_steps=30, seed=401)
    plan_together = TrainingPlan(1200, 32, 2.5e-3, warmup_steps=30, seed=901)
    return (
        Phase("looking up", looking_up(), drill),
        Phase("pages", with_pages(), plan),
        _habits("habits with pages", with_pages(careless=True), 53, batch=plan.batch),
        Phase("together", together(), plan_together),
        _habits("habits together", together(careless=True), 61, batch=32),
        Phase("assisting", together(shares=ASSISTING), replace(plan_together, seed=1001)),
        _habits("habits, assisting", together(careless=True, shares=ASSISTING), 71, batch=32),
    )


def skill_phases() -> tuple[Phase, ...]:
    """Phases of `tiny_skills`, from the first weights on.

    What to write comes first and alone: copying names comes suddenly, after about a thousand steps,
    and later where there is more to read. Words, of which files are full, take longer. Who leads
    mostly nods at first, or going on is never learned; then orders, or it is learned without
    anybody. Conversations come after that, and sums have to be drilled for them. Pages are last:
    where copying is sharp, what to act on is found after hundreds of steps. All that makes going on
    rarer than trying finds; a few nods bring it back.
    """
    bare, nodding = skills(bare=True), skills(orders=0.3)
    words = Mixture(((ShellSkills(bare=True, of_words=True), 0.7), (OfficeSkills(bare=True), 0.3)))
    short = TrainingPlan(steps=2200, batch=48, peak_lr=2e-3, warmup_steps=50, seed=3)
    plan = TrainingPlan(steps=1700, batch=32, peak_lr=3e-3, seed=501)
    talk = Mixture(((skills(orders=1.0), 0.55), (talking(), 0.45)))
    plan_talk = TrainingPlan(1500, BATCH, 2.5e-3, warmup_steps=50, seed=901)
    drill = replace(plan_talk, steps=1200, batch=64, peak_lr=3e-3, seed=1001)
    together = replace(plan_talk, steps=1300, seed=1101)
    sharper = TrainingPlan(1150, 48, 2e-3, warmup_steps=50, seed=1201)
    pages = Mixture(
        (
            (PageSkills(bare=True), 0.65),
            (skills(orders=1.0), 0.2),
            (drilled(sums=0.3, talk=0.7), 0.15),
        )
    )
    plan_pages = TrainingPlan(900, 32, 3e-3, warmup_steps=50, seed=1301)
    plan_all = TrainingPlan(1000, BATCH, 2e-3, warmup_steps=50, seed=1501)
    return (
        Phase("requests", bare, short),
        Phase("sessions", nodding, plan),
        Phase("sessions, sharper", nodding, replace(plan, seed=601)),
        Phase("words", words, replace(short, steps=1000, seed=701)),
        Phase(
            "sessions again", skills(orders=1.0), replace(plan, steps=1000, peak_lr=2e-3, seed=801)
        ),
        Phase("conversations", talk, plan_talk),
        Phase("sums", drilled(sums=0.8, talk=0.1), drill),
        Phase("all skills", drilled(sums=0.12, talk=0.4), together),
        Phase("all skills, sharper", drilled(sums=0.3, talk=0.3), sharper),
        Phase("pages", pages, plan_pages),
        Phase(
            "sessions with pages",
            on_pages(0.38, sums=0.12, talk=0.18, nods=(0.0, 0.0, 0.5)),
            replace(plan_pages, peak_lr=2.5e-3, seed=1401),
        ),
        Phase("all of it", on_pages(0.25, sums=0.2, talk=0.2), plan_all),
        Phase(
            "nods",
            on_pages(0.25, nods=(0.06, 0.4, 0.05), sums=0.2, talk=0.2),
            replace(plan_all, steps=150, peak_lr=1e-3, seed=1601),
        ),
    )


def skills(*, orders: float = 0.5, bare: bool = False) -> Mixture:
    """Single skills of the terminal and of the office."""
    shell, office = (kind(orders=orders, bare=bare) for kind in (ShellSkills, OfficeSkills))
    return Mixture(((shell, SHELL), (office, 1 - SHELL)))


def talking() -> Mixture:
    """Conversations, replies that follow a hint or leave it, and answers of a judge."""
    chats = ((TalkDemonstrations(habits=NO_HABITS), 0.56), (SmallTalkDemonstrations(), 0.12))
    return Mixture(
        (
            *chats,
            (LongSessions(Mixture(chats)), 0.06),
            (HintedTalk(), 0.1),
            (UnheededTalk(), 0.06),
            (JudgeDemonstrations(), 0.1),
        )
    )


def drilled(*, sums: float, talk: float) -> Mixture:
    """Sums and conversations in these shares; the rest is single skills."""
    shown = skills(orders=1.0)
    return Mixture(((SumDrills(), sums), (talking(), talk), (shown, 1 - sums - talk)))


def on_pages(
    pages: float, *, sums: float, talk: float, nods: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> Mixture:
    """Skills on pages, sums with and without pupils, and conversations in these shares; the rest is
    skills of the terminal and of the office, as often. `nods`: how often who leads only nods, in
    the terminal, in the office and on pages."""
    shell, office, page = (1 - share for share in nods)
    others = Mixture(((ShellSkills(orders=shell), 0.5), (OfficeSkills(orders=office), 0.5)))
    return Mixture(
        (
            (PageSkills(orders=page), pages),
            (SumDrills(pupils=0.5), sums),
            (talking(), talk),
            (others, 1 - pages - sums - talk),
        )
    )


def _habits(name: str, source: Source, seed: int, batch: int = BATCH) -> Phase:
    plan = TrainingPlan(steps=300, batch=batch, peak_lr=1e-3, warmup_steps=10, seed=seed)
    return Phase(name, source, plan)
