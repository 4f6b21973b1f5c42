"""What conversations are about: who comes, what is bought, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scene:
    """One occasion."""

    event: str
    people: str
    """Plural."""
    things: tuple[tuple[str, str], ...]
    """One and several of each."""


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
"""By split."""

PEOPLE = (
    "Tom", "Mia", "Sam", "Ana", "Leo", "Eva", "Max", "Zoe", "Ben", "Ida", "Kim", "Lea", "Jon",
    "Tim", "Eli", "Nia", "Roy", "Uma", "Gus", "Ines",
)  # fmt: skip
"""Who is spoken of; nobody who speaks is called so."""
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Diet:
    """What somebody does not eat or drink."""

    told: str
    reasons: str
    """A pattern."""
    bad: tuple[str, ...]
    good: tuple[str, ...]


DIETS = {
    "vegetarian": Diet(
        "is a vegetarian", r"meat|fish|chicken|ham|tuna|beef|animal",
        ("chicken curry", "tuna salad", "ham pizza", "beef stew", "fish soup"),
        ("lentil soup", "tomato pasta", "mushroom rice", "bean chili"),
    ),
    "nuts": Diet(
        "cannot have nuts", r"nuts?|peanuts?|walnuts?|almonds?|allergens?",
        ("walnut cake", "peanut cookies", "almond tart", "hazelnut cream"),
        ("fruit salad", "lemon ice", "plain bread", "rice pudding"),
    ),
    "milk": Diet(
        "cannot have milk", r"milk|dairy|cheese|cream|lactose|yogh?urt",
        ("cheese toast", "milk shake", "cream soup", "yogurt bowl"),
        ("apple juice", "olive bread", "rice salad", "grilled corn"),
    ),
    "alcohol": Diet(
        "does not drink alcohol", r"alcohol|alcoholic",
        ("red wine", "wheat beer", "egg punch", "cider"),
        ("mint tea", "lemonade", "apple juice", "mineral water"),
    ),
}  # fmt: skip
