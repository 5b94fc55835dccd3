#!/usr/bin/env python3
"""Measures what stages and gates cost per step, and how long a script waits at an open gate.

Steps do nothing here, so all their time is overhead; it is printed as a part of a step of 50 ms. The agent is another
process, which answers at once. Usage: PYTHONPATH=python python3 python/benchmarks/stage_overhead.py [--steps N]
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import dovetail  # noqa: E402
from dovetail import session  # noqa: E402

STEP_S = 0.05


def serve(path, ready, with_gates):
    """Runs an agent that opens every gate at once, or has none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        ready.set()
        connection, _ = server.accept()
    with connection, connection.makefile("r") as lines:
        for line in lines:
            message = json.loads(line)
            if "hello" in message and with_gates:
                answer = {"gates": {"on": True, "patience_ms": 2000}}
            elif "enter" in message:
                answer = {"go": message["enter"]}
            else:
                continue
            connection.sendall(json.dumps(answer).encode() + b"\n")


def loop(steps, has_blocks):
    """Yields the seconds of each step; a step is empty, or has three empty blocks."""
    begun = time.perf_counter()
    for _ in dovetail.iterate(range(1000), total_steps=steps):
        if has_blocks:
            with dovetail.stage("data"):
                pass
            with dovetail.stage("gpu"):
                pass
            with dovetail.stage("net"):
                pass
        now = time.perf_counter()
        yield now - begun
        begun = time.perf_counter()


def plain(steps):
    """Yields the seconds of each step of a loop without Dovetail's package."""
    begun = time.perf_counter()
    for _ in range(steps):
        now = time.perf_counter()
        yield now - begun
        begun = time.perf_counter()


def measure(name, times):
    """Prints the overhead of a step: the median, and the mean, which includes reports to the agent."""
    times = list(times)[10:]
    median, mean = statistics.median(times), statistics.fmean(times)
    print(
        "%-34s median %8.2f us, mean %8.2f us: %6.4f %% of a step of %d ms"
        % (name, median * 1e6, mean * 1e6, mean / STEP_S * 100, STEP_S * 1e3)
    )
    return median


def with_agent(steps, with_gates, has_blocks):
    """Returns the seconds of each step of a loop with a session."""
    with tempfile.TemporaryDirectory() as folder:
        path, ready = os.path.join(folder, "agent.sock"), multiprocessing.Event()
        agent = multiprocessing.Process(target=serve, args=(path, ready, with_gates), daemon=True)
        agent.start()
        ready.wait()
        os.environ.update(DOVETAIL_SOCKET=path, DOVETAIL_SECRET="benchmark")
        current = session.open_session(0, 1, 0, steps)
        # Until the session is connected and gates are on.
        time.sleep(0.5)
        times = list(loop(steps, has_blocks))
        session._session = None
        agent.terminate()
        agent.join()
        del current
    for name in ("DOVETAIL_SOCKET", "DOVETAIL_SECRET"):
        del os.environ[name]
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="number of steps of each loop")
    steps = parser.parse_args().steps
    if steps < 20:
        parser.error("--steps must be at least 20")
    measure("plain loop", plain(steps))
    measure("without Dovetail", loop(steps, False))
    measure("without Dovetail, three blocks", loop(steps, True))
    measure("gates off", with_agent(steps, False, False))
    measure("gates off, three blocks", with_agent(steps, False, True))
    off = statistics.median(with_agent(steps, False, False))
    on = measure("gates on", with_agent(steps, True, False))
    # The step of an empty body has two gates: data and gpu.
    print("one open gate: %.0f us" % ((on - off) / 2 * 1e6))


if __name__ == "__main__":
    main()
