"""The gates of the agent: jobs that share GPUs take turns, stage by stage.

While gates are on, the script asks the agent before it enters a stage and waits for the answer. A gate never blocks for long: the
script proceeds when its patience ends, when gates are switched off, and when the connection is lost.
"""

import time

#: How long a script waits at a gate if the agent does not say, and at most, in seconds.
PATIENCE = 2.0
MAX_PATIENCE = 60.0


class Gates:
    """State of the gates. The condition and the function that sends a message are those of the session."""

    def __init__(self, changed, send):
        self._changed = changed
        self._send = send
        self._is_on = False
        self._patience = PATIENCE
        #: Stage and step that the script asked for.
        self._asked = None
        self._last_step = None
        #: Whether the stages of the current step pass gates. Gates that are switched on take effect with the next step.
        self.is_step_gated = False

    # ---- called by the script ----

    def begin_step(self):
        """Decides whether the step that begins passes gates."""
        with self._changed:
            self.is_step_gated = self._is_on

    def enter(self, stage, step):
        """Asks to enter a stage, and waits until that is allowed. Returns the seconds that it took."""
        begun = time.monotonic()
        with self._changed:
            self._asked = (stage, step)
            self._send({"enter": {"stage": stage, "step": step}})
            deadline = begun + self._patience
            while self._must_wait(step):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._asked = None
        return time.monotonic() - begun

    def leave(self, stage, step, micros):
        """Reports that a stage has ended, and how long it took."""
        with self._changed:
            self._send({"leave": {"stage": stage, "step": step, "us": micros}})

    def end_step(self, step):
        """Reports that this step has no further stage."""
        with self._changed:
            self._send({"pass": {"step": step}})

    def _must_wait(self, step):
        is_last = self._last_step is not None and step > self._last_step
        return self._asked is not None and self.is_step_gated and not is_last

    # ---- called by the session, which holds the lock ----

    def switch(self, command):
        """Switches gates on or off."""
        if not command.get("on"):
            self.release()
            return
        patience = command.get("patience_ms")
        is_number = isinstance(patience, (int, float)) and not isinstance(patience, bool)
        self._patience = min(max(patience / 1e3, 0.0), MAX_PATIENCE) if is_number else PATIENCE
        self._is_on = True

    def open(self, command):
        """Lets the script enter the stage that it asked for. The answer may be late, and is ignored then."""
        if self._asked == (command.get("stage"), command.get("step")):
            self._asked = None
            self._changed.notify_all()

    def stop_after(self, step):
        """The script stops after this step: it enters no stage of a later one, so it does not wait for it."""
        self._last_step = step
        self._changed.notify_all()

    def release(self):
        """Switches gates off. A script that waits proceeds."""
        self._is_on = False
        self.is_step_gated = False
        self._changed.notify_all()
