"""The kinds of snapshot requests: the same values for the command line, the Spark jobs and Airflow.

Each kind of request claims a log and plans its attempt by itself; `materialize` runs any of them.
"""

from __future__ import annotations

from tidefold.operations.restore.restore import Restore as Restore
from tidefold.operations.savepoint.import_snapshot import Import as Import
from tidefold.operations.sets.restore import RestoreSet as RestoreSet
from tidefold.operations.sets.savepoint import ImportSet as ImportSet
from tidefold.operations.snapshot.fold import Fold as Fold
from tidefold.operations.snapshot.point_in_time import PointInTime as PointInTime

SnapshotRequest = Fold | Restore | RestoreSet | Import | ImportSet | PointInTime
