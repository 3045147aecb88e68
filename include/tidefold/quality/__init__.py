"""The quality gate: suites of checks, their run over the staged rows, verdicts and reports."""
