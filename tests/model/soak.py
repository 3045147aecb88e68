"""Many lives by chance: `python -m model.soak <seeds> [first]`; a failing seed is named with what replays it."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter

from model.lives import play

STEPS = 60


def main(seeds: int, first: int = 0) -> int:
    begun, failed = time.monotonic(), []
    effects: Counter[str] = Counter()
    for number, seed in enumerate(range(first, first + seeds), 1):
        try:
            effects += play(seed, STEPS).effects
        except Exception:
            traceback.print_exc()
            failed.append(seed)
            print(
                f"seed {seed} failed; again with: make soak LIVES=1 MINUTES=0 SEEDS=1 STRIDE=1000 FIRST={seed}",
                flush=True,
            )
        if number % 500 == 0 or number == seeds:
            took = time.monotonic() - begun
            print(f"{number:,} of {seeds:,} lives of {STEPS} steps, {len(failed)} failed, {took:.0f} s", flush=True)
    print(*(f"{number:9,} {effect}" for effect, number in sorted(effects.items())), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
