"""What an id of a generated task says, and which texts are none."""

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    TaskId,
    TaskIds,
    composition_split,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)

FAMILIES = ("copy", "move-all")
TRAIN = TaskIds("train", FAMILIES, "x-")
HELDOUT = TaskIds("heldout", FAMILIES, "x-")
NO_IDS = (
    "x-copy-train-100000", "x-copy-train-1000000", "x-copy-train-00001", "x-copy-train-00001a",
    "x-copy-train-\u0661\u0661\u0661\u0661\u0661\u0661", "copy-train-000001", "y-copy-train-000001",
    "x-drop-train-000001", "x-copy-test-000001", "x-copy-000001", "x-copy-train--00001",
    "x--train-000001", "x-copy-train-000001 ", "x-copy-train", "", "x-", "x-copy-heldout-001000",
)  # fmt: skip


def test_ids_go_through_the_families_in_turn():
    assert len(TRAIN) == 200_000
    assert len(HELDOUT) == 2_000
    assert TRAIN[:3] == ["x-copy-train-000000", "x-move-all-train-000000", "x-copy-train-000001"]
    assert TRAIN[-1] == TRAIN[199_999] == "x-move-all-train-099999"
    assert TRAIN[-200_000] == TRAIN[0]
    assert HELDOUT[-2:] == ["x-copy-heldout-000999", "x-move-all-heldout-000999"]
    assert HELDOUT[5:2:-2] == [HELDOUT[5], HELDOUT[3]]
    for index in (200_000, -200_001):
        with pytest.raises(IndexError, match=f"got task index {index}, expected less than 200000"):
            TRAIN[index]


def test_an_id_is_in_its_own_split_alone():
    for index in (0, 1, 777, 1_999):
        assert HELDOUT[index] in HELDOUT
        assert HELDOUT[index] not in TRAIN
        assert TRAIN[index] in TRAIN
        assert TRAIN[index] not in HELDOUT
    assert "x-copy-heldout-000999" in HELDOUT
    assert "x-copy-train-099999" in TRAIN


@pytest.mark.parametrize("text", [*NO_IDS, 3, None])
def test_what_is_no_id_is_in_no_split_and_says_nothing(text):
    assert text not in TRAIN
    assert text not in HELDOUT
    with pytest.raises(TaskError, match=r"expected x-FAMILY-SPLIT-NUMBER .* 'x-copy-train-000123'"):
        parse_id(text, FAMILIES, "x-")


def test_an_id_says_family_split_and_number():
    assert parse_id("x-move-all-train-099999", FAMILIES, "x-") == TaskId("move-all", "train", 99999)
    assert parse_id("copy-heldout-000999", FAMILIES) == TaskId("copy", "heldout", 999)
    with pytest.raises(TaskError, match="six digits below 1000, such as"):
        parse_id("copy-heldout-001000", FAMILIES)


def test_a_family_that_is_held_out_as_a_whole_has_no_training_tasks():
    assert parse_id("copy-heldout-000007", FAMILIES, "", {"copy"}).number == 7
    assert parse_id("move-all-train-000007", FAMILIES, "", {"copy"}).number == 7
    with pytest.raises(TaskError, match="held out as a whole: expected 'copy-heldout-000234'"):
        parse_id("copy-train-001234", FAMILIES, "", {"copy"})
    tasks = GeneratedTasks(FAMILIES, str.upper, "x-", frozenset({"copy"}))
    assert tasks.ids("train").families == ("move-all",)
    assert tasks.ids("heldout").families == FAMILIES
    assert tasks.load("x-a") == "X-A"


def test_a_refusal_names_thirty_families_at_most():
    names = tuple(f"f{number}" for number in range(30))
    with pytest.raises(TaskError, match=r"f28, f29$"):
        parse_id("x", names)
    with pytest.raises(TaskError, match=r"f28, f29, \.\.\.$"):
        parse_id("x", (*names, "f30"))


def test_families_are_chosen_by_name():
    assert select_families(("b", "a"), None) == ("a", "b")
    assert select_families(("b", "a"), ["b", "b"]) == ("b",)
    for requested in ([], ["c"], ["a", "c"]):
        with pytest.raises(ConfigError, match="expected some of: b, a"):
            select_families(("b", "a"), requested)


def test_about_one_content_in_five_is_held_out_and_stays_so():
    splits = [split_of_content(f"content {number}") for number in range(40)]
    assert "".join(split[0] for split in splits) == ("ttttttttttthttthttttttttttthhttttttttttt")
    assert split_of_content("\udcff") in ("train", "heldout")


def test_a_content_of_a_split_is_the_first_that_belongs_to_it():
    seen = []

    def split_of(content):
        seen.append(content)
        return "heldout" if len(seen) == 3 else "train"

    assert draw_content("heldout", "s", lambda draw: draw.below(1000), split_of) == seen[2]
    assert len(seen) == 3
    never = "'s' never drew a content of the split 'heldout'"
    with pytest.raises(TaskError, match=never):
        draw_content("heldout", "s", lambda _: 0, lambda _: "train")


def test_no_pair_is_trained_on_whose_other_order_is_held_out() -> None:
    names = [f"skill{number}" for number in range(40)]
    pairs = [(a, b) for a in names for b in names if a != b]
    splits = {pair: composition_split(pair) for pair in pairs}
    assert all(splits[b, a] != "train" for (a, b), split in splits.items() if split == "heldout")
    held_out = sum(split == "heldout" for split in splits.values())
    left_out = sum(split is None for split in splits.values())
    assert 0.15 < held_out / len(pairs) < 0.25
    assert 0.1 < left_out / len(pairs) < 0.2
    assert {composition_split(["a", "b", str(n)]) for n in range(50)} == {"train", "heldout"}
