"""What a Spark job has to do, and how that reaches the job: as an argument, or as a file that the argument names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidefold.errors import InvalidInputError
from tidefold.spark.steps import AnyStep
from tidefold.storage.safe_files import make_private_folder, write_private
from tidefold.typed_json import decode_json

# Bytes. Linux takes 128 KiB an argument, and a pipe holds 64 KiB that the job has not read yet.
LONGEST_ARGUMENT = 32 << 10
_FILE = "@"


@dataclass(frozen=True, slots=True)
class Request:
    """A step that a job runs over some logs.

    config: path of tidefold.yaml.
    result: where the job writes the outcomes; None: nowhere.
    more: a named pipe from which the job reads further requests, one a line, until nobody writes to it; None: this
        request is the only one.
    plan: the version of the log's ledger of which a plan is made: the step works in the plan's shadow store.
    """

    config: str
    logs: tuple[str, ...]
    step: AnyStep
    result: str | None = None
    more: str | None = None
    plan: int | None = None


def make_argument(request: Request) -> str:
    """Returns the argument of a job. A long request is written to a file near its result, which the job deletes."""
    encoded = msgspec.json.encode(request)
    if len(encoded) <= LONGEST_ARGUMENT or request.result is None:
        return encoded.decode()
    path = Path(f"{request.result}.request")
    make_private_folder(path.parent)
    write_private(path, encoded)
    return f"{_FILE}{path}"


def parse_argument(argument: str) -> Request:
    """Returns the request of an argument. Raises InvalidInputError (REQUEST_INVALID) if it is none."""
    try:
        if not argument.startswith(_FILE):
            return decode_json(argument, Request)
        path = Path(argument.removeprefix(_FILE).rstrip("\n"))
        request = decode_json(path.read_bytes(), Request)
    except (msgspec.DecodeError, OSError) as error:
        raise InvalidInputError(
            "REQUEST_INVALID",
            f"The job's argument is not a request: {error}.",
            hint="Start jobs with `tidefold` or the operators.",
        ) from error
    path.unlink()
    return request
