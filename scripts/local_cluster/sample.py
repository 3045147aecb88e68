"""The sample pipeline with its store and its landing folders in the cluster's S3."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local_airflow.errors import LocalAirflowError
from local_cluster.stack import Servers
from local_cluster.versitygw import BUCKET
from tidefold.cli.sample import prepare
from tidefold.installation import sample_folder


def write_config(servers: Servers) -> Path:
    """Writes the configuration and its suites; the path of `tidefold.yaml`."""
    path = servers.root / "tidefold.yaml"
    path.unlink(missing_ok=True)
    prepare(servers.root, above=None)
    text = re.sub(r"^local: .*\n", "", path.read_text(), flags=re.MULTILINE)
    text = text.replace("path: landing/", f"path: s3://{BUCKET}/landing/")
    path.write_text(text.replace("store: store\n", f"store: s3://{BUCKET}/store\n{servers.settings}"))
    return path


def land_phase(phase: str, env: Mapping[str, str]) -> int:
    """Puts a phase's files into the landing prefixes, each once. Returns how many. Raises LocalAirflowError."""
    files = sorted((sample_folder() / phase).glob("*/*"))
    if not files:
        raise LocalAirflowError(f"The sample has no phase `{phase}`: use phase1, phase2 or phase3.")
    client = open_client(env)
    landed = {one["Key"] for one in client.list_objects_v2(Bucket=BUCKET, Prefix="landing/").get("Contents", ())}
    names = {f"landing/{file.parent.name}/{file.name}": file for file in files}
    for name in names.keys() - landed:
        client.put_object(Bucket=BUCKET, Key=name, Body=names[name].read_bytes())
    return len(names.keys() - landed)


def open_client(env: Mapping[str, str]) -> Any:
    """A client of the server that these variables name."""
    from botocore.session import get_session

    return get_session().create_client(
        "s3",
        endpoint_url=env["AWS_ENDPOINT_URL"],
        region_name=env["AWS_REGION"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
    )
