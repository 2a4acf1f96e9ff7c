"""Where and with what a run was made, so that its numbers can be judged."""

import os
import platform
import re
from pathlib import Path

from processes import BenchError, Command, run

BUSY = 0.5
"""Load average from which something else takes part of the measured cores."""


def cpu_model() -> str:
    """The CPU's name as the kernel gives it."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def memory_gib() -> str:
    found = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return f"{int(found[1]) / 2**20:.0f} GiB" if found else "unknown memory"


def cores() -> int:
    """Cores this process may run on, which need not be all of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """Load average over the last minute."""
    return os.getloadavg()[0]


def congestion_control() -> str:
    """How TCP finds its rate here, in new network namespaces as well."""
    return _read("/proc/sys/net/ipv4/tcp_congestion_control").strip() or "unknown"


def describe() -> str:
    """One line: CPU, cores, memory, kernel."""
    system = f"{platform.system()} {platform.release()}"
    return f"{cpu_model()}, {cores()} cores, {memory_gib()}, {system}"


def version(argv: list[str]) -> str:
    """What `argv` (a program asked for its version) answers, or `unknown` if it does not."""
    try:
        return run(Command(argv[0], argv), 60).strip().partition("\n")[0] or "unknown"
    except BenchError:
        return "unknown"


def commit(root: Path) -> str:
    """The commit that is checked out, and whether anything has been changed since."""
    found = version(["git", "-C", str(root), "rev-parse", "--short=9", "HEAD"])
    changed = version(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return found if changed == "unknown" else f"{found}, with changes"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
