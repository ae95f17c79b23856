"""What all packages need: the binary, and archives whose bytes depend on their contents alone.

A tar file has its entries in the given order, owned by numbers, with one time: SOURCE_DATE_EPOCH, or the time of the last
commit, or 0.
"""

import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Entry(NamedTuple):
    """A file, or a directory if it has no data."""

    path: str
    data: object = None
    mode: int = 0o644
    owner: int = 0


def workspace():
    """The version and the repository of the workspace."""
    text = (ROOT / "Cargo.toml").read_text()
    package = text.split("[workspace.package]", 1)[1].split("\n[", 1)[0]
    return [re.search(rf'^{name} = "([^"]+)"', package, re.M)[1] for name in ("version", "repository")]


def release_binary():
    """The release binary of this checkout, which cargo builds unless it is current."""
    command = ["cargo", "build", "--release", "--locked", "--bin", "mizzen", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    messages = [json.loads(line) for line in built.splitlines() if line.startswith("{")]
    [path] = [message["executable"] for message in messages if message.get("executable")]
    return Path(path)


def source_date():
    """The time of everything in a package, in seconds."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    commit = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(commit, capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def tar(entries, time, prefix=""):
    """A tar file. Directories that are not named are added before their first file."""
    out, directories = io.BytesIO(), set()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:

        def add(entry):
            info = tarfile.TarInfo(prefix + entry.path)
            info.mode, info.mtime, info.uid, info.gid = entry.mode, time, entry.owner, entry.owner
            if entry.data is None:
                info.type = tarfile.DIRTYPE
                directories.add(entry.path)
                archive.addfile(info)
            else:
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))

        for entry in entries:
            parts = entry.path.split("/")
            for n in range(1, len(parts)):
                parent = "/".join(parts[:n])
                if parent not in directories:
                    add(Entry(parent, mode=0o755))
            add(entry)
    return out.getvalue()
