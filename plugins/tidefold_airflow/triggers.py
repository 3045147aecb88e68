"""The trigger by which landed files and waiting changes start a DAG, instead of the clock. It needs a triggerer.

`dag = tidefold_dag("orders", schedule=[waiting_asset("orders", above="100MB", after=timedelta(hours=1))])`
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from tidefold_airflow.operators.run_context import config_path


class WaitingTrigger(BaseEventTrigger):
    """
    Fires when enough waits for the next run: landed files, and change sets that no snapshot has folded.

    It does not fire again before something else comes: the change set that the run itself makes of the files is no
    reason. An error, such as a store that does not answer, is logged, and the next look tries again.

    :param config: Path of ``tidefold.yaml``.
    :param logs: These logs together; none: all that the configuration names.
    :param above: Fire when so many bytes wait; 0: as soon as anything waits.
    :param after: Fire when something has waited for so many seconds, however small it is; None: never for that.
    :param look_every: Seconds between two looks.
    """

    def __init__(
        self,
        config: str,
        logs: Sequence[str] = (),
        above: int = 0,
        after: float | None = None,
        look_every: float = 30.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.config = config
        self.logs = list(logs)
        self.above = above
        self.after = after
        self.look_every = look_every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("config", "logs", "above", "after", "look_every")
        return "tidefold_airflow.triggers.WaitingTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields an event for each reason to begin a run."""
        since, before, has_news = time.monotonic(), None, False
        while True:
            try:
                waiting = await asyncio.to_thread(self._measure)
            except Exception as error:
                self.log.warning("What waits could not be measured: %s", error)
            else:
                has_news = bool(waiting) and (has_news or waiting.is_news(before))
                before = waiting
                if not waiting:
                    since = time.monotonic()
                reason = self._find_reason(waiting, time.monotonic() - since)
                if reason and has_news:
                    since, has_news = time.monotonic(), False
                    payload = {"reason": reason, "files": waiting.files, "bytes": waiting.bytes}
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.look_every)

    def _measure(self) -> Any:
        from tidefold.operations.inspect.waiting import measure_waiting
        from tidefold.wiring import open_pipeline

        pipeline = open_pipeline(config_path(self.config))
        return measure_waiting(pipeline, self.logs or list(pipeline.config.logs))

    def _find_reason(self, waiting: Any, waited: float) -> str | None:
        from tidefold.domain.run_trigger import RunThresholds, find_reason

        return find_reason(waiting, waited, RunThresholds(self.above, self.after))


def waiting_asset(
    name: str,
    *,
    config: str | None = None,
    logs: Sequence[str] = (),
    above: str = "0B",
    after: timedelta | None = None,
    look_every: timedelta = timedelta(seconds=30),
) -> Asset:
    """An asset whose events say that enough waits: `schedule=[waiting_asset("orders", above="100MB")]`.

    :param name: the name of the asset, one for each DAG.
    :param config: as for `tidefold_dag`; without the file, the DAG is an import error.
    :param logs: see `tidefold_dag`.
    :param above: bytes that must wait, such as `100MB`; `0B`: anything, so a landed file starts a run.
    :param after: how long something may wait before a run begins all the same; None: for ever.
    :param look_every: the time between two looks at the landing folders and the ledgers.
    """
    from tidefold.config import load_config
    from tidefold.config.models.spark import count_bytes

    # In the triggerer, where nobody looks, it would be a warning only.
    load_config(config_path(config))
    trigger = WaitingTrigger(
        str(config_path(config)),
        list(logs),
        count_bytes(above),
        after.total_seconds() if after else None,
        look_every.total_seconds(),
    )
    return Asset(name=f"tidefold waiting {name}", group="tidefold", watchers=[AssetWatcher(name=name, trigger=trigger)])
