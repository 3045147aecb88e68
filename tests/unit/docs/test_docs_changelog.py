"""The example in docs/reference/writer.md runs, and its table of settings is right."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tidefold.changelog.writer.settings import MetricsSnapshot, WriterSettings

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "writer.md").read_text()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/reference/writer.md", "exec"), {})
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("1 [")
    assert "'owner': 'Ada'" in line
    assert "{'_op': 1, 'id': 2, 'owner': None}" in line


def test_every_setting_and_metric_is_explained() -> None:
    for name in [field.name for kind in (WriterSettings, MetricsSnapshot) for field in fields(kind)]:
        assert f"`{name}`" in PAGE


def test_the_defaults_are_the_real_ones() -> None:
    settings = WriterSettings()
    assert f"| `persist_delay` | {settings.persist_delay} s |" in PAGE
    for name in ("batch_bytes", "log_bytes", "max_bytes_in_flight"):
        assert f"| `{name}` | {getattr(settings, name) >> 20} MiB |" in PAGE
    assert f"| {settings.attempts}, {settings.retry_delay} s |" in PAGE
    assert f"| `attempt_timeout` | {settings.attempt_timeout:g} s |" in PAGE
    assert f"| `close_timeout` | {settings.close_timeout:g} s |" in PAGE
    assert f"| `threads` | {settings.threads} |" in PAGE
