"""Progress reports of a pod, without an agent: the pod writes an object with its own name through the API server.

The service account token that Kubernetes mounts into every pod names the pod, so nothing has to be configured. The API server
accepts a report only from the pod itself.
"""

import atexit
import base64
import http.client
import json
import os
import ssl
import sys
import threading
import time

#: Where Kubernetes mounts the service account of a pod.
ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"

#: Shortest time between two reports, and longest while steps are done, in seconds.
SHORTEST = 5.0
LONGEST = 60.0

#: Deviation from the prediction, as a part of all steps, that is reported early.
TOLERANCE = 0.02

#: How long a request may take, and the last one of a process, in seconds.
TIMEOUT = 10.0
LAST_TIMEOUT = 3.0

#: Answers that will not change soon: the cluster does not accept reports, or not from this pod.
REFUSALS = (400, 401, 403, 404, 405, 422)

#: Time after such an answer until the next report, in seconds.
REFUSED_FOR = 600.0


class Pod:
    """The API server and the pod that this process runs in."""

    def __init__(self, folder, host, port):
        self._folder = folder
        self._host = host
        self._port = port
        claims = self._claims()["kubernetes.io"]
        self.namespace = claims["namespace"]
        self.name = claims["pod"]["name"]
        self.uid = claims["pod"]["uid"]

    def _read(self, name):
        with open(os.path.join(self._folder, name)) as file:
            return file.read().strip()

    def _claims(self):
        """Returns what the token states. The API server checks it, so it is not checked here."""
        payload = self._read("token").split(".")[1]
        return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))

    def report(self, progress, timeout):
        """Writes a report and returns the status of the answer."""
        path = "/apis/dovetail.io/v1alpha1/namespaces/%s/podprogresses/%s" % (self.namespace, self.name)
        body = {
            "apiVersion": "dovetail.io/v1alpha1",
            "kind": "PodProgress",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}
                ],
            },
            "spec": dict(progress, podUid=self.uid, at=int(time.time() * 1e6)),
        }
        headers = {
            # Kubernetes replaces the token from time to time.
            "Authorization": "Bearer " + self._read("token"),
            "Content-Type": "application/apply-patch+yaml",
        }
        context = ssl.create_default_context(cafile=os.path.join(self._folder, "ca.crt"))
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        try:
            query = "?fieldManager=dovetail-sdk&force=true"
            connection.request("PATCH", path + query, json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()


class Throttle:
    """Decides when a report is due: when the last one would not have predicted it, and now and then."""

    def __init__(self):
        self._accepted = None
        self._tried_at = None
        self._refused_until = None

    def due_in(self, now, progress):
        """Returns in how many seconds a report is due; `None` while there is nothing to report."""
        if progress == self._accepted:
            return None
        if self.is_refused(now):
            return self._refused_until - now
        if self._tried_at is None:
            # The first report has the duration of a step.
            return 0 if progress["stepUs"] or progress["checkpoint"] else None
        elapsed = now - self._tried_at
        if elapsed < SHORTEST:
            return SHORTEST - elapsed
        if elapsed >= LONGEST or self._is_surprising(elapsed, progress):
            return 0
        return min(LONGEST - elapsed, SHORTEST)

    def has_news(self, now, progress):
        """Returns whether a report would tell something, and be accepted as far as is known."""
        return progress != self._accepted and not self.is_refused(now)

    def is_refused(self, now):
        """Returns whether a report was refused not long ago."""
        return self._refused_until is not None and now < self._refused_until

    def tried(self, now, progress, status):
        """Records the answer to a report; 0 for none. Returns whether reports are refused for the first time."""
        self._tried_at = now
        if 200 <= status < 300:
            self._accepted = progress
        if status not in REFUSALS:
            return False
        is_first = self._refused_until is None
        self._refused_until = now + REFUSED_FOR
        return is_first

    def _is_surprising(self, elapsed, progress):
        before = self._accepted
        if before is None or any(before[key] != progress[key] for key in ("totalSteps", "checkpoint")):
            return True
        if not before["stepUs"]:
            return progress["stepUs"] > 0
        predicted = before["step"] + elapsed * 1e6 / before["stepUs"]
        scale = progress["totalSteps"] or predicted
        return abs(predicted - progress["step"]) > max(scale * TOLERANCE, 1)


class PodSession:
    """Reports the progress of this process. It has the methods of a session with an agent."""

    #: There is no agent, so there are no gates.
    gates = None

    def __init__(self, pod, step=0, total_steps=0):
        self._pod = pod
        self._changed = threading.Condition()
        self._progress = {"step": step, "totalSteps": total_steps or 0, "stepUs": 0, "dataUs": 0, "checkpoint": 0}
        self._throttle = Throttle()
        self._thread = threading.Thread(target=self._run, name="dovetail", daemon=True)
        self._thread.start()
        atexit.register(self._flush)

    # ---- called by the script ----

    def begin(self, step):
        """Returns whether the script may begin this step. A pod is stopped by Kubernetes, not between two steps."""
        return True

    def done(self, step, seconds, stages=None):
        """Records that a step is done, how long it took, and how long its stages took. Reports have no other stage than `data`."""
        waited = (stages or {}).get("data", 0.0)
        with self._changed:
            before, micros, data = self._progress["stepUs"], int(seconds * 1e6), int(waited * 1e6)
            # Moving averages over about eight steps.
            average = micros if not before else (before * 7 + micros) // 8
            waiting = data if not before else (self._progress["dataUs"] * 7 + data) // 8
            self._progress.update(step=step, stepUs=average, dataUs=waiting)
            if not before:
                self._changed.notify_all()

    def log(self, metrics):
        """Ignores metrics: reports of pods have none."""

    def take_size(self):
        """Returns the new size of the job: never one, because a pod is not resized."""

    def saved(self, step):
        """Records that the checkpoint after this step is complete."""
        with self._changed:
            self._progress["checkpoint"] = step
            self._changed.notify_all()

    def finish(self, step):
        """Reports that all steps are done. Sent at once, because the process may exit before the thread's next report."""
        with self._changed:
            self._progress["step"] = step
        self._flush()

    def reason(self):
        """Returns why the job is stopping: unknown in a pod."""
        return None

    # ---- the thread ----

    def _run(self):
        while True:
            with self._changed:
                wait = self._throttle.due_in(time.monotonic(), self._progress)
                if wait is None or wait > 0:
                    self._changed.wait(LONGEST if wait is None else wait)
                    continue
                progress = dict(self._progress)
            self._send(progress, TIMEOUT)

    def _send(self, progress, timeout):
        try:
            status = self._pod.report(progress, timeout)
        except (OSError, ValueError, http.client.HTTPException):
            status = 0
        with self._changed:
            is_news = self._throttle.tried(time.monotonic(), progress, status)
        if is_news:
            print("dovetail: progress is not reported: the API server answers %d" % status, file=sys.stderr)

    def _flush(self):
        """Sends what was not reported yet."""
        with self._changed:
            progress, now = dict(self._progress), time.monotonic()
            has_news = progress["step"] > 0 and self._throttle.has_news(now, progress)
        if has_news:
            self._send(progress, LAST_TIMEOUT)


def find_pod():
    """Returns the pod of this process; `None` outside Kubernetes, or without a token that names the pod."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if not host or os.environ.get("DOVETAIL_PROGRESS") == "off":
        return None
    try:
        port = int(os.environ.get("KUBERNETES_SERVICE_PORT") or 443)
        return Pod(os.environ.get("DOVETAIL_ACCOUNT_DIR") or ACCOUNT_DIR, host, port)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
