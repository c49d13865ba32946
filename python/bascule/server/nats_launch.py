"""Becomes a nats-server that is killed when the process that started it ends, for any reason.

Run as a script: `nats_launch.py <pid of the starter> <binary> <argument>…`. It asks the kernel to be killed when the
thread that started it ends (PR_SET_PDEATHSIG), and then executes the server, which keeps that setting. It imports
little, because the start of the broker waits for it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the server."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # the starter ended before the request to the kernel
        sys.exit("the broker has ended already")
    os.execv(command[0], command)  # noqa: S606 - replacing this process is what it is for


if __name__ == "__main__":
    main()
