"""`tidefold init`: writes a first tidefold.yaml from landed files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.terminal import Terminal
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError, RefusedError, TidefoldError

if TYPE_CHECKING:
    from tidefold.sources.inference.layout import ProposedSet, TransactionTopic
    from tidefold.sources.inference.proposal import ProposalQuestion, ProposedLog

Connection = Annotated[
    str,
    typer.Option("--connection", metavar="NAME", help="Airflow connection of the brokers; with DIR: of a database."),
]
Prefix = Annotated[str, typer.Option("--prefix", help="With --connection: the connector's topic.prefix.")]
Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Ask what the files do not show.")]
_Kafka = Annotated[str, typer.Option("--kafka", metavar="HOST:PORT", help="Brokers, instead of DIR.")]
_Topics = Annotated[str, typer.Option("--topics", metavar="PATTERN", help="Which topics, such as `shop.*`.")]
_Registry = Annotated[str, typer.Option("--registry", metavar="ADDRESS", help="Registry of schemas, or their folder.")]
_TopicKeys = Mapping[str, Mapping[str, str]]
_READERS = (
    "Does every reader of the tables support Delta's deletion vectors? Spark with Delta 3.2 or newer, DuckDB, Polars "
    "and `tidefold read` do; deltalake's to_pandas does not (docs/how-to/read.md)."
)


def init(
    terminal: Terminal,
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder with landed files, at any depth, or s3://bucket/folder.")
    ] = "",
    interactive: Interactive = False,
    kafka: _Kafka = "",
    topics: _Topics = "*",
    registry: _Registry = "",
    connection: Connection = "",
    prefix: Prefix = "source",
) -> None:
    """Write a commented tidefold.yaml from landed files or topics.

    Samples the files below DIR, or the first and last records of topics, and proposes a log for each feed: its key,
    columns and order, and the column that marks deleted rows. In the file, ASSUMED marks what the sample makes likely,
    and QUESTION marks what only you know. A log with a question stays commented out until you answer it. --interactive
    asks each question. Debezium's transaction topic becomes no log: for files, a comment proposes a set
    (docs/how-to/sets.md). An existing file is never overwritten.

    DIR with --connection reads the catalogue of a PostgreSQL database: a log for each table that the user may read,
    with columns, types and key, and the statement and settings that Debezium's connector needs for them. Their records
    land below DIR.

    Example: tidefold init landing/ -c tidefold.yaml

    Example: tidefold init landing/ --connection shop

    Next: tidefold validate
    """
    if terminal.config_path.exists():
        raise _exists(terminal.config_path)
    if bool(directory) == bool(kafka):
        raise InvalidInputError("INIT_OPTIONS", "`init` needs landed files or a topic.", hint="Give DIR or --kafka.")
    with tempfile.TemporaryDirectory() as folder:
        options = {"servers": kafka, "registry": registry, "connection": connection}
        keys = {name: text for name, text in options.items() if text}
        sampled = _sample_topics(terminal, keys, topics, Path(folder))
        with _name_argument(directory):
            _write(terminal, directory or folder, interactive, sampled, "" if kafka else connection, prefix)


@contextmanager
def _name_argument(directory: str) -> Iterator[None]:
    """Gives an error about a landing place the next step of a person who has no configuration yet."""
    try:
        yield
    except TidefoldError as error:
        steps = {
            "LANDING_MISSING": "Correct DIR, or land a file there first: `init` samples landed files.",
            "STORE_BUCKET_MISSING": error.hint.replace("its name", "DIR"),
        }
        if error.code not in steps or not directory:
            raise
        raise type(error)(error.code, error.message, hint=steps[error.code]) from error


def _sample_topics(terminal: Terminal, keys: Mapping[str, str], pattern: str, folder: Path) -> _TopicKeys:
    """Lands a sample of topics in a folder. Returns the keys of each in the file. Raises TidefoldError if none has."""
    if "servers" not in keys:
        return {}
    from pydantic import ValidationError

    from tidefold.config.models.kafka import KafkaEntry
    from tidefold.sources.kafka.client import read_settings
    from tidefold.sources.kafka.sampling import sample_topics

    try:
        entry = KafkaEntry.model_validate({**keys, "topic": pattern})
    except ValidationError as error:
        message = f"`{error.errors()[0]['loc'][0]}` of the topics is not valid."
        hint = "Brokers are host:port, a registry is an address or a folder. Secrets are in --connection."
        raise InvalidInputError("INIT_OPTIONS", message, hint=hint) from None
    settings = read_settings(entry.connection)
    open_registry = partial(entry.open_registry, Path(os.path.abspath(terminal.config_path)).parent, settings)
    if schemas := open_registry():
        schemas.check()
    landed, left_out = sample_topics(entry.servers, pattern, settings, open_registry, folder)
    for name, why in left_out.items():
        terminal.note(f"left out: {name}: {why}")
    if not landed:
        message = f"No topic at `{entry.servers}` that matches `{pattern}` can become a log."
        hint = "The lines above say why." if left_out else "Give another --topics PATTERN."
        raise InvalidInputError("KAFKA_NO_TOPIC", message, hint=hint)
    plain = {name: text for name, text in keys.items() if name != "registry"}
    return {name: {**(keys if needs else plain), "topic": name} for name, needs in landed.items()}


def _write(terminal: Terminal, directory: str, interactive: bool, keys: _TopicKeys, database: str, prefix: str) -> None:
    """Writes what a sample in a folder, or the catalogue of a database, shows.

    keys: of the topics that were sampled, by name.
    """
    from tidefold.cli.output.config_file import (
        choose_store,
        find_undecided,
        landing_path,
        list_assumptions,
        render,
        render_sets,
        sort_lines,
    )
    from tidefold.sources.inference.layout import find_transaction_topics, propose_sets
    from tidefold.storage import open_store
    from tidefold.storage.identity import ensure_identity

    path = terminal.config_path
    base = Path(os.path.abspath(path)).parent
    topics = [] if database else find_transaction_topics(directory)
    proposed, settings = (
        _propose_tables(database, prefix) if database else (_propose(terminal, directory, topics, interactive), [])
    )
    paths = [keys.get(log.topic) or landing_path(directory, log, base) for log in proposed]
    left_out = {
        log.id: notes for log, at in zip(proposed, paths, strict=True) if (notes := find_undecided(log, at, base))
    }
    guesses = {log.id: texts for log in proposed if log.id not in left_out and (texts := list_assumptions(log))}
    store = choose_store(directory)
    # A bucket is only read: the first run makes a store there.
    store_id = "" if "://" in store else ensure_identity(open_store(store, base))[0]
    sets = propose_sets(topics, proposed)
    ends = render_sets(sets, [landing_path(directory, one, base) for one in sets], left_out)
    ends += "".join(f"# {line}\n" for line in ["What the connector needs:", *settings]) if settings else ""
    marks = interactive and any(not log.appends for log in proposed)
    vectors = marks and typer.confirm(_READERS, default=False, err=True)
    origin = "the catalogue of a database" if database else f"a sample of {'topics' if keys else 'landed files'}"
    _create(path, render(proposed, paths, base, store, store_id, origin=origin, vectors=vectors) + ends)
    lines = {log.id: sort_lines(log) for log in proposed if log.columns}
    _report(terminal, [log.id for log in proposed if log.id not in left_out], left_out, guesses, sets, lines)
    for line in settings:
        terminal.note(f"connector: {line}")
    _warn(terminal, "" if keys or database else directory, proposed, topics)


def _propose_tables(connection: str, prefix: str) -> tuple[list[ProposedLog], list[str]]:
    """Proposes a log for each table of a database, and returns the settings of the connector, too."""
    from tidefold.sources.database.catalogue import list_tables
    from tidefold.sources.database.connection import Database
    from tidefold.sources.database.propose import list_settings, propose_tables

    tables = Database.find(connection).ask(list_tables)
    if not tables:
        message = f"The database of `{connection}` has no table that its user may read."
        raise RefusedError("DATABASE_NO_TABLE", message, hint="Grant SELECT on the tables to that user.")
    return propose_tables(tables, prefix), list_settings(tables, prefix)


def _warn(
    terminal: Terminal, directory: str, proposed: Sequence[ProposedLog], topics: Sequence[TransactionTopic]
) -> None:
    for log in proposed:
        for warning in log.warnings:
            terminal.note(f"look at {log.id}: {warning}")
    read = [*(log.path for log in proposed), *(topic.path for topic in topics)]
    for folder, name in _find_unread(directory, read).items() if directory else ():
        terminal.note(f"look at {folder}: no log reads its files, such as {name}")


def _propose(
    terminal: Terminal, directory: str, topics: Sequence[TransactionTopic], interactive: bool
) -> list[ProposedLog]:
    """Proposes a log for each feed, with the answers of the person at the terminal."""
    from tidefold.sources.inference.propose import propose
    from tidefold.sources.profiles.profile import list_profiles

    profiles = list_profiles(terminal.config_path.parent)
    proposed = propose(directory, left_out=topics, profiles=profiles)
    if not proposed:
        raise _nothing(directory)
    if not interactive:
        return proposed
    headers = {log.id: names for log in proposed if (names := _ask_header(terminal, log))}
    if headers:
        # The roles of the columns are inferred again now that the columns have names.
        proposed = propose(directory, headers, topics, profiles)
    return [_ask(terminal, log) for log in proposed]


def _ask_header(terminal: Terminal, log: ProposedLog) -> list[str]:
    """Asks for the names of columns of a file without a header line."""
    question = next((question for question in log.questions if question.about == "header"), None)
    if question is None:
        return []
    terminal.note(f"{log.id}: {log.sampled}")
    return [name.strip() for name in _answer(terminal, question).split(",") if name.strip()]


def _ask(terminal: Terminal, log: ProposedLog) -> ProposedLog:
    """Returns the log with the answers of the person at the terminal. An empty answer leaves the question open."""
    from tidefold.sources.inference.answers import apply_answers, find_mistake

    terminal.note(f"{log.id}: {log.sampled or log.topic}")
    for note in log.notes:
        terminal.note(f"  {note}")
    answers = dict[str, str]()
    for question in log.questions:
        if question.about == "header":
            continue
        answers[question.about] = _answer(terminal, question)
        while mistake := find_mistake(log, question, answers[question.about]):
            terminal.note(f"  {mistake}")
            answers[question.about] = _answer(terminal, question)
    return apply_answers(log, answers)


def _answer(terminal: Terminal, question: ProposalQuestion) -> str:
    candidates = f" Candidates: {'; '.join(question.candidates)}." if question.candidates else ""
    none = " `none`: no column does." if question.about == "op" else ""
    terminal.note(f"  {question.about}: {question.text}{candidates}{none}")
    first = question.candidates[0] if question.candidates and question.has_default else ""
    return str(typer.prompt(f"  {question.about}", default=first, show_default=bool(first), err=True))


def _report(
    terminal: Terminal,
    active: Sequence[str],
    left_out: Mapping[str, Sequence[str]],
    guesses: Mapping[str, Sequence[str]],
    sets: Sequence[ProposedSet],
    lines: Mapping[str, Mapping[str, Sequence[str]]],
) -> None:
    path = terminal.config_path
    data: dict[str, object] = {
        "config": str(path.absolute()),
        "logs": list(active),
        "left_out": left_out,
        "assumed": guesses,
    }
    data["lines"] = lines
    data["sets"] = {one.id: list(one.logs) for one in sets}
    named = f": {', '.join(active)}" if active else ""
    waiting = f"; {count_noun(len(left_out), 'more log')} as a comment, with questions" if left_out else ""
    terminal.result(data, f"{path} names {count_noun(len(active), 'log')}{named}{waiting}.")
    for log, texts in guesses.items():
        terminal.note("\n".join(f"assumed: {log}: {text}" for text in texts))
    for log, notes in left_out.items():
        terminal.note("\n".join(f"question: {log}: {note}" for note in notes))
    for one in sets:
        terminal.note(f"set: {_describe_set(one)}")
    for log, kinds in lines.items():
        answers = f"; answered: {', '.join(kinds['answered'])}" if kinds["answered"] else ""
        terminal.note(f"proved: {log}: {', '.join(kinds['proved'])}{answers}")
    if left_out:
        terminal.note(
            "next: answer what the file marks with QUESTION and remove the `# ` there, then `tidefold validate`"
        )
    else:
        terminal.note("next: read the file, then `tidefold validate`")


def _describe_set(one: ProposedSet) -> str:
    if not one.logs:
        return f"{one.topic} is Debezium's transaction topic. It becomes no table, and no log can be in a set with it."
    return (
        f"{one.topic} is Debezium's transaction topic. The file proposes set `{one.id}` of {', '.join(one.logs)} as a "
        "comment: their tables would then always be published at the same point (docs/how-to/sets.md)."
    )


def _nothing(directory: str) -> InvalidInputError:
    from tidefold.sources.landing.listing import list_any

    names = [file.name for file in list_any(directory, [""])[0]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    seen = f"; it has {', '.join(names[:3])}{more}" if names else ""
    return InvalidInputError("NOTHING_LANDED", f"`{directory}` contains no file that can be ingested{seen}.")


def _find_unread(directory: str, read: Sequence[str]) -> dict[str, str]:
    """Returns the folders of which no log reads a file, each with the name of a file. `read`: those of the logs."""
    from tidefold.sources.landing.listing import list_any

    files = (PurePosixPath(file.name) for file in list_any(directory, [""])[0])
    unread = {f"{file.parent}/": file.name for file in files if file.parent.name and not file.name.startswith("_")}
    below = () if "." in read else tuple(at for at in unread if not any(at.startswith(f"{one}/") for one in read))
    return {at.rstrip("/"): unread[at] for at in below}


def _create(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise InvalidInputError("CONFIG_UNWRITABLE", f"`{path}` cannot be written: {error.strerror}.") from error


def _exists(path: Path) -> RefusedError:
    return RefusedError("CONFIG_EXISTS", f"`{path}` exists, and `init` never overwrites it.")
