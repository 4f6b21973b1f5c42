"""Topics of conversations: who comes, what is bought, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scene:
    """One occasion."""

    event: str
    people: str
    """Plural."""
    things: tuple[tuple[str, str], ...]
    """Singular and plural of each thing."""


def _things(*words: str) -> tuple[tuple[str, str], ...]:
    return tuple((word, f"{word}s") for word in words)


SCENES = {
    "train": (
        Scene("birthday party", "guests", _things("balloon", "cupcake", "candle", "paper hat")),
        Scene("class trip", "pupils", _things("sandwich bag", "ticket", "map", "apple juice")),
        Scene("office move", "colleagues", _things("carton", "label", "lamp", "key ring")),
        Scene("garden day", "neighbours", _things("seedling", "flower pot", "shovel", "rake")),
        Scene("football camp", "players", _things("shirt", "ball", "whistle", "towel")),
        Scene("camping weekend", "campers", _things("torch light", "tent", "mat", "rope")),
        Scene("cooking course", "cooks", _things("apron", "bowl", "spoon", "lemon")),
        Scene("wedding lunch", "friends", _things("rose", "glass jar", "name card", "ribbon")),
    ),
    "heldout": (
        Scene(
            "choir concert", "singers", _things("folder", "scarf pin", "music stand", "programme")
        ),
        Scene("book fair", "visitors", _things("bookmark", "poster", "mug", "cloth bag")),
        Scene("quiz night", "teams", _things("pencil", "bell", "answer sheet", "medal")),
    ),
}
"""Scenes by split."""

PEOPLE = (
    "Tom", "Mia", "Sam", "Ana", "Leo", "Eva", "Max", "Zoe", "Ben", "Ida", "Kim", "Lea", "Jon",
    "Tim", "Eli", "Nia", "Roy", "Uma", "Gus", "Ines",
)  # fmt: skip
"""People who are spoken of; nobody who speaks has one of these names."""
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Diet:
    """Food and drink that somebody avoids, in whatever form."""

    told: str
    reasons: str
    """A pattern."""
    bad: tuple[str, ...]
    """Food that is bad for people on this diet, and for nobody else."""


DIETS = {
    "vegetarian": Diet(
        "is a vegetarian", r"meat|seafood|fish|chicken|ham|tuna|beef|salmon|mussels|animal",
        ("tuna salad", "beef stew", "grilled fish", "grilled chicken"),
    ),
    "nuts": Diet(
        "cannot have nuts",
        r"(?:pea|wal|hazel)?nuts?|almonds?|cashews?|allergens?",
        ("walnut bread", "peanut noodles", "salted almonds", "roasted cashews"),
    ),
    "milk": Diet(
        "cannot have milk", r"milk|dairy|cheese|cream|lactose|yogh?urt",
        ("cheese toast", "milk shake", "yogurt bowl", "vanilla cream"),
    ),
    "alcohol": Diet(
        "cannot have any alcohol", r"alcohol|alcoholic|wine|beer|rum|sherry|brandy|liqueur",
        ("red wine", "wheat beer", "rum punch", "cider"),
    ),
}  # fmt: skip
BAD_FOR_BOTH = {
    frozenset(("vegetarian", "nuts")): ("chicken with cashews", "beef in peanut sauce"),
    frozenset(("vegetarian", "milk")): ("ham and cheese pie", "salmon in cream sauce"),
    frozenset(("vegetarian", "alcohol")): ("mussels in sherry", "fish in beer batter"),
    frozenset(("nuts", "milk")): ("hazelnut ice cream", "almond cheesecake"),
    frozenset(("nuts", "alcohol")): ("walnut liqueur", "almond brandy"),
    frozenset(("milk", "alcohol")): ("cream liqueur", "rum with hot milk"),
}
"""Food that neither of two diets allows, and everybody else can have."""


def is_bad(dish: str, diet: str) -> bool:
    """Whether somebody with this diet cannot have it."""
    both = (dishes for diets, dishes in BAD_FOR_BOTH.items() if diet in diets)
    return dish in DIETS[diet].bad or any(dish in dishes for dishes in both)
