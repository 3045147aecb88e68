"""`make golden` makes the golden stores of this version, each an archive with its truth: decision 0013.

    python -m golden FOLDER [NAME ...]

Those that are made without a NAME need only the package, so `make release` makes them with the wheel. `servers` needs
a broker of Kafka and a PostgreSQL.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

from tidefold.domain.paths import STORED_FORMAT

NAMES = ("life", "set", "kinds", "feeds")
_MODULES = {"set": "sets"}


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        begun, archive = time.monotonic(), folder / f"v{STORED_FORMAT}-{name}.tar.gz"
        import_module(f"golden.{_MODULES.get(name, name)}").make_archive(archive)
        print(f"{archive}: {archive.stat().st_size:,} bytes, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
