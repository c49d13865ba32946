"""Connects the data plane's watchdog to the process: its signals, and the stack of its main thread."""

import faulthandler
import os
import signal

STACK_SIGNAL = signal.SIGUSR2
"""The data plane sends it to get the stack of a blocked event loop; its handler needs no interpreter lock."""

LIMIT_S = 5.0
"""Seconds without a turn after which the event loop counts as blocked."""

BEAT_S = 1.0


class ProcessWatch:
    """Connects the process to the watchdog of one engine. For the main thread."""

    def __init__(self) -> None:
        self._signals = self._stacks = self._previous = -1

    def attach(self, signals: int, stacks: int) -> None:
        """Write the number of each signal to `signals`, and the stack of the main thread to `stacks` at SIGUSR2.

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
        # A pending SIGUSR2 must not end the process, which is its default action.
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)
        os.close(self._signals)
        os.close(self._stacks)
        self._signals = self._stacks = -1
