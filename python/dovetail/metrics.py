"""Numbers that a script logs, such as its loss."""

import math
import re

from . import session

#: Most names of metrics in one script. With their values, they fit in one message to the agent.
MAX_NAMES = 32

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,64}\Z")
_names = set()


def log(**metrics):
    """Adds numbers to the next progress report, by name. Of several values of one name, the last is reported."""
    values = {name: _number(name, value) for name, value in metrics.items()}
    names = _names.union(values)
    if len(names) > MAX_NAMES:
        raise ValueError("too many metrics: expected at most %d different names, found %d" % (MAX_NAMES, len(names)))
    _names.update(values)
    active = session.active()
    if active:
        active.log(values)


def _number(name, value):
    """Returns the value as a finite number."""
    if not _NAME.match(name):
        raise ValueError(
            'invalid metric name "%s": expected 1 to 64 letters, digits and any of _ . / -' % name[:80]
        )
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("invalid value of metric `%s`: expected a finite number, found %.80r" % (name, value))
    return number
