"""The engines that do the work of a step."""

from __future__ import annotations

from enum import StrEnum


class EngineName(StrEnum):
    """The word for an engine in outcomes, task logs, verdicts and on the page."""

    SPARK = "spark"
    IN_PROCESS = "in process"
