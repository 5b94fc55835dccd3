"""When a pod reports, and what makes it stop reporting. The requests are tested at a real API server, by the project."""

import base64
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from contextlib import redirect_stderr
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from dovetail import kubernetes  # noqa: E402


def progress(step, step_us=100_000, checkpoint=0):
    return {"step": step, "totalSteps": 1_000, "stepUs": step_us, "checkpoint": checkpoint}


class FakePod:
    def __init__(self, status):
        self.status = status
        self.reports = []

    def report(self, sent, timeout):
        self.reports.append(sent)
        return self.status


class ThrottleTest(unittest.TestCase):
    def test_a_steady_pod_reports_once_a_minute(self):
        throttle, sent = kubernetes.Throttle(), 0
        for tick in range(600):
            now = tick / 2
            report = progress(5 * tick + 1)
            if throttle.due_in(now, report) == 0:
                throttle.tried(now, report, 200)
                sent += 1
        self.assertEqual(sent, 5, "one report a minute, of five minutes")

    def test_a_surprise_and_a_checkpoint_are_reported_after_five_seconds(self):
        throttle = kubernetes.Throttle()
        throttle.tried(0, progress(10), 201)
        self.assertEqual(throttle.due_in(4, progress(400)), 1)
        self.assertEqual(throttle.due_in(5, progress(400)), 0)
        self.assertEqual(throttle.due_in(5, progress(60, checkpoint=50)), 0)
        self.assertGreater(throttle.due_in(5, progress(60)), 0)
        self.assertIsNone(throttle.due_in(100, progress(10)))

    def test_a_report_that_failed_is_repeated(self):
        throttle = kubernetes.Throttle()
        throttle.tried(0, progress(10), 0)
        self.assertEqual(throttle.due_in(1, progress(10)), 4)
        self.assertEqual(throttle.due_in(5, progress(10)), 0)


    def test_a_refusal_counts_for_ten_minutes(self):
        throttle = kubernetes.Throttle()
        self.assertTrue(throttle.tried(0, progress(10), 403))
        self.assertEqual(throttle.due_in(100, progress(60, checkpoint=50)), 500)
        self.assertFalse(throttle.tried(600, progress(60), 403))
        self.assertEqual(throttle.due_in(1200, progress(60)), 0)


class SessionTest(unittest.TestCase):
    def test_the_end_is_reported_at_once(self):
        pod = FakePod(200)
        session = kubernetes.PodSession(pod, total_steps=3)
        session.done(1, 0.1)
        session.saved(2)
        session.finish(3)
        self.assertEqual(pod.reports[-1], {"step": 3, "totalSteps": 3, "stepUs": 100_000, "dataUs": 0, "checkpoint": 2})

    def test_a_pod_without_the_right_to_report_tries_once(self):
        pod, errors = FakePod(403), io.StringIO()
        with redirect_stderr(errors):
            session = kubernetes.PodSession(pod)
            session.done(1, 0.1)
            session.finish(2)
            session.finish(3)
        self.assertLessEqual(len(pod.reports), 2)
        self.assertEqual(errors.getvalue().count("the API server answers 403"), 1)


class PodTest(unittest.TestCase):
    def environment(self, folder, **more):
        return mock.patch.dict(
            os.environ, {"KUBERNETES_SERVICE_HOST": "h", "DOVETAIL_ACCOUNT_DIR": folder, **more}
        )

    def test_the_token_names_the_pod(self):
        claims = {"kubernetes.io": {"namespace": "team", "pod": {"name": "a-0", "uid": "u"}}}
        payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "token").write_text("x.%s.y\n" % payload)
            with self.environment(folder):
                pod = kubernetes.find_pod()
                self.assertEqual((pod.namespace, pod.name, pod.uid), ("team", "a-0", "u"))
            with self.environment(folder, DOVETAIL_PROGRESS="off"):
                self.assertIsNone(kubernetes.find_pod())

    def test_without_such_a_token_there_is_no_pod(self):
        for token in ["", "x.y", "a.e30.b", "a.!!.b", "a.W10.b"]:
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "token").write_text(token)
                with self.environment(folder):
                    self.assertIsNone(kubernetes.find_pod(), token)
        with self.environment("/nonexistent"):
            self.assertIsNone(kubernetes.find_pod())


if __name__ == "__main__":
    unittest.main()
