"""Published tests of other systems as cases: their input, their result, and the result of tidefold.

`python -m support.neighbours` prints them as the lines of docs/contributors/neighbours.md.
"""

from __future__ import annotations

from support.neighbours import merging, paimon, paimon_sums, refused, spark, spark_history
from support.neighbours.case import Case
from support.neighbours.refused import Refused

ALL: list[Case] = [*spark.CASES, *spark_history.CASES, *paimon.CASES, *paimon_sums.CASES, *merging.CASES]
REFUSED: list[Refused] = refused.ALL


def line(case: Case | Refused) -> str:
    """Returns the case as a line of a table."""
    return f"| {case.name} | `{case.suite}`: {case.test} | {case.verdict} |"
