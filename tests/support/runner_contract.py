"""What every runner of tasks promises. A subclass gives the fixture `runner`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.spark_work import answer_or_fail, breaks, double
from tidefold.compute.runners import Runner
from tidefold.errors import CorruptError, TidefoldError, to_wire


class CountsItsTasks:
    """Work that writes a file for each time that it is called."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, text: str) -> str:
        (Path(self.folder) / f"{text}-{os.urandom(8).hex()}").touch()
        return text


class RunnerContract:
    @pytest.fixture
    def runner(self) -> Runner:
        raise NotImplementedError("A subclass of RunnerContract gives the fixture `runner`.")

    def test_answers_come_in_the_order_of_the_tasks(self, runner: Runner) -> None:
        tasks = [str(number) for number in range(50)]
        assert runner(double, tasks) == [task * 2 for task in tasks]

    def test_without_tasks_there_is_no_answer(self, runner: Runner) -> None:
        assert runner(double, []) == []

    def test_equal_tasks_have_an_answer_each(self, runner: Runner) -> None:
        assert runner(double, ["a", "b", "a"]) == ["aa", "bb", "aa"]

    def test_each_task_runs_once(self, runner: Runner, tmp_path: Path) -> None:
        tasks = [str(number) for number in range(20)]
        runner(CountsItsTasks(str(tmp_path)), tasks)
        assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == sorted(tasks)

    def test_any_text_comes_back(self, runner: Runner) -> None:
        texts = ["", " ", "a\nb", "\x00", "\u00e4\u6c34\U0001f600", '{"error": ["x"]}', "x" * 1_000_000]
        assert runner(str, texts) == texts

    def test_an_error_is_the_answer_of_its_task_alone(self, runner: Runner) -> None:
        first, failed, last = runner(double, ["a", "bad", "b"])
        assert (first, last) == ("aa", "bb")
        assert isinstance(failed, CorruptError)
        assert (failed.code, failed.message, failed.hint) == ("SEGMENT_CORRUPT", "It is damaged.", "Restore it.")

    def test_an_error_of_any_class_comes_back_as_one(self, runner: Runner) -> None:
        kinds = [TidefoldError]
        for kind in kinds:
            kinds.extend(kind.__subclasses__())
        names = [kind.__name__ for kind in kinds if kind.__module__ == "tidefold.errors"]
        found = [to_wire(answer) for answer in runner(answer_or_fail, names) if isinstance(answer, TidefoldError)]
        assert found == [(name, "CODE", "It failed.", "Do this.") for name in names]
        assert len(names) > 10

    def test_an_error_that_nobody_foresaw_is_one_of_its_task_too(self, runner: Runner) -> None:
        answers = runner(breaks, ["1", "2"])
        errors = [answer for answer in answers if isinstance(answer, TidefoldError)]
        assert [(error.code, error.message) for error in errors] == [
            ("UNFORESEEN", "ZeroDivisionError: 1"),
            ("UNFORESEEN", "ZeroDivisionError: 2"),
        ]
