"""A synthetic trainer: each step takes the time of its stages, on devices that one process at a time can use.

The data stage reads a file and waits, the gpu stage holds the virtual GPUs of the task, the net stage waits. A GPU is a lock
on a file, so that jobs on the same GPU slow each other down as they would on a real one, without any load on the CPUs.
"""

import fcntl
import os
import sys
import time

import dovetail

data, gpu, net = (float(text) / 1e3 for text in sys.argv[1:4])
steps, folder = int(sys.argv[4]), "%s-%d" % (sys.argv[5], os.getuid())
os.makedirs(folder, exist_ok=True)
batch = os.path.join(folder, "batch")
if not os.path.exists(batch):
    with open("%s.%d" % (batch, os.getpid()), "wb") as file:
        file.write(bytes(1 << 16))
    os.replace(file.name, batch)
slots = [slot for slot in os.environ.get("local_accessible_gpus", "").split(",") if slot]
names = ["gpu-%s-%s" % (os.environ["DOVETAIL_NODE"], slot) for slot in sorted(slots, key=int)]
locks = [open(os.path.join(folder, name), "w") for name in names]


@dovetail.on_checkpoint
def save(step):
    """The only state is the step, which the scheduler keeps."""


def batches():
    while True:
        begun = time.monotonic()
        with open(batch, "rb") as file:
            file.read()
        time.sleep(max(0.0, begun + data - time.monotonic()))
        yield None


for _ in dovetail.iterate(batches(), total_steps=steps):
    with dovetail.stage("gpu"):
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        time.sleep(gpu)
        for lock in reversed(locks):
            fcntl.flock(lock, fcntl.LOCK_UN)
    if net:
        with dovetail.stage("net"):
            time.sleep(net)
