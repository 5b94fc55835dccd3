"""A server and agents with virtual GPUs on this machine, for the scripts that measure live clusters."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time


def find_binary():
    """Returns the binary to test: that of DOVETAIL_BIN, else of the release build."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.abspath(os.environ.get("DOVETAIL_BIN", os.path.join(root, "target/release/dovetail")))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """A server and agents. It ends with the `with` block, and its folder is deleted."""

    def __init__(self, policy, parts=None, nodes=(("a", 4), ("b", 4))):
        self.binary, self.processes = find_binary(), []
        self._scratch = tempfile.TemporaryDirectory(prefix="dovetail-live-")
        self.folder = self._scratch.name
        self.http, self.grpc = free_port(), free_port()
        lines = ["heartbeat: 0.2s", "policy: %s" % policy, "checkpoints: %s/checkpoints" % self.folder]
        if parts:
            lines.append("parts: {%s}" % ", ".join("%s: '%s'" % item for item in parts.items()))
        self.write("server.yaml", "\n".join(lines) + "\n")
        try:
            self._start_all(nodes)
        except BaseException:
            self.__exit__()
            raise

    def _start_all(self, nodes):
        self._start(
            "server", "--config", "%s/server.yaml" % self.folder, "--data", "%s/server" % self.folder,
            "--http", "127.0.0.1:%d" % self.http, "--grpc", "127.0.0.1:%d" % self.grpc,
        )
        token = "%s/server/join-token" % self.folder
        self.wait(lambda: os.path.exists(token) and self.call("nodes", "-o", "json"))
        for name, gpus in nodes:
            self._start(
                "agent", "--server", "127.0.0.1:%d" % self.grpc, "--token-file", token,
                "--name", name, "--virtual-gpus", str(gpus), "--data", "%s/agent-%s" % (self.folder, name),
            )
            is_up = lambda node: node["name"] == name and node["state"] == "up"
            self.wait(lambda: any(is_up(node) for node in json.loads(self.call("nodes", "-o", "json") or "[]")))

    def _start(self, *args):
        log = open("%s/%s-%d.log" % (self.folder, args[0], len(self.processes)), "w")
        self.processes.append(subprocess.Popen([self.binary, *args], stdout=log, stderr=log))

    def write(self, name, text):
        """Writes a file into the folder of the cluster, in which its commands run."""
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def call(self, *args, check=False):
        """Runs a command and returns what it prints; with `check`, ends the script if it fails."""
        environment = dict(os.environ, DOVETAIL_CONFIG="%s/server/client.yaml" % self.folder, NO_COLOR="1")
        done = subprocess.run([self.binary, *args], capture_output=True, text=True, env=environment, cwd=self.folder)
        if check and done.returncode:
            sys.exit("%s: %s" % (" ".join(args), done.stderr))
        return done.stdout.strip() if done.returncode == 0 else ""

    def run(self, flags, *command):
        """Submits a job and returns its number."""
        return self.call("run", "--detach", *flags, "--", *command, check=True)

    def job(self, number):
        """Returns what is known about a job."""
        return json.loads(self.call("job", "show", number, "-o", "json", check=True))

    def wait(self, holds, seconds=600):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                sys.exit("timeout; logs are in %s" % self.folder)
            time.sleep(0.1)

    def wait_for_jobs(self):
        """Waits until all jobs have ended."""
        self.wait(lambda: self.call("jobs", "-o", "json") == "[]")

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait()
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self._scratch.cleanup()
