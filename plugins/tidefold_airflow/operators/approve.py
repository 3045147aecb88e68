"""The operator of the DAG that asks a person: it asks, and applies the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import Param

from tidefold.errors import GateFailedError
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.run_endings import AFTER_REFUSAL
from tidefold_airflow.airflow_versions import wait_for_answer
from tidefold_airflow.operators.approval_run import find_asked, needs_answer
from tidefold_airflow.operators.base import Summary, report
from tidefold_airflow.operators.confirm import TidefoldConfirmOperator, report_page
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.domain.log_state import LogState, Snapshot

_APPROVE, _REJECT = "Approve", "Reject"
# A timeout without a default fails the task: silence is never consent.
_WHY = "Kept with your decision. Required to publish a snapshot: without it, the question is asked again."
_REASON = Param("", type="string", maxLength=500, title="Why", description=_WHY)
# How often an open question is compared with the ledger.
LOOK_EVERY = timedelta(minutes=5)


@dataclass(frozen=True)
class ApprovalQuestion:
    """A question: `subject` is one line, `body` Markdown. It ends after the given time without an answer.

    without: how to decide where Airflow cannot ask.
    """

    subject: str
    body: str
    patience: timedelta
    without: str = ""


@dataclass(frozen=True)
class Answer:
    """Whether a person approved, who, and the reason. `given`: false if nobody responded in time."""

    approved: bool
    by: str
    why: str
    given: bool = True


def ask(question: ApprovalQuestion, context: Context, **kept: Any) -> NoReturn:
    """Defers the task. After the answer Airflow calls `execute_complete(context, event, **kept)` of its operator."""
    wait_for_answer(
        context,
        options=[_APPROVE, _REJECT],
        subject=question.subject,
        body=question.body,
        params={"why": _REASON.serialize()},
        patience=question.patience,
        kept=kept,
        without=question.without,
    )


def read_answer(event: Any) -> Answer:
    """Returns the answer that `execute_complete` received. An error (nobody responded in time) is a rejection.

    event: of Airflow's question; a time: nobody could be asked, and the task waited until then.
    """
    if not isinstance(event, Mapping):
        return Answer(approved=False, by="", why="nobody decided in time", given=False)
    if "error" in event:
        why = f"nobody answered in time ({event.get('error_type', 'timeout')})"
        return Answer(approved=False, by="", why=why, given=False)
    user = event.get("responded_by_user") or {}
    why = str((event.get("params_input") or {}).get("why") or "")
    return Answer(event["chosen_options"] == [_APPROVE], str(user.get("name") or user.get("id") or ""), why)


class TidefoldApprovalOperator(TidefoldConfirmOperator):
    """
    Asks a person about one snapshot that the gate refused, and applies the answer.

    Approved: the snapshot is published, and name and reason stay with it. Rejected, or no answer in time: it is
    aborted, and the task fails. A snapshot that is no longer staged is left alone, and the question ends by itself. If
    the task itself fails, nobody decided: the snapshot stays staged, and the next run of its log says so.

    :param log: The log.
    :param snapshot: Id of the snapshot. (templated)
    :param manifest: The sha256 of its manifest; empty: the snapshot that is staged. (templated)
    :param patience: How long the person may take.
    :param look_every: How often the question is compared with the ledger meanwhile.
    :param config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldConfirmOperator.template_fields, "snapshot", "manifest")

    def __init__(
        self,
        *,
        log: str,
        snapshot: int | str,
        patience: timedelta,
        manifest: str = "",
        look_every: timedelta = LOOK_EVERY,
        **kwargs: Any,
    ) -> None:
        super().__init__(logs=[log], **kwargs)
        self.snapshot = snapshot
        self.manifest = manifest
        self.patience = patience
        self.look_every = look_every

    def execute(self, context: Context) -> Summary:
        """Asks, unless there is nothing to decide."""
        until = datetime.now(UTC) + self.patience
        return self._go_on(context, None, until)

    def execute_complete(self, context: Context, event: Any, until: str) -> Summary:
        """Applies the answer, or checks whether the question is still open."""
        return self._go_on(context, read_answer(event), datetime.fromisoformat(until))

    def _go_on(self, context: Context, answer: Answer | None, until: datetime) -> Summary:
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            state = scope.pipeline.ledger(scope.logs[0]).read()
        staged = find_staged(state, self.snapshot, self.manifest)
        if staged is None:
            return report([_pointless(state, self.snapshot)], context)
        left = until - datetime.now(UTC)
        if answer and answer.approved and not answer.why.strip():
            self.log.warning("%s approved without a reason, so nothing is published.", answer.by)
            why = f"{answer.by or 'somebody'} approved without a reason, and the time is over"
            answer = Answer(approved=False, by="", why=why, given=False)
        if (answer is None or not answer.given) and left > timedelta():
            ask(
                _question(state.log, staged, self.config, until, min(left, self.look_every)),
                context,
                until=until.isoformat(),
            )
        self.log.info("Answer: %s", answer)
        decision = answer or Answer(approved=False, by="", why="nobody was asked in time")
        outcomes = for_each_log([state.log], lambda log: _decide(scope, log, staged, decision))
        if decision.approved and not outcomes[0].error:
            # The other tables of its set are published too, and their consumers wait for an event.
            outcomes += _describe_set(scope, state.log, staged.run)
        return self._report(scope, outcomes, context)


