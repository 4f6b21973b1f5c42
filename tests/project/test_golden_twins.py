import json

import pytest

from tests.project.golden_twins import FILE, GROUPS, hashes


@pytest.mark.parametrize("group", GROUPS)
def test_twins_and_bugs_are_made_as_they_were(group: str) -> None:
    assert hashes(group) == json.loads(FILE.read_text())[group]
