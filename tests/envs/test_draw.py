from clawrl_gym.envs.draw import EXTENSIONS, STEMS, WORDS, Draw, text


def test_draws_are_the_same_everywhere_and_for_ever():
    draw = Draw("copy/train/0/0")
    assert [draw.below(1000) for _ in range(6)] == [795, 279, 968, 487, 951, 565]


def test_different_seeds_give_different_draws():
    assert Draw("a").some(WORDS, 5) != Draw("b").some(WORDS, 5)


def test_between_reaches_both_ends_and_nothing_else():
    draw = Draw("ends")
    assert {draw.between(2, 4) for _ in range(200)} == {2, 3, 4}


def test_some_draws_each_choice_at_most_once():
    drawn = Draw("some").some(WORDS, len(WORDS))
    assert sorted(drawn) == sorted(WORDS)


def test_file_names_of_one_draw_have_different_stems():
    for n in range(100):
        stems = [name.partition(".")[0] for name in Draw(str(n)).names(4)]
        assert len(set(stems)) == 4


def test_no_word_is_part_of_another_or_of_a_name():
    everything = (*STEMS, *WORDS, *EXTENSIONS)
    assert len(set(everything)) == len(everything)
    for word in WORDS:
        assert [other for other in everything if word in other] == [word]


def test_words_sort_alike_in_every_locale():
    assert all(word.isascii() and word.isalpha() and word.islower() for word in (*STEMS, *WORDS))


def test_text_ends_each_line():
    assert text(["a", "b c"]) == b"a\nb c\n"
    assert text([]) == b""
