"""Stands in for `clawrl_gym.train` in tests of the bench: measures that follow from the command.

FAKE_TRAIN names a JSON file with what each run shall do: {"RECIPE SEED": "fail" | "die" | "wait"};
whoever dies or waits does so once it has logged an update.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

UPDATES = (4, 8, 16)
"""Those that are logged; held-out tasks are measured after all but the last."""
GAINS = {"personal_binary": 0.02, "personal_hybrid": 0.05}
"""In liked first replies by an update; 0.01 for others."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    if "resume" in given:
        folder = Path(given["resume"])
        given = json.loads((folder / "config.yaml").read_text()) | {"resumed": "yes"}
    else:
        folder = Path(given["run.dir"])
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(json.dumps(given))
        (folder / "run.db").touch()
    with (folder / "starts").open("a") as starts:
        starts.write("resumed\n" if "resumed" in given else "begun\n")
    return learn(folder, given["experiment"], int(given["seed"]), "resumed" in given)


def learn(folder: Path, recipe: str, seed: int, resumed: bool) -> int:
    """Log what this recipe reaches, unless something else is asked for."""
    told = json.loads(Path(os.environ["FAKE_TRAIN"]).read_text())
    shall = "" if resumed else told.get(f"{recipe} {seed}", "")
    if shall == "fail":
        sys.stdout.write("error: EnvError: the sandbox is gone\n")
        return 1
    sys.stdout.write("vLLM: loading weights\n")
    sys.stdout.flush()
    gain = GAINS.get(recipe, 0.01)
    env = "terminal" if recipe == "general_terminal_plain" else "conversation"
    with (folder / "metrics.jsonl").open("a") as lines:
        for step in UPDATES:
            row: dict[str, float] = {"step": step}
            if step < UPDATES[-1]:
                row |= {"heldout/success": 0.5, "heldout/n": 120, "heldout/low": 0.4}
                if env == "conversation":
                    row["heldout/liked"] = 0.1 + gain * step + 0.01 * seed
            if env == "conversation":
                row["train/liked"] = 0.1 + gain * step
            lines.write(json.dumps(row) + "\n")
            lines.flush()
            if step == UPDATES[0] and shall == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if step == UPDATES[0] and shall == "wait":
                (folder / "waiting").touch()
                time.sleep(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
