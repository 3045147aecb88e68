"""Finds out before Spark starts whether it can start: it needs a Java of the right age."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tidefold.lifecycle.errors import InvalidInputError, NotFoundError

_OLDEST = 17
_HOW = "Install Java 17 or 21 (Debian, Ubuntu: `apt install openjdk-17-jre-headless`) or set JAVA_HOME to one."


def check_java() -> None:
    """Raises NotFoundError (none) or InvalidInputError (too old)."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        where = f"JAVA_HOME ({home}) holds none" if home else "there is none on the PATH"
        raise NotFoundError("JAVA_MISSING", f"Spark needs Java, and {where}.", hint=_HOW)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    # Java 8 and older call themselves 1.8.
    major = int(found[2] or 0) if found and found[1] == "1" else int(found[1]) if found else None
    if major is None or major < _OLDEST:
        shown = f"is Java {major}" if major else "does not say its version"
        raise InvalidInputError("JAVA_TOO_OLD", f"Spark needs Java 17 or newer, and {java} {shown}.", hint=_HOW)
