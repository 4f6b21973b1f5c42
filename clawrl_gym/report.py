"""python -m clawrl_gym.report runs/NAME: (re)write the run's report.html and say where it is.

--curve PATH also writes the main curves as an SVG picture, --families PATH those of task families.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clawrl_gym.core.errors import ClawError
from clawrl_gym.ui.charts import write_curve_svg, write_families_svg
from clawrl_gym.ui.report import write_report


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m clawrl_gym.report", description=__doc__)
    parser.add_argument("folder", type=Path, help="the run's folder, runs/NAME")
    parser.add_argument("--curve", type=Path, metavar="PATH", help="write the curves as SVG, too")
    parser.add_argument("--score", metavar="NAME", help="with --curve: this score's curve")
    parser.add_argument(
        "--families", type=Path, metavar="PATH", help="write held-out success by family as SVG, too"
    )
    parser.add_argument(
        "--beside", type=Path, metavar="RUN", action="append", default=[],
        help="with --families: another run's behind it, such as a control's",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        path = write_report(options.folder)
        sys.stdout.write(f"{path}\n")
        if options.curve is not None:
            sys.stdout.write(f"{write_curve_svg(options.folder, options.curve, options.score)}\n")
        if options.families is not None:
            picture = write_families_svg(options.folder, options.families, options.beside)
            sys.stdout.write(f"{picture}\n")
    except ClawError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
