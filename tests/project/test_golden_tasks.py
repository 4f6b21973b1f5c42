import pytest

from tests.project.golden_tasks import SOURCES, digests, recorded


@pytest.mark.parametrize("name", SOURCES)
def test_generated_tasks_are_bit_for_bit_what_they_were(name):
    expected = recorded(name)
    assert len(expected) > 30
    assert digests(name) == expected
