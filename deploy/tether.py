"""``python -m deploy.tether PARENT COMMAND...``: become a command that dies with its parent.

The kernel sends SIGKILL when the parent ends, even by kill -9 (prctl(2), PR_SET_PDEATHSIG; it
outlives execve(2)). This is a program, and not code between fork and exec, because the parent
has threads by the time it starts its last child.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have ended before the line above: then nobody would be told.
    if os.getppid() != parent:
        sys.exit("the parent process is gone")
    try:
        os.execvp(command[0], command)  # noqa: S606 - our own program
    except OSError as e:
        sys.exit(f"{command[0]}: {e.strerror}")


if __name__ == "__main__":
    main()
