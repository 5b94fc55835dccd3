"""The talk with the agent on this node: lines of JSON over a unix socket, in a thread of its own.

The rule that lets all ranks stop after the same step: a rank that is told to stop says which step it has begun, and
begins no later one until it hears after which step to stop. That is the greatest step any rank has begun. The thread
answers while the script is inside a step, perhaps waiting there for another rank.
"""

import json
import os
import socket
import threading
import time

#: The exit code of a script that was stopped and has made its checkpoint.
STOPPED = 75

#: Progress is reported this often, in seconds.
REPORT_EVERY = 0.5

#: The longest pause before the agent is looked for again: it may be restarting.
LONGEST_PAUSE = 1.0


class Session:
    """What the script and the thread share."""

    def __init__(self, path, secret, rank, world, step=0, total=0):
        self._path = path
        self._hello = {"hello": {"secret": secret, "rank": rank, "world": world}}
        self._changed = threading.Condition()
        self._begun = step
        self._done = step
        self._total = total or 0
        self._checkpoint = 0
        self._step_us = 0
        self._reason = None
        self._ceiling = None
        self._last_step = None
        self._finished = False
        self._socket = None
        self._thread = threading.Thread(target=self._run, name="dovetail", daemon=True)
        self._thread.start()

    # ---- the script's side ----

    def begin(self, step):
        """Whether the script may begin this step. Waits while that is not decided; `False` means: stop now."""
        with self._changed:
            while True:
                if self._last_step is not None:
                    allowed = step <= self._last_step
                elif self._ceiling is not None and step > self._ceiling:
                    self._changed.wait()
                    continue
                else:
                    allowed = True
                if allowed:
                    self._begun = max(self._begun, step)
                return allowed

    def done(self, step, seconds):
        """A step is done, after so many seconds."""
        with self._changed:
            self._done = step
            micros = int(seconds * 1e6)
            # A few steps back are enough to smooth it.
            self._step_us = micros if not self._step_us else (self._step_us * 7 + micros) // 8
            if self._last_step is not None:
                self._changed.notify_all()

    def saved(self, step):
        """The checkpoint after this step is whole."""
        with self._changed:
            self._checkpoint = step
            self._changed.notify_all()

    def finish(self, step):
        """All steps are done. Tells the agent now: the process may end before the thread would."""
        with self._changed:
            self._done = step
            self._finished = True
            self._say(self._progress())
            self._say({"finished": {"step": step}})

    def reason(self):
        """Why the job is to stop, or `None`."""
        with self._changed:
            return self._reason

    # ---- the thread ----

    def _run(self):
        pause = 0.05
        while True:
            try:
                self._talk()
                pause = 0.05
            except (OSError, ValueError):
                pass
            with self._changed:
                self._socket = None
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _talk(self):
        """One connection, until it ends."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
            talk.connect(self._path)
            talk.settimeout(REPORT_EVERY)
            with self._changed:
                self._socket = talk
                self._say(self._hello)
                if self._finished:
                    self._say({"finished": {"step": self._done}})
            rest = b""
            told = None
            while True:
                with self._changed:
                    if self._socket is not talk:
                        return
                    now = self._progress()
                    if now != told:
                        self._say(now)
                        told = now
                try:
                    data = talk.recv(4096)
                except socket.timeout:
                    continue
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))

    def _hear(self, word):
        with self._changed:
            if "stop" in word:
                self._reason = word["stop"].get("reason") or "stopped"
                if self._last_step is None:
                    # From here on no later step is begun.
                    self._ceiling = self._begun
                    self._say({"at_step": {"step": self._begun}})
            elif "stop_at" in word:
                self._reason = self._reason or "stopped"
                if self._last_step is None:
                    self._last_step = int(word["stop_at"]["step"])
                self._changed.notify_all()

    def _progress(self):
        return {
            "progress": {
                "step": self._done,
                "total": self._total,
                "step_us": self._step_us,
                "checkpoint": self._checkpoint,
            }
        }

    def _say(self, word):
        """Says something if the agent is there. If it is not, it is told everything when it is back."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(json.dumps(word).encode() + b"\n")
        except OSError:
            # The thread finds out by itself, and dials again.
            self._socket = None


_current = None
_lock = threading.Lock()


def current(rank, world, step, total):
    """The session of this process; `None` outside of Dovetail."""
    global _current
    path = os.environ.get("DOVETAIL_SOCKET")
    secret = os.environ.get("DOVETAIL_SECRET")
    if not path or not secret:
        return None
    with _lock:
        if _current is None or _current[0] != os.getpid():
            _current = (os.getpid(), Session(path, secret, rank, world, step, total))
        return _current[1]


def known():
    """The session if there is one already."""
    with _lock:
        return _current[1] if _current is not None and _current[0] == os.getpid() else None
