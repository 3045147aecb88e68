"""Takes a mend out, and plays the seed of `make torture` that finds it: `make mutants-torture`.

A mutant that names a `seed` is tried; numbers on the command line: only those of these seeds. The page of torture is
written with the outcomes. What a seed cannot find has its fast test alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutations.__main__ import ROOT, Mutant, copy_project, read_mutants
from mutations.changed_file import change_file
from torture import page

_SHOWN, _LONGEST = 160, 1800


def play(folder: Path, mutant: Mutant, code: str) -> dict[str, str | int]:
    """Plays the seed without the mend. `said` is what was found; `missed`: nothing was."""
    path = folder / mutant.file
    environment = {**os.environ, "PYTHONPATH": "include:tests:lab", "TORTURE_WORK": str(folder / "work")}
    environment.pop("TORTURE_RECORD", None)
    command = [sys.executable, "-m", "torture", "1", str(mutant.seed), "both"]
    with change_file(path, path.read_text().replace(mutant.old, mutant.new)):
        played = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_LONGEST
        )
    lines = played.stdout.splitlines()
    found = next((after for line, after in zip(lines, lines[2:], strict=False) if "): found, " in line), "")
    said = found.strip().replace(f"{folder}/", "").replace("|", "/")[:_SHOWN]
    return {"seed": mutant.seed or 0, "code": code, "said": said or "missed"}


def main(seeds: list[str]) -> int:
    mutants = [one for one in read_mutants() if one.seed is not None and (not seeds or str(one.seed) in seeds)]
    torture = Path(os.environ.get("TORTURE", ROOT / "var/torture"))
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        code = page.commit()
        copy_project(folder)
        shutil.copytree(ROOT / "lab", folder / "lab", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "work").mkdir()
        for part in ("engines", "mariadb"):
            (folder / "work" / part).symlink_to(torture / part)
        for mutant in mutants:
            outcome = play(folder, mutant, code)
            print(f"{mutant.without}: seed {mutant.seed}: {outcome['said']}", flush=True)
            known = page.read_mends() | {mutant.without: outcome}
            page.MENDS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    page.PAGE.write_text(page.render(page.read_record()))
    return int(any(page.read_mends()[one.without]["said"] == "missed" for one in mutants))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
