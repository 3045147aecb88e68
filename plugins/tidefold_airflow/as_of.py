"""The operator that makes snapshots as of an instant: `from tidefold_airflow.as_of import TidefoldAsOfOperator`."""

from __future__ import annotations

from typing import Any

from tidefold_airflow.operators import TidefoldSparkOperator

# A run by hand has no data interval.
INSTANT = "{{ params.get('as_of') or (data_interval_end if data_interval_end is defined else '') }}"


class TidefoldAsOfOperator(TidefoldSparkOperator):
    """Makes a snapshot of each log as of an instant, staged: `quality` judges it, TidefoldConfirmOperator keeps it.

    It holds what was committed at the source before the instant. Nothing is published, and a scheduled run goes on
    beside it. A log of which nothing was committed before has none; one that was cut beyond the instant fails, naming
    the oldest possible one.

    :param as_of: the instant with its time zone (templated); default: the parameter `as_of`, else the end of the run's
        data interval.
    :param logs, config: as for TidefoldSparkOperator.
    """

    def __init__(self, *, as_of: Any = INSTANT, **kwargs: Any) -> None:
        super().__init__(step="materialize", as_of=as_of, **kwargs)
