from __future__ import annotations

from pathlib import Path

import pytest

from clawrl_gym.inference.vllm.server_log import ServerLog, advice

ENGINE = "(EngineCore pid=7) ERROR 11-21 05:25:11 [core.py:906] "
SERVER = "(APIServer pid=5) INFO 11-21 05:25:05 [model.py:733] "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def log(path: Path) -> ServerLog:
    return ServerLog(path)


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(line + "\n" for line in lines)


def test_phases_are_told_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, SERVER + "Resolved architecture: Qwen3ForCausalLM")
    log = ServerLog(path)
    assert log.new_phases() == []
    write(path, SERVER + "Resolved architecture: X", SERVER + "Starting to load model /m...")
    assert log.new_phases() == ["reading the model", "loading weights"]
    assert log.new_phases() == []


def test_half_a_line_is_waited_for(path: Path, log: ServerLog) -> None:
    with path.open("a") as file:
        file.write(SERVER + "Starting vLLM ser")
    assert log.new_phases() == []
    write(path, "ver on http://127.0.0.1:1")
    assert log.new_phases() == ["opening the port"]


def test_the_last_words_are_the_cause_and_not_what_follows_from_it(
    path: Path, log: ServerLog
) -> None:
    write(
        path,
        ENGINE + "Traceback (most recent call last):",
        ENGINE + '  File "core.py", line 1, in run',
        ENGINE + "ValueError: the cause",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "nanobind: leaked 4 instances!",
    )
    assert log.last_words() == "ValueError: the cause"


def test_an_engine_that_was_killed_is_the_cause_and_not_what_the_end_leaks(
    path: Path, log: ServerLog
) -> None:
    write(
        path,
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "nanobind: leaked 514 functions!",
        ' - leaked function "create_while_op"',
        " - ... skipped remainder",
    )
    assert "its engine ended without a word" in log.last_words()


@pytest.mark.parametrize("sign", ["failed to start.", "encountered a fatal error."])
def test_the_engines_first_error_is_the_cause_whatever_a_request_and_the_end_said(
    path: Path, log: ServerLog, sign: str
) -> None:
    """Lines of vLLM 0.32's own log."""
    api = "(APIServer pid=5) ERROR 11-22 16:38:23 [async_llm.py:906] "
    write(
        path,
        SERVER + "Starting vLLM server on http://127.0.0.1:1",
        api + "Error in extracting tool call from response.",
        api + "json.decoder.JSONDecodeError: Extra data: line 1 column 2 (char 1)",
        ENGINE + f"EngineCore {sign}",
        ENGINE + "Traceback (most recent call last):",
        ENGINE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        ENGINE + "During handling of the above exception, another exception occurred:",
        ENGINE + "RuntimeError: cannot free what was not allocated",
        "(APIServer pid=5) WARNING 11-22 16:38:23 [core_client.py:817] [shutdown] MPClient: engine "
        "core exited unexpectedly; starting cleanup",
        api + "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "RuntimeError: cannot schedule new futures after shutdown",
    )
    assert log.last_words().startswith("torch.OutOfMemoryError: CUDA out of memory")


def test_an_engine_that_was_killed_did_not_end_with_a_requests_error(
    path: Path, log: ServerLog
) -> None:
    api = "(APIServer pid=5) ERROR 11-22 16:38:23 [async_llm.py:906] "
    write(
        path,
        SERVER + "Starting vLLM server on http://127.0.0.1:1",
        api + "json.decoder.JSONDecodeError: Extra data: line 1 column 2 (char 1)",
        "(APIServer pid=5) WARNING 11-22 16:38:23 [core_client.py:817] [shutdown] MPClient: engine "
        "core exited unexpectedly; starting cleanup",
        "RuntimeError: cannot schedule new futures after shutdown",
    )
    assert "its engine ended without a word" in log.last_words()


def test_a_server_that_ends_by_itself_says_its_own_error(path: Path, log: ServerLog) -> None:
    write(
        path,
        SERVER + "Starting vLLM server on http://127.0.0.1:1",
        "(APIServer pid=5) ERROR 11-22 16:38:23 [serving.py:1] ValueError: of a request",
        "(APIServer pid=5) Traceback (most recent call last):",
        "(APIServer pid=5) OSError: [Errno 98] Address already in use",
        SERVER + "[shutdown] API server: shutdown triggered",
        "RuntimeError: Event loop is closed",
    )
    assert log.last_words() == "OSError: [Errno 98] Address already in use"


def test_what_the_interpreters_end_prints_is_not_quoted(path: Path, log: ServerLog) -> None:
    write(
        path, SERVER + "Reloading weights", "nanobind: leaked 2 types!", " - ... skipped remainder"
    )
    assert log.last_words() == "Reloading weights"


def test_a_validation_errors_reason_is_told(path: Path, log: ServerLog) -> None:
    write(
        path,
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, the reason [type=value_error]",
    )
    assert log.last_words().startswith("Value error, the reason")


def test_without_an_error_the_last_lines_are_told(path: Path, log: ServerLog) -> None:
    assert log.last_words() == "it said nothing"
    write(path, SERVER + "one", "two", "", "three", "four")
    assert log.last_words() == "two | three | four"


def test_an_earlier_launch_has_no_say(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, "ValueError: of yesterday")
    log = ServerLog(path)
    write(path, "all is well")
    assert log.last_words() == "all is well"


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("ValueError: To serve at least one request with ... KV cache memory", "max_model_len"),
        ("ValueError: Free memory on device cuda:0 (1/80 GiB) is less", "gpu_memory_utilization"),
        ("OSError: [Errno 98] Address already in use", "policy.port"),
    ],
)
def test_failures_that_configuration_causes_come_with_their_cure(words: str, cure: str) -> None:
    assert cure in (advice(words) or "")


def test_other_failures_get_no_made_up_advice() -> None:
    assert advice("TypeError: unexpected argument") is None
