"""`tidefold run`: the whole cycle."""

from __future__ import annotations

from tidefold.cli.options import KindOfSnapshot, Logs, RunId, Takeover, TakeoverAfter, run_id
from tidefold.cli.terminal import Terminal, add_logs_of_sets, choose_logs
from tidefold.errors import TidefoldError


def run(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
) -> int:
    """Run the whole cycle: ingest, materialize, quality, and confirm what passed.

    A snapshot that fails its gate is aborted. The table stays unchanged, and the next run folds the same changes again.
    An error of one log does not stop the others. Exit code 3 if a gate failed. Logs in a set are published together,
    or not at all; naming one of them runs all.

    Example: tidefold run accounts

    Next: tidefold status
    """
    from tidefold.cli.after_publication import register_new_tables
    from tidefold.cli.full_run import open_run, print_next_steps, print_run
    from tidefold.operations.inspect.run_alarms import count_failures
    from tidefold.operations.snapshot.request import Fold

    pipeline = terminal.pipeline()
    request = Fold(run_id(run), takeover, kind)
    chosen = add_logs_of_sets(pipeline, choose_logs(pipeline, logs))
    with open_run(terminal, pipeline, request, takeover_after) as whole:
        whole.run(chosen)
    try:
        count_failures(pipeline, whole.id, chosen, whole.outcomes)
    except TidefoldError as error:
        terminal.note(f"the alarms of the logs do not count this run: {error}")
    # An application of its own: the catalog has settings that a session gets when it starts.
    register_new_tables(terminal, pipeline, chosen)
    print_next_steps(terminal, whole)
    return print_run(terminal, whole, "run")
