"""Cost of bugs in a repository of one's own: seconds and bytes for each, and for 1,000 by that.

    python bench/make_bugs.py [--repository FOLDER] [--python ENVIRONMENT/bin/python] [--count 20]

One trial at a time. Without a folder it is the small repository of the tests (two modules). The
last line is arithmetic: nobody made 1,000.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clawrl_gym.envs.swe.__main__ import run
from clawrl_gym.envs.swe.bugs.maker import ARCHIVE
from tests.support.own_repositories import make_repository

_VALIDATED = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository")
    parser.add_argument("--python")
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        repository = args.repository or str(make_repository(Path(scratch) / "shop"))
        out = Path(scratch) / "out"
        command = ["make-bugs", repository, str(out), "--jobs", "1"]
        command += ["--python", args.python] if args.python else []
        start_s = time.monotonic()
        code = run([*command, "--count", "1"])
        first_s, start_s = time.monotonic() - start_s, time.monotonic()
        code = code or run([*command, "--count", str(args.count)])
        if code:
            return code
        making_s = time.monotonic() - start_s
        lines = [
            line
            for split in ("train", "heldout")
            for line in (out / f"{split}.jsonl").read_text("utf-8").splitlines()
        ]
        tried = len((out / "_attempts.jsonl").read_text("utf-8").splitlines()) - 1
        seconds_each = making_s / (len(lines) - 1)
        bytes_each = sum(map(len, lines)) / len(lines)
        print(f"clean runs and the first bug: {first_s:.1f} s")
        print(f"{len(lines)} bugs, {tried} tried: {seconds_each:.2f} s and {bytes_each:,.0f} bytes")
        print(f"the repository, once: {(out / ARCHIVE).stat().st_size:,} bytes")
        print(f"validation: {_validation_s(out):.1f} s for each (two episodes, twins)")
        print(
            f"1,000 bugs, by that: {seconds_each * 1000 / 3600:.2f} h for one at a time, "
            f"{bytes_each / 1000:.1f} MB"
        )
    return 0


def _validation_s(out: Path) -> float:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run(["validate", str(out), "--json", "--jobs", "1", "--limit", str(_VALIDATED)])
    checks = json.loads(printed.getvalue())
    if not all(check["ok"] for check in checks):
        raise SystemExit(f"a bug does not hold: {checks}")
    total_s: float = sum(check["seconds"] for check in checks)
    return total_s / len(checks)


if __name__ == "__main__":
    raise SystemExit(main())
