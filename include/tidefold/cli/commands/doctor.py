"""`tidefold doctor`: checks everything that a pipeline relies on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tidefold.cli.terminal import Terminal

Seconds = Annotated[float, typer.Option("--seconds", help="How long a check may take.", min=1, max=600)]
_FAILED = 1


def doctor(terminal: Terminal, seconds: Seconds = 20.0) -> int:
    """Check everything that the pipeline relies on, and print the next step for each problem.

    Checks the configuration and its suites, versions of packages, Java, Spark, its jars, memory, disks, the store
    (with scratch objects: conditional writes, listings, clock), landing folders, retention, alarms, and Airflow with
    its DAG files. Each line is ok, warn or fail. Works without a store and without Airflow. A check that hangs fails
    after --seconds (Airflow: four times as long) and does not delay the others. Exit code 1 if a line is fail. Starts
    no Spark.

    Example: tidefold doctor --format json

    Next: mend what is `fail`, then tidefold status
    """
    from tidefold.installation import CLONE
    from tidefold.operations.doctor.doctor import Surroundings, diagnose
    from tidefold.operations.doctor.finding import count_failed, summarize
    from tidefold.spark.jars import list_jars

    findings = diagnose(Surroundings(CLONE, terminal.config_path, tuple(list_jars())), seconds)
    code = _FAILED if count_failed(findings) else 0
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<4}  {finding.check:<13}  {finding.message}")
        lines += [f"{'':<21}next: {finding.hint}"] if finding.hint else []
    data = {"command": "doctor", "exit_code": code, "findings": [asdict(finding) for finding in findings]}
    terminal.result(data, *lines, f"{summarize(findings)}.")
    return code
