"""Private temporary directories: one per instance server, removed with all that lives in it.

Chromium and its driver write their profiles, sockets and downloads below TMPDIR. Each instance
server gets a directory of its own as TMPDIR, so whatever way it ends, removing that directory
removes every file, and a process that still has this TMPDIR is one it left behind.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

import psutil

logger = logging.getLogger(__name__)

PREFIX = "omnibox-"
_LOCK = "lock"
_KILL_WAIT_S = 5.0


class TempRoot:
    """The directory of one node; its calls block, so an event loop makes them in a thread.

    The names are short: Chromium makes Unix sockets below, whose paths hold about 100 characters.
    """

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Locked before it has the name that others look for.
        new = self.path / f"{_LOCK}.new"
        self._lock = _locked(new)
        new.rename(self.path / _LOCK)
        self._made = 0

    def make(self, port: int) -> Path:
        """Make the directory for one life of the instance server on `port`."""
        self._made += 1
        directory = self.path / f"{port}-{self._made}"
        directory.mkdir(mode=0o700)
        return directory

    def remove(self) -> None:
        """Remove everything."""
        remove_directory(self.path)
        if self._lock is not None:
            self._lock.close()


def remove_abandoned() -> None:
    """Remove what nodes left behind that were killed; a living one holds its lock."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_LOCK}"):
        if not _is_ours(path.parent) or (lock := _locked(path)) is None:
            continue
        logger.warning("Removing %s, left behind by a node that was killed", path.parent)
        remove_directory(path.parent)
        lock.close()


def remove_directory(directory: Path) -> None:
    """Kill the processes that use a directory as TMPDIR, then remove it."""
    deadline = time.monotonic() + _KILL_WAIT_S
    while (left := _processes_in(directory)) and time.monotonic() < deadline:
        for process in left:
            logger.debug("Killing process %d, left behind in %s", process.pid, directory)
            _kill(process)
        psutil.wait_procs(left, timeout=0.5)
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        logger.warning("Could not remove all of %s", directory)


def _processes_in(directory: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            home = process.environ().get("TMPDIR", "")
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or somebody else's
        if process.pid != os.getpid() and Path(home).is_relative_to(directory):
            found.append(process)
    return found


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        logger.debug("Process %d ended by itself", process.pid)


def _is_ours(directory: Path) -> bool:
    try:
        # Not followed: a link in a directory for everybody may be anybody's.
        return directory.lstat().st_uid == os.getuid() and not directory.is_symlink()
    except OSError:
        return False  # removed meanwhile, by its owner


def _locked(path: Path) -> IO[bytes] | None:
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock
