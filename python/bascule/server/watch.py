"""What the data plane's watchdog needs of the process: a copy of its signals, and the stack of its main thread."""

import faulthandler
import os
import signal

STACK_SIGNAL = signal.SIGUSR2
"""The data plane sends it to learn where a blocked event loop is; its handler needs no interpreter lock."""

LIMIT_S = 5.0
"""Without a turn for so long the event loop counts as blocked."""

BEAT_S = 1.0


class ProcessWatch:
    """Connects the process to one engine's watchdog. For the main thread."""

    def __init__(self) -> None:
        self._signals = self._stacks = self._previous = -1

    def attach(self, signals: int, stacks: int) -> None:
        """Have each signal's number written to `signals`, and the main thread's stack to `stacks` at SIGUSR2.

        Args:
            signals: descriptor, non-blocking; duplicated.
            stacks: descriptor, non-blocking; duplicated.
        """
        self._signals, self._stacks = os.dup(signals), os.dup(stacks)
        self._previous = signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)
        faulthandler.register(STACK_SIGNAL, file=self._stacks, all_threads=False)

    def detach(self) -> None:
        """Undo `attach`; SIGUSR2 does nothing from then on. Idempotent."""
        if self._signals < 0:
            return
        signal.set_wakeup_fd(self._previous)
        faulthandler.unregister(STACK_SIGNAL)
        # One that is on its way must not end the process, as it would by default.
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)
        os.close(self._signals)
        os.close(self._stacks)
        self._signals = self._stacks = -1