def find_staged(state: LogState, snapshot: int | str, manifest: str | None) -> Snapshot | None:
    """Returns the snapshot if a person may still decide about exactly these files."""
    asked = state.snapshot(int(snapshot))
    same = asked is not None and manifest in ("", None, asked.manifest)
    return asked if same and needs_answer(asked) else None


def _pointless(state: LogState, snapshot: int | str) -> Outcome:
    asked = state.snapshot(int(snapshot))
    if asked is None:
        verb = "is not known any more"
    elif needs_answer(asked):
        verb = "is another one than the one that was judged"
    elif asked.verdict and asked.verdict.allows and asked.open:
        verb = "was let through"
    else:
        verb = f"is {asked.state}{f' ({asked.abort_reason})' if asked.abort_reason else ''}"
    return Outcome(
        state.log, Status.POINTLESS, f"snapshot {snapshot} {verb}: there is nothing to decide", int(snapshot)
    )


def _decide(scope: TaskScope, log: str, staged: Snapshot, answer: Answer) -> Outcome:
    from tidefold.operations.sets.confirm import confirm_log
    from tidefold.operations.sets.status import abort_version
    from tidefold.operations.snapshot.confirm import Confirmation, Override

    if answer.approved:
        # `confirm` refuses an override without a name or a reason, as on the command line.
        override = Override(answer.by or " ", answer.why or " ")
        outcome = confirm_log(scope.pipeline, log, Confirmation(staged.id, override=override))
        # Another table of the set needs an answer too. The last answer publishes the set.
        return (find_asked(scope, log) or outcome) if outcome.error else outcome
    who = f"rejected by {answer.by}" if answer.by else "rejected"
    abort_version(scope.pipeline, log, f"{who}: {answer.why or 'no reason given'}", staged.id)
    raise GateFailedError(
        "GATE_FAILED",
        f"Snapshot {staged.id} of `{log}` failed its quality gate and was {who}.",
        hint=f"The snapshot is aborted. {AFTER_REFUSAL}",
    )


def _describe_set(scope: TaskScope, log: str, run: str) -> list[Outcome]:
    """Returns the outcomes of the other logs of a set that is published; none if the log is in no set."""
    from tidefold.operations.sets.confirm import confirm_set

    chosen = scope.pipeline.config.set_of(log)
    outcomes = confirm_set(scope.pipeline, chosen, run) if chosen else {}
    return [outcome for other, outcome in outcomes.items() if other != log and outcome.status is Status.ALREADY]


def _question(log: str, staged: Snapshot, config: str | None, until: datetime, patience: timedelta) -> ApprovalQuestion:
    summary = staged.verdict.summary if staged.verdict else "not judged"
    # A summary may quote data. As code, none of it is read as Markdown.
    lines = (
        f"The quality gate refused snapshot {staged.id} of **{log}**: `{summary.replace('`', chr(39))}`",
        f"[Quality report]({report_page(log, staged.id, config)})",
        "**Approve**: publish it all the same, under your name. **Reject**: abort it; the table stays as it is.",
        f"Other logs go on meanwhile. Without an answer until {until:%Y-%m-%d %H:%M} UTC it is aborted.",
    )
    subject = f"Publish {log} snapshot {staged.id} though the quality gate failed?"
    without = (
        f"Decide by `tidefold step confirm {log} --override-by NAME --reason REASON` or `tidefold step abort {log}` "
        f"until {until:%Y-%m-%d %H:%M} UTC."
    )
    return ApprovalQuestion(subject, "\n\n".join(lines), patience, without)
