"""Makes the weights by which an answer resembles complaints, and says what they are worth.

python -m tools.complaints            # what cross-validation says, then the weights
python -m tools.complaints --check    # what cross-validation says alone
"""

from __future__ import annotations

import argparse

import numpy as np

from clawrl_gym.judge.resemblance import WEIGHTS
from tools.complaints.recipe import answers, fitted, report, unseen_logits


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="no new weights")
    only_check = parser.parse_args().check
    everything = answers()
    report(everything, unseen_logits(everything))
    if only_check:
        return
    weights_F, bias = fitted(everything).arrays
    np.savez_compressed(WEIGHTS, weights_F=weights_F, bias=np.array(bias))
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
