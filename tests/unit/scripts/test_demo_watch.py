"""What the demo tells of a run: every log of a step, and plainly that there was nothing to do."""

from __future__ import annotations

from demo.watch import by_name, describe_results


def instance(task: str, state: str | None, duration: float | None = None) -> dict[str, object]:
    return {"task_id": task, "state": state, "duration": duration}


def test_a_mapped_step_is_told_of_when_all_its_logs_have_ended() -> None:
    found = by_name([instance("confirm", "success", 1.0), instance("confirm", "queued"), instance("clean", "success")])
    assert not found["confirm"]["all_ended"]
    assert found["clean"]["all_ended"]
    ended = by_name([instance("confirm", "success", 1.0), instance("confirm", "failed", 3.0)])["confirm"]
    assert (ended["state"], ended["duration"], ended["all_ended"]) == ("failed", 3.0, True)


def test_a_step_names_each_log_or_says_that_there_was_nothing_to_do() -> None:
    idle = {log: {"result": "nothing", "error": None} for log in ("b", "a")}
    assert describe_results(idle) == "nothing to do"
    assert describe_results({**idle, "a": {"result": "staged", "error": None}}) == "a staged, b nothing"
    assert describe_results({**idle, "b": {"result": "nothing", "error": "STORAGE"}}) == "a nothing, b STORAGE"
    assert describe_results({}) == ""
