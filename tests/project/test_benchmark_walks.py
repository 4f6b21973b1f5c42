import json

import pytest

from tests.project.benchmark_walks import FILE, WALKS


@pytest.mark.parametrize("domain", WALKS)
def test_the_tools_of_a_benchmark_do_what_they_did(domain: str) -> None:
    assert WALKS[domain]() == json.loads(FILE.read_text())[domain]
