"""Finds an interpreter with PyTorch for the tests that need one."""

import functools
import subprocess
import sys


@functools.lru_cache(maxsize=None)
def with_torch():
    """Returns a Python with PyTorch; if there is none, prints a line that says so and returns `None`."""
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
                return python
        except OSError:
            continue
    print("SKIPPED: PyTorch is not installed (apt-get install python3-torch)", flush=True)
    return None
