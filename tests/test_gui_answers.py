"""Answers are compared as values: written in any way, and no other value with them."""

import pytest

from clawrl_gym.envs.gui.answers import same_answer

RIGHT = [
    ("12", "12 items"),
    ("12", "The answer is 12."),
    ("2024-03-05", "March 5, 2024"),
    ("1200", "$1,200.00"),
    ("Yes", "yes."),
    ("12", "There are 12 items in the cart."),
    ("12", "Answer: 12"),
    ("12", "'12'"),
    ("12", "**12**"),
    ("March 5, 2024", "2024-03-05"),
    ("2024-03-05", "5 March 2024"),
    ("2024-03-05", "Tuesday, March 5th, 2024"),
    ("2024-03-05", "It is Mar 5, 2024"),
    ("2024-03-25", "25/03/2024"),
    ("2024-03-25", "03/25/2024"),
    ("a, b, c", "a; b; c"),
    ("a, b, c", "a\nb\nc"),
    ("a, b, c", "- a\n- b\n- c"),
    ("a, b, c", "a, b and c"),
    ("a, b, c", '["a", "b", "c"]'),
    ("5 kg", "5kg"),
    ("5 kg", "5"),
    ("1200", "1,200"),
    ("14:30", "2:30 PM"),
    ("09:00", "9:00"),
    ("9:00", "9 am"),
    ("Paris", "The answer is Paris."),
    ("Paris", '"Paris"'),
    ("Paris", "It is 'Paris'."),
    ("$1,200.00", "1200 USD"),
    ("1,200", "1200.0"),
    ("-5", "-5"),
    ("-5", "\u22125"),
    ("3.5", "3.50"),
    ("Yes", "Yes, it is."),
    ("Paris", "Answer: Paris"),
    ("12", "12 people"),
    ("12", "I found 12 items."),
    ("12", "The total number of items is 12."),
    ("10, 20", "10 and 20"),
    ("1,200, 3", "1200; 3"),
    ("25 %", "25%"),
    ("25%", "25 percent"),
    ("25%", "25"),
    ("10:00", "It ends at 10:00."),
    ("7", "07"),
    ("", "."),
    ("12", "12!"),
    ("a, b", "1. a\n2. b"),
]
WRONG = [
    ("12", "12 or 13"),
    ("12", "not 12"),
    ("12", "12, 13"),
    ("12", "112"),
    ("12", "-12"),
    ("12", "12 and 13"),
    ("12", "12.5"),
    ("12", "12/13"),
    ("12", "12-13"),
    ("12", "about 12"),
    ("12", "more than 12"),
    ("12", "12%"),
    ("12", "12k"),
    ("12", "12 thousand"),
    ("12", "1,2"),
    ("12", "isn't 12"),
    ("12", "12 minus 1"),
    ("12", "half of 12"),
    ("12", "twelve or 12"),
    ("12", "12?"),
    ("12", "I doubt it is 12"),
    ("12", "The wrong answer is 12"),
    ("12", "12 dozens"),
    ("12", "v12"),
    ("12", "12th"),
    ("12", "10 11 12"),
    ("2024-03-05", "03/05/2024"),
    ("2024-03-05", "05/03/2024"),
    ("2024-03-05", "2024-05-03"),
    ("2024-03-05", "March 5"),
    ("2024-03-05", "May 3, 2024"),
    ("2024-03-05", "Monday, March 5, 2024"),
    ("2024-03-05", "March 5, 2025"),
    ("03/05/2024", "05/03/2024"),
    ("2024-03-05", "2024-03-05 or 2024-03-06"),
    ("a, b, c", "a, b"),
    ("a, b, c", "a, b, c, d"),
    ("a, b", "a, c"),
    ("a, b", "b, a"),
    ("Paris", "Paris, France"),
    ("Paris", "Paris or London"),
    ("Paris", "not Paris"),
    ("Paris", "Parisian"),
    ("Paris", "London is Paris"),
    ("14:30", "2:30"),
    ("14:30", "14:31"),
    ("5 kg", "5 g"),
    ("$12", "€12"),
    ("5", "-5"),
    ("-5", "5"),
    ("1200", "1.200"),
    ("1200", "12,00"),
    ("Yes", "yes and no"),
    ("Yes", "no"),
    ("12", ""),
    ("12", "nan"),
    ("7", "seven"),
    ("12", "up to 12"),
    ("12", "12 + 1"),
    ("12", "~12"),
    ("12", "<12"),
    ("12", "12^2"),
    ("12", "12*2"),
    ("12", "1e12"),
    ("12", "12e3"),
    ("12", "12 (or 13)"),
    ("12", "$12 million"),
    ("12", "12 items, 3 pens"),
    ("12", "one of 12"),
    ("12", "next 12"),
    ("10, 20", "20, 10"),
    ("10, 20", "10"),
    ("Paris", ""),
    ("a", "a b"),
    ("open", "closed"),
    ("open", "open, closed"),
    ("open", "not open"),
    ("2024-03-05", "5"),
    ("25%", "25 $"),
    ("March 5", "5 May"),
    ("12", "12 12 13"),
    ("12", "2*6=12"),
]
STOCK = "How many unread mails has Alice in the archive, not counting those above 30?"
STATUS = "What is the status of ticket 97: open or closed?"


@pytest.mark.parametrize(("expected", "answer"), RIGHT)
def test_a_right_answer_may_be_written_in_many_ways(expected, answer):
    assert same_answer(expected, answer)


@pytest.mark.parametrize(("expected", "answer"), WRONG)
def test_another_value_is_no_answer_nor_one_beside_the_right_one(expected, answer):
    assert not same_answer(expected, answer)


@pytest.mark.parametrize(("expected", "answer", "question"), [
    ("12", "Alice has 12 unread mails in the archive.", STOCK),
    ("12", "In the archive Alice has 12 unread mails", STOCK),
    ("12", "12 unread mails", STOCK),
    ("open", "The status is open.", STATUS),
    ("open", "Status: open", STATUS),
])  # fmt: skip
def test_words_of_the_question_may_stand_around_an_answer(expected, answer, question):
    assert same_answer(expected, answer, question)
    assert not same_answer(expected, answer)


@pytest.mark.parametrize(("expected", "answer", "question"), [
    ("12", "Alice has not 12 unread mails in the archive.", STOCK),
    ("12", "Alice has above 12 unread mails", STOCK),
    ("12", "12, not counting those above 30", STOCK),
    ("12", "Bob has 12 unread mails", STOCK),
    ("open", "The status is not open.", STATUS),
    ("open", "The status is open or closed.", STATUS),
    ("open", "open closed", STATUS),
    ("open", "The status is open, closed", STATUS),
    ("open", "closed is the status", STATUS),
])  # fmt: skip
def test_words_that_change_a_value_count_even_where_the_question_has_them(
    expected, answer, question
):
    assert not same_answer(expected, answer, question)


def test_no_answer_is_none():
    assert not same_answer("12", None)
    assert not same_answer("", None)
