"""Learning beside trl's GRPOTrainer: the same prompts, rewards, seeds, steps, batches and rates.

    PYTHONPATH=. python bench/beside_trl_learning.py [--ground length] [--policy smollm2|FOLDER]
        [--seeds 3] [--steps 12] [--arms ours,trl,ours-control,trl-control] [--out runs/beside_trl]

`ours` is a whole run of `python -m clawrl_gym.train` (vLLM, workers, the learner), `trl` a
GRPOTrainer with the same adapter, optimizer, clipping, sampling and rate of each update, whose
replies come from transformers. `ours-sync` collects and learns in turns: no sample is older than
the weights that learn from it; in `ours-lag1` at most one update. In a `-control` rewards are
permuted within each group. Before and after, the same held-out prompts are answered greedily and
sampled, by the same code for all.

Arms run one after the other, each in processes of its own. A result is a JSON file in OUT for each
arm and seed, and is not measured again: the same command goes on where it was stopped. Prints a
Markdown table and writes OUT/curves.svg and OUT/differences.svg; `--draw` does only that.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from bench.learning.arms import Place, measure_arm, measure_before, read_result
from bench.learning.figures import Results, beside_trl, table
from bench.learning.picture import write_curves, write_differences
from bench.learning.settings import ARMS, Settings


def main() -> None:
    options = _options()
    settings = Settings(
        ground=(f"env={options.ground}", *options.overrides),
        policy=options.policy,
        steps=options.steps,
        groups=options.groups,
        group_size=options.group_size,
        lr=options.lr,
        warmup_steps=options.warmup_steps,
        rank=options.rank,
        alpha=options.alpha,
        max_tokens=options.max_tokens,
        held_out=options.held_out,
        samples=options.samples,
        threads=options.threads,
    )
    arms = options.arms.split(",")
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        raise SystemExit(f"got the arms {', '.join(unknown)}, expected some of {', '.join(ARMS)}")
    settings.config()  # an option that does not fit is refused before anything is started
    place = Place(options.out)
    place.out.mkdir(parents=True, exist_ok=True)
    timeout_s = 60 * options.timeout_minutes
    if not options.draw:
        _say("held-out prompts before learning")
        measure_before(settings, place, timeout_s)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for arm in arms:
                _say(f"{arm}, seed {seed}")
                result = measure_arm(settings, arm, seed, place, timeout_s)
                greedy = result["held_out"]["greedy"]
                _say(
                    f"{arm}, seed {seed}: held-out greedy {sum(greedy) / len(greedy):.3f}, "
                    f"{result['wall_s']:.0f} s, {result['peak_gib']:.1f} GiB"
                )
    _show(settings, arms, place)


def _show(settings: Settings, arms: list[str], place: Place) -> None:
    """The table and the pictures of what is there."""
    before = read_result(place.before, settings)
    results: Results = {}
    for arm in arms:
        for path in sorted(place.out.glob(f"{arm}-seed*.json")):
            result = read_result(path, settings)
            if result is not None:
                results.setdefault(arm, {})[result["seed"]] = result
    if before is None or not results:
        raise SystemExit(f"got no result in {place.out}, expected at least one arm's")
    ground = settings.ground[0].removeprefix("env=")
    print("\n".join([*table(results, before), "", *beside_trl(results)]))
    seeds = max(map(len, results.values()))
    over = f"{seeds} seeds" if seeds > 1 else "one seed"
    title = f"Training reward on {ground} (mean of five updates); dashed: shuffled rewards"
    write_curves(results, place.out / "curves.svg", title)
    beside = f"Held-out reward less the control's, {ground}, {over}"
    write_differences(results, place.out / "differences.svg", beside)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("overrides", nargs="*", help="further keys of the environment: env.KEY=...")
    parser.add_argument("--ground", default="length", help="an option of conf/env/ of one reply")
    parser.add_argument("--policy", default="smollm2", help="an option of conf/policy/ or a folder")
    parser.add_argument("--arms", default="ours,trl,ours-control,trl-control")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--groups", type=int, default=4, help="prompts of one update")
    parser.add_argument("--group-size", type=int, default=8, help="replies to each of them")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--warmup-steps", type=int, default=2)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--alpha", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--held-out", type=int, default=40)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout-minutes", type=float, default=90)
    parser.add_argument("--out", type=Path, default=Path("runs/beside_trl"))
    parser.add_argument("--draw", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
