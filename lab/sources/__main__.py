"""Proofs of `tidefold source` on a real PostgreSQL under Debezium: `python -m sources FOLDER [PROOF ...]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sources.airflow_proof import prove_airflow
from sources.attest_proof import prove_attest
from sources.cost import measure_attest
from sources.load_proof import measure_load, prove_load
from sources.overlap_proof import prove_overlap
from sources.replica_proof import prove_replica
from sources.rig import start_server
from sources.types_proof import prove_types
from torture.capture import Java

# Attestations beside writers, rounds of ten faults, rows of the table.
_SIZES = [int(one) for one in (os.environ.get("SIZES") or "50 10 20000").split()]
# Loads beside writers, rows of each; rows of the one that is measured.
_LOADS = [int(one) for one in (os.environ.get("LOADS") or "20 20000 1000000").split()]
_PROOFS = {
    "types": lambda server, java, folder: prove_types(server, java, folder, "string"),
    "attest": lambda server, java, folder: prove_attest(server, java, folder, *_SIZES),
    "overlap": prove_overlap,
    "replica": lambda server, java, folder: prove_replica(server, folder),
    "cost": lambda server, java, folder: measure_attest(server, folder, int(os.environ.get("ROWS") or 1_000_000)),
    "load": lambda server, java, folder: prove_load(server, java, folder, *_LOADS[:2]),
    "load-large": lambda server, java, folder: measure_load(server, java, folder, _LOADS[2]),
    "airflow": prove_airflow,
    "types-precise": lambda server, java, folder: prove_types(server, java, folder, "precise"),
}


def main(folder: Path, names: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    server, java = start_server(folder / "postgres15"), Java(folder / "engines" / "postgres", folder / "engine.log")
    failed = 0
    try:
        for name in names or _PROOFS:
            wrong = _PROOFS[name](server, java, folder)
            print(f"{name}: {wrong or 'proved'}", flush=True)
            failed += bool(wrong)
    finally:
        java.close()
        server.stop()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
