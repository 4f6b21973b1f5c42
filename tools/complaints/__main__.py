"""Makes the weights by which an answer resembles complaints.

    python -m tools.complaints

What they are worth: `bench/judge_unseen.py`.
"""

from __future__ import annotations

import numpy as np

from clawrl_gym.judge.resemblance import WEIGHTS
from tools.complaints.recipe import answers, fitted


def main() -> None:
    weights_F, bias, context_K = fitted(answers()).arrays
    assert context_K is not None, "there are exchanges"
    np.savez_compressed(WEIGHTS, weights_F=weights_F, bias=np.array(bias), context_K=context_K)
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
