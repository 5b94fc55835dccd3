"""The connection to the agent on this node: lines of JSON over a unix socket, handled by a thread.

All ranks stop after the same step. A rank that is asked to stop reports the last step it has begun, and begins no further
one until it knows the last step, which is the greatest that any rank has begun. The thread answers while the script is
inside a step, possibly waiting there for another rank or at a gate.
"""

import json
import os
import select
import socket
import threading
import time

from . import kubernetes
from .gates import Gates

#: Exit code of a script that was stopped and has made a checkpoint.
STOPPED = 75

#: Interval between progress reports, in seconds.
REPORT_INTERVAL = 0.5

#: First and longest delay before the next attempt to reach the agent, in seconds. The agent may be restarting.
FIRST_DELAY = 0.05
MAX_DELAY = 1.0

#: Durations in a report: of a step, of its stages, and of the wait at gates.
DURATIONS = ("step", "data", "gpu", "net", "gate")


class Session:
    """State that the script and the thread share."""

    def __init__(self, path, secret, rank, world_size, step=0, total_steps=0):
        self._path = path
        self._hello = {"hello": {"secret": secret, "rank": rank, "world": world_size, "gates": 1}}
        self._changed = threading.Condition()
        self._begun = step
        self._done = step
        self._total_steps = total_steps or 0
        self._checkpoint = 0
        self._averages = dict.fromkeys(DURATIONS, 0)
        #: Steps until the averages are of the present size: the one that is under way has both.
        self._until_fresh = 1
        self._metrics = {}
        self._size = None
        self._reason = None
        #: Last step that may be begun before the last step is known.
        self._ceiling = None
        self._last_step = None
        self._finished = False
        self._socket = None
        self.gates = Gates(self._changed, self._send)
        self._thread = threading.Thread(target=self._run, name="dovetail", daemon=True)
        self._thread.start()

    # ---- called by the script ----

    def begin(self, step):
        """Returns whether the script may begin this step; if not, it must stop. Waits while that is undecided."""
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

    def done(self, step, seconds, stages=None):
        """Records that a step is done, how long it took, and how long each of its stages and the wait at gates took."""
        durations = dict(stages or {}, step=seconds)
        with self._changed:
            self._done = step
            self._average(durations)
            if self._last_step is not None:
                self._changed.notify_all()

    def _average(self, durations):
        """Adds a step to the averages."""
        is_first = self._until_fresh == 1
        self._until_fresh = max(0, self._until_fresh - 1)
        if self._until_fresh:
            return
        for name in DURATIONS:
            micros = int(durations.get(name, 0.0) * 1e6)
            # Moving averages over about eight steps.
            self._averages[name] = micros if is_first else (self._averages[name] * 7 + micros) // 8

    def log(self, metrics):
        """Adds metrics to the next report."""
        with self._changed:
            self._metrics.update(metrics)

    def take_size(self):
        """Returns the newest size that the agent has given to this job, once, as CPU cores and MiB of memory; otherwise `None`."""
        if self._size is None:
            return None
        with self._changed:
            size, self._size = self._size, None
            return size

    def saved(self, step):
        """Records that the checkpoint after this step is complete."""
        with self._changed:
            self._checkpoint = step
            self._changed.notify_all()

    def finish(self, step):
        """Reports that all steps are done. Sent at once, because the process may exit before the thread's next report."""
        with self._changed:
            self._done = step
            self._finished = True
            self._report()
            self._send({"finished": {"step": step}})

    def reason(self):
        """Returns why the job is stopping, or `None`."""
        with self._changed:
            return self._reason

    # ---- the thread ----

    def _run(self):
        delay = FIRST_DELAY
        while True:
            try:
                self._serve()
                delay = FIRST_DELAY
            except OSError:
                pass
            with self._changed:
                self._disconnected()
            time.sleep(delay)
            delay = min(delay * 2, MAX_DELAY)

    def _serve(self):
        """Runs one connection until it ends."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self._path)
            connection.settimeout(REPORT_INTERVAL)
            with self._changed:
                self._socket = connection
                self._send(self._hello)
                if self._finished:
                    self._send({"finished": {"step": self._done}})
            readable = select.poll()
            readable.register(connection, select.POLLIN)
            rest, reported, due = b"", None, 0.0
            while True:
                now = time.monotonic()
                if now >= due:
                    due = now + REPORT_INTERVAL
                    with self._changed:
                        if self._socket is not connection:
                            return
                        if self._metrics or self._progress() != reported:
                            reported = self._report()
                if not readable.poll((due - now) * 1e3):
                    continue
                data = connection.recv(4096)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    try:
                        self._received(json.loads(line))
                    except (ValueError, KeyError, TypeError, AttributeError):
                        # Not a command that this version knows.
                        continue

    def _received(self, command):
        with self._changed:
            if "stop" in command:
                self._reason = command["stop"].get("reason") or "stopped"
                if self._last_step is None:
                    self._ceiling = self._begun
                    self._send({"at_step": {"step": self._begun}})
            elif "stop_at" in command:
                self._reason = self._reason or "stopped"
                if self._last_step is None:
                    self._last_step = int(command["stop_at"]["step"])
                    self.gates.stop_after(self._last_step)
                self._changed.notify_all()
            elif "go" in command:
                self.gates.open(command["go"])
            elif "gates" in command:
                self.gates.switch(command["gates"])
            elif "resize" in command:
                size = command["resize"]
                self._size = (int(size["cpu_milli"]) / 1e3, int(size["memory_mib"]))
                self._until_fresh = 2

    def _progress(self):
        durations = {name + "_us": micros for name, micros in self._averages.items()}
        return dict(durations, step=self._done, total=self._total_steps, checkpoint=self._checkpoint)

    def _report(self):
        """Sends and returns the progress. Metrics are sent once; they stay if there is no connection."""
        progress = self._progress()
        self._send({"progress": dict(progress, metrics=self._metrics) if self._metrics else progress})
        if self._socket is not None:
            self._metrics = {}
        return progress

    def _send(self, message):
        """Sends a message if connected. The state is sent again after a reconnect."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            # The thread notices and connects again.
            self._disconnected()

    def _disconnected(self):
        self._socket = None
        self.gates.release()


_session = None
_lock = threading.Lock()


def open_session(rank, world_size, step, total_steps):
    """Returns the session of this process, and opens it if needed; `None` without Dovetail."""
    global _session
    with _lock:
        if _session is None or _session[0] != os.getpid():
            created = _create_session(rank, world_size, step, total_steps)
            if created is None:
                return None
            _session = (os.getpid(), created)
        return _session[1]


def _create_session(rank, world_size, step, total_steps):
    path = os.environ.get("DOVETAIL_SOCKET")
    secret = os.environ.get("DOVETAIL_SECRET")
    if path and secret:
        return Session(path, secret, rank, world_size, step, total_steps)
    # In a pod there is no agent. One rank reports for the gang.
    pod = kubernetes.find_pod() if rank == 0 else None
    return kubernetes.PodSession(pod, step, total_steps) if pod else None


def active():
    """Returns the session of this process if it is open."""
    with _lock:
        return _session[1] if _session is not None and _session[0] == os.getpid() else None
