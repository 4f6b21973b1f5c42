"""Libraries that people call models with, unchanged, in front of the gateway; and their table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawrl_gym.core.pictures import text_of
from tests.gateway.sdk_clients import (
    ADDING,
    CODE_AGENT,
    EXPECTED,
    LIBRARIES,
    PLACE,
    SCENARIOS,
    SUMS,
    Library,
    Played,
    play,
)
from tests.gateway.sdk_table import on_page, table

pytestmark = [pytest.mark.sdks, pytest.mark.slow, pytest.mark.timeout(600)]
EACH = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


@pytest.fixture(scope="module")
def plays() -> dict[Library, Played]:
    """What has been played so far."""
    return {}


async def played(plays: dict[Library, Played], library: Library, folder: Path) -> Played:
    if library not in plays:
        plays[library] = await play(library, folder)
    return plays[library]


@EACH
async def test_it_gets_what_it_asks_for(
    library: Library, plays: dict[Library, Played], tmp_path: Path
) -> None:
    found = await played(plays, library, tmp_path)
    for scenario in SCENARIOS:
        assert found.works(scenario), (found.results[scenario], EXPECTED[scenario])
    assert found.dialects == {library.dialect}
    assert found.form is not None  # else the object is the policy's own
    if found.form.kind == "json":
        assert found.form.value["properties"].keys() == PLACE.keys()


@EACH
async def test_its_conversations_are_recorded_as_they_were(
    library: Library, plays: dict[Library, Played], tmp_path: Path
) -> None:
    found = await played(plays, library, tmp_path)
    said = [[turn.kind for turn in talk.turns] for talk in found.conversations]
    assert said == [["main"], ["main"], ["main"] * 2, ["main"] * 2, ["main"]]  # as SCENARIOS
    chat, stream, tools, streamed_tools, structured = found.conversations
    assert text_of(chat.turns[0].reply) == EXPECTED["chat"]["text"]
    assert text_of(stream.turns[0].reply) == EXPECTED["stream"]["text"]
    assert [talk.next_states for talk in (chat, stream, structured)] == [[None]] * 3
    for talk in (tools, streamed_tools):
        calling, answering = talk.turns
        functions = [call["function"] for call in calling.reply["tool_calls"]]
        assert functions == [{"name": "add", "arguments": json.dumps(one)} for one in SUMS]
        before = calling.prompt_ids_T + calling.sampled_ids_T
        assert answering.prompt_ids_T[: len(before)] == before
        results = [text_of(message) for message in talk.next_states[0] or []]
        assert "\n".join(results).removeprefix("Observation:\n") == "5\n9"
        assert talk.next_states[1] is None


async def test_the_steps_of_an_agent_that_writes_code_are_one_conversation(tmp_path: Path) -> None:
    found = await play(CODE_AGENT, tmp_path)
    for at, scenario in ((2, "tools"), (3, "streamed_tools")):
        assert found.works(scenario), found.results[scenario]
        writing, ending = found.conversations[at].turns
        assert text_of(writing.reply) == ADDING
        before = writing.prompt_ids_T + writing.sampled_ids_T
        assert ending.prompt_ids_T[: len(before)] == before
        (result,) = found.conversations[at].next_states[0] or []
        assert text_of(result).startswith("Observation:\nExecution logs:\n5\n9\n")
    assert len(found.conversations) == len(SCENARIOS)


@EACH
async def test_it_asks_nobody_else(
    library: Library, plays: dict[Library, Played], tmp_path: Path
) -> None:
    assert (await played(plays, library, tmp_path)).strangers == []


async def test_the_page_shows_what_was_found(plays: dict[Library, Played], tmp_path: Path) -> None:
    found = {
        library: await played(plays, library, tmp_path / str(at))
        for at, library in enumerate(LIBRARIES)
    }
    assert on_page() == table(found), "PYTHONPATH=. python -m tests.gateway.sdk_table writes it"
