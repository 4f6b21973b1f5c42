"""The mutants that `tools/mutants.py` makes of a file."""

import ast
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tools.mutants import Mutant, Trial, mutants_of, read, sample, trials_of

SOURCE = '''"""Words."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

LIMIT = 3
WAIT_S = 3.0


def grow(size: int, by: int = 2, timeout_s: float = 9.0) -> int:
    """Grown."""
    if size > LIMIT and not by:
        raise ValueError(f"größe {size + 1}")
    notify("ü", size - by)
    return size + by
'''


def changed() -> set[str]:
    return {f"{one.original} -> {one.replacement}" for one in mutants_of("a.py", SOURCE)}


def test_what_decides_computes_returns_and_acts_is_changed():
    assert changed() == {
        "3 -> 7",
        "2 -> 5",
        "size > LIMIT and not by -> not (size > LIMIT and not by)",
        "size > LIMIT and not by -> (size > LIMIT) or (not by)",
        "size > LIMIT -> size >= LIMIT",
        'raise ValueError(f"größe {size + 1}") -> pass',
        'notify("ü", size - by) -> pass',
        "size - by -> size + by",
        "size + by -> None",
        "size + by -> size - by",
    }


def test_a_mutant_is_the_file_with_one_change():
    for mutant in mutants_of("a.py", SOURCE):
        text = mutant.applied(SOURCE)
        ast.parse(text)
        assert text.replace(mutant.replacement, mutant.original, 1) == SOURCE or (
            len(text) == len(SOURCE) + len(mutant.replacement) - len(mutant.original)
        )


def test_positions_are_bytes_where_a_line_has_other_letters():
    mutant = next(one for one in mutants_of("a.py", SOURCE) if one.original == "size - by")
    assert 'notify("ü", size + by)' in mutant.applied(SOURCE)


def test_a_sample_is_the_same_for_its_seed_and_has_every_package():
    chosen = sample(60, 5)
    assert chosen == sample(60, 5) != sample(60, 6)
    assert len(chosen) == len(set(chosen)) == 60
    packages = {mutant.package for mutant in chosen}
    assert {"envs", "agents", "trainers", "clawrl_gym/store", "clawrl_gym/gateway"} <= packages


def test_a_mutants_package_is_its_room():
    def package(path: str) -> str:
        return Mutant(path, (1, 0, 1, 1), "1", "2").package

    assert package("clawrl_gym/store/turns.py") == "clawrl_gym/store"
    assert package("clawrl_gym/train.py") == "clawrl_gym"
    assert package("envs/gui/env.py") == "envs"


def test_what_follows_cover_is_for_pytest_and_other_commands_refuse_what_they_do_not_know(capsys):
    options, for_pytest = read(["cover", "-n", "2", "-m", "not vllm", "tests/test_x.py"])
    assert (options.command, for_pytest) == (
        "cover",
        ["-n", "2", "-m", "not vllm", "tests/test_x.py"],
    )
    assert read(["run", "--count", "9"])[0].count == 9
    with pytest.raises(SystemExit):
        read(["run", "-n", "2"])
    assert "unknown arguments: -n 2" in capsys.readouterr().err


def test_of_several_trials_of_a_mutant_the_last_one_counts(tmp_path: Path):
    log = tmp_path / "trials.jsonl"
    first, second = mutants_of("a.py", SOURCE)[:2]
    survived, killed = Trial(first, False, 3, ""), Trial(first, True, 9, "FAILED tests/test_a.py")
    other = Trial(second, False, 1, "")
    log.write_text("".join(json.dumps(asdict(one)) + "\n" for one in (survived, other, killed)))
    assert trials_of(log) == [killed, other]
    assert trials_of(tmp_path / "none.jsonl") == []
