"""`make golden` makes the golden stores of this version, each an archive with its truth: decision 0013.

    python -m golden FOLDER [NAME ...]

It needs only the package, so `make release` runs it with the wheel.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from golden import feeds, kinds, life, sets
from tidefold.domain.paths import STORED_FORMAT

MAKERS = {"life": life.make_archive, "set": sets.make_archive, "kinds": kinds.make_archive, "feeds": feeds.make_archive}


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or MAKERS:
        begun, archive = time.monotonic(), folder / f"v{STORED_FORMAT}-{name}.tar.gz"
        MAKERS[name](archive)
        print(f"{archive}: {archive.stat().st_size:,} bytes, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
