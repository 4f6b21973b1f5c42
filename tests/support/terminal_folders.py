"""Task folders for tests, written from their files."""

from clawrl_gym.envs.terminal.folders.folder_tasks import FolderTasks
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures

REWARD = "echo $((! $?)) > /logs/verifier/reward.txt\n"
"""The end of a test.sh: 1 when the command before succeeded."""

STEPS = {
    "task.toml": "[[steps]]\nname = 'one'\n[[steps]]\nname = 'two'\n",
    "environment/Dockerfile": "FROM host\nWORKDIR /app\n",
    "steps/one/instruction.md": "Write 1 to a.",
    "steps/one/tests/test.sh": f'[ "$(cat a)" = 1 ]\n{REWARD}',
    "steps/one/solution/solve.sh": "echo 1 > a",
    "steps/two/instruction.md": "Append seed.txt to a.",
    "steps/two/workdir/seed.txt": "2\n",
    "steps/two/workdir/setup.sh": "echo ready > ready",
    "steps/two/tests/test.sh": f'[ "$(paste -sd, a)" = 1,2 ] && [ -f ready ]\n{REWARD}',
    "steps/two/solution/solve.sh": "cat seed.txt >> a",
}
APART = {
    "task.toml": "artifacts = ['/app/out']\n[verifier]\nenvironment_mode = 'separate'\n",
    "instruction.md": "Write 42 to /app/out.",
    "environment/Dockerfile": "FROM host\nWORKDIR /app\n",
    "tests/Dockerfile": "FROM host\nWORKDIR /check\nRUN echo 42 > /check/expected\n",
    "tests/test.sh": f"cmp /check/expected /app/out\n{REWARD}",
    "solution/solve.sh": "echo 42 > /app/out",
}
HELLO = {
    "task.yaml": "instruction: Write hello to hello.txt.\n",
    "Dockerfile": "FROM host\nWORKDIR /app\n",
    "run-tests.sh": "python3 -m pytest $TEST_DIR/test_outputs.py -rA\n",
    "tests/test_outputs.py": (
        "from pathlib import Path\n\n\ndef test_hello():\n"
        "    assert Path('/app/hello.txt').read_text() == 'hello\\n'\n"
    ),
    "solution.sh": "echo hello > hello.txt\n",
}


def write(root, files, **changes):
    """A task folder at `root`; a change of None leaves a file out."""
    for name, text in {**files, **changes}.items():
        if text is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return root


def load(root, files, bases=None, **changes):
    """The task of a folder that is written first."""
    folder = write(root / "task", files, **changes)
    return FolderTasks.open(folder, bases or SandboxFeatures()).load("task")
