import subprocess

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.folders.dockerfile import CopyStep, RunStep, in_folder, parse


def shell(command):
    """What a step's command prints."""
    return subprocess.run(
        ["/bin/bash", "-c", command], capture_output=True, text=True, check=True
    ).stdout


def test_a_whole_file_is_read_in_order():
    image = parse(
        "# syntax comment\nFROM host\n\nWORKDIR /app\nENV A=1 B='two words'\n"
        'COPY a.txt b/ ./\nRUN make\nWORKDIR sub\nexpose 80\nCMD ["bash"]\n',
        "D",
    )
    assert (image.base, image.workdir) == ("host", "/app/sub")
    assert image.env == {"A": "1", "B": "two words"}
    assert [type(step) for step in image.steps] == [RunStep, CopyStep, RunStep, RunStep]
    assert image.steps[1] == CopyStep(6, ("a.txt", "b/"), "/app", into_folder=True)


def command_of(step):
    assert isinstance(step, RunStep)
    return step.command


def test_lines_are_continued_over_comments_and_empty_lines():
    image = parse("FROM host\nRUN echo a \\\n  # why\n\n  && echo b\nRUN echo c", "D")
    assert [shell(command_of(step)) for step in image.steps] == ["a\nb\n", "c\n"]


def test_a_run_step_has_its_own_directory_and_variables():
    image = parse('FROM host\nWORKDIR /\nENV X="it\'s"\nRUN echo "$X" $PWD', "D")
    command = command_of(image.steps[-1])
    assert shell(f"cd /tmp; X=mine; {command}; echo $X $PWD") == "it's /\nmine /tmp\n"


def test_the_exec_form_is_run_word_by_word():
    image = parse('FROM host\nRUN ["printf", "%s|", "a b", "$HOME"]', "D")
    assert shell(command_of(image.steps[0])) == "a b|$HOME|"


def test_a_failing_run_step_fails():
    image = parse("FROM host\nRUN false", "D")
    with pytest.raises(subprocess.CalledProcessError):
        shell(command_of(image.steps[0]))


def test_earlier_variables_are_put_in():
    image = parse("FROM host\nENV ROOT=/srv\nENV SUB $ROOT/x\nWORKDIR ${SUB}\nCOPY a $ROOT/", "D")
    assert image.env["SUB"] == "/srv/x"
    assert image.workdir == "/srv/x"
    assert image.steps[-1] == CopyStep(5, ("a",), "/srv", into_folder=True)


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        ("COPY a b", CopyStep(3, ("a",), "/app/b", into_folder=False)),
        ("COPY a /b/", CopyStep(3, ("a",), "/b", into_folder=True)),
        ("COPY a .", CopyStep(3, ("a",), "/app", into_folder=True)),
        ("COPY a ../../../b", CopyStep(3, ("a",), "/b", into_folder=False)),
        ('COPY ["a b", "c"]', CopyStep(3, ("a b",), "/app/c", into_folder=False)),
    ],
)
def test_a_copy_target_is_absolute(copy, expected):
    assert parse(f"FROM host\nWORKDIR /app\n{copy}", "D").steps[-1] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "D: got no FROM"),
        ("RUN x", "D, line 1: got RUN, expected FROM first"),
        ("FROM a\nFROM b", "line 2: got FROM b, expected one stage"),
        ("FROM a AS b", "expected one stage"),
        ("FROM --platform=x a", "expected one stage"),
        ("FROM host\nADD a b", "line 2: got ADD.*Docker sandbox"),
        ("FROM host\nARG X", "got ARG"),
        ("FROM host\nUSER me", "got USER"),
        ("FROM host\nCOPY --from=a b c", "no flags"),
        ("FROM host\nCOPY a", "expected sources and a target"),
        ("FROM host\nCOPY 'a b", "No closing quotation"),
        ("FROM host\nRUN --mount=type=cache x", "expected a command without flags"),
        ("FROM host\nRUN <<EOF\nx\nEOF", "here-documents"),
        ("FROM host\nENV 1A=2", "variable name '1A'"),
        ("FROM host\nENV A=1 B", "expected NAME=value"),
        ("FROM host\nWORKDIR a b", "expected one folder"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_its_line(text, message):
    with pytest.raises(TaskError, match=message):
        parse(text, "D")


def test_a_command_in_a_folder_that_is_missing_fails():
    with pytest.raises(subprocess.CalledProcessError):
        shell(in_folder("echo ran", "/no/such/folder", {}))
