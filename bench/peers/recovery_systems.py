"""The jobs that recovery.py disturbs: how each system is started with three workers, which processes these
are, and which steps they have done. One line in SYSTEMS for each.

All train LeNet-300-100 with 32 samples a worker. Each worker sleeps in every step for its part of the batch, so
that a step takes as long everywhere and hardly any processor.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hosts import Hosts
from processes import BenchError, Command
from systems import HERE, Programs

WORKERS, SHARD = 3, 32
BATCH = WORKERS * SHARD
KOLO_IMAGES = 10_000
RESTARTS = "100"
MARK = "PEERS_RECOVERY"
"""A variable of the job's processes, with the job's folder: only what has it is ever ended."""
TRACES = "trace*.jsonl"
TORCH_WORKER, KOLO_WORKER = "TORCHELASTIC_RESTART_COUNT", "KOLO_MEMBER"
"""Variables that a system's launcher sets for workers only."""


@dataclass(frozen=True)
class Step:
    """A step that was done: when, by which generation of how many workers, on how many samples."""

    unix: float
    step: int
    generation: int
    world: int
    samples: int


class Reader(Protocol):
    """Reads which steps a job has done until now, in the order of their lines."""

    def steps(self) -> list[Step]: ...


@dataclass(frozen=True)
class Job:
    """One run of a system: `folder` is empty and its own, `sleep` in seconds for each worker's part of a step."""

    folder: Path
    steps: int
    sleep: float
    checkpoint_steps: int
    hosts: Hosts | None = None
    """A host for each worker, where they do not share one."""


@dataclass(frozen=True)
class System:
    """A system with settings."""

    name: str
    settings: str
    commands: Callable[[Programs, Job], list[Command]]
    reader: Callable[[Path], Reader]
    weights: Callable[[Path], str]
    """The hash of the weights at the end."""
    worker: str
    needs: str
    """What it cannot be measured without: `kolo`, `torch` or `torchft`."""


class Lines:
    """What has been added to a file of JSON lines since the last look; a half line stays for the next one."""

    def __init__(self, path: Path):
        self.path, self.at = path, 0

    def new(self) -> list[dict]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.at)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text.rpartition(b"\n")[0]
        self.at += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines()]


@dataclass
class Files:
    """What has been added to all files of a pattern, in the order of their names; later ones are seen, too."""

    folder: Path
    pattern: str
    files: dict[Path, Lines] = field(default_factory=dict)

    def new(self) -> list[dict]:
        paths = sorted(self.folder.glob(self.pattern))
        return [row for path in paths for row in self.files.setdefault(path, Lines(path)).new()]


class TorchReader:
    """Lines of recovery_pytorch.py, a file for each worker that was ever started."""

    def __init__(self, folder: Path):
        self.files = Files(folder, "steps-*.jsonl")
        self.found: list[Step] = []

    def steps(self) -> list[Step]:
        self.found += [Step(**row) for row in self.files.new()]
        return self.found


class KoloReader:
    """A host's trace has each step as often as it was done, the run folder each step once, and the generations
    with the time of their first step. Other steps have the time of the look at the trace, which is for counting."""

    def __init__(self, folder: Path):
        self.trace, self.lines = Files(folder, TRACES), Lines(folder / "run" / "steps.jsonl")
        self.rows = Lines(folder / "run" / "generations.jsonl")
        self.done: list[tuple[float, int, int]] = []
        self.images: dict[int, int] = {}
        self.generations: list[dict] = []

    def steps(self) -> list[Step]:
        now = time.time()
        self.done += [(now, row["step"], int(row["count"])) for row in self.trace.new() if "step" in row]
        self.images |= {row["step"]: row["images"] for row in self.lines.new()}
        self.generations += self.rows.new()
        done = with_missing(self.done, self.images)
        last = {step: index for index, (_, step, _) in enumerate(done)}
        firsts = {last[row["first_step"]]: row for row in self.generations if row["first_step"] in last}
        found, generation, world = [], 0, WORKERS
        for index, (unix, step, samples) in enumerate(done):
            if row := firsts.get(index):
                unix, generation, world = row["first_step_unix"], row["generation"], row["world_size"]
            found.append(Step(unix, step, generation, world, whole(step, samples)))
        return found


def whole(step: int, samples: int) -> int:
    """What is left of an epoch counts as a whole batch."""
    left = KOLO_IMAGES - step % -(-KOLO_IMAGES // BATCH) * BATCH
    return BATCH if samples >= min(left, BATCH) else samples


def with_missing(done: list[tuple[float, int, int]], images: dict[int, int]) -> list[tuple[float, int, int]]:
    """Adds what the trace lacks: a step that the others had done when the worker that writes it died."""
    traced = {step for _, step, _ in done}
    result = list(done)
    for step in sorted(images.keys() - traced):
        place = next((index for index, (_, later, _) in enumerate(result) if later > step), None)
        if place is not None:
            result.insert(place, (result[place][0], step, images[step]))
    return result


def kolo(programs: Programs, job: Job) -> list[Command]:
    """The launcher starts a new worker in place of each that dies."""
    launch = [programs.kolo, "launch", "--nproc", str(WORKERS), "--max-restarts", RESTARTS, "--"]
    # Rank 0 writes each step to the trace at once; the run folder has it up to a second later.
    env = marked(job) | {"KOLO_VERIFY_FILE": str(job.folder / "trace.jsonl")}
    return [Command("kolo launch", [*launch, programs.kolo, *kolo_train(job)], env)]


def kolo_train(job: Job) -> list[str]:
    train = ["train", "--model", "mlp", "--no-augment", "--shards", str(WORKERS), "--batch-size", str(SHARD)]
    train += ["--lr", "0.05", "--schedule", "constant", "--epochs", "100000", "--checkpoint-epochs", "100000"]
    for rank in range(WORKERS) if job.sleep else ():
        train += ["--slow", f"{rank}:compute:{1000 * job.sleep:g}"]
    return [*train, "--steps", str(job.steps), "--out", str(job.folder / "run")]


def torchrun(settings: dict, options: list[str]) -> Callable[[Programs, Job], list[Command]]:
    """One launcher of all workers, which starts all anew when one dies."""

    def commands(programs: Programs, job: Job) -> list[Command]:
        argv = [*launcher(programs, WORKERS), *options, *script("torchrun", job, settings)]
        return [Command("torchrun", argv, marked(job) | ONE_THREAD | OWN_STORE)]

    return commands


def torchft(settings: dict, lighthouse: list[str]) -> Callable[[Programs, Job], list[Command]]:
    """A lighthouse, and a replica group of one worker with a launcher of its own for each, as its README has it."""

    def commands(programs: Programs, job: Job) -> list[Command]:
        address = f"127.0.0.1:{free_port()}"
        program = str(Path(str(programs.python)).with_name("torchft_lighthouse"))
        first = Command("torchft_lighthouse", [program, "--bind", address, *lighthouse], marked(job))
        argv = [*launcher(programs, 1), *script("torchft", job, settings)]
        common = marked(job) | ONE_THREAD | {"TORCHFT_LIGHTHOUSE": f"http://{address}"}
        groups = [
            Command(f"torchrun of replica group {place}", argv, common | {"REPLICA_GROUP_ID": str(place)})
            for place in range(WORKERS)
        ]
        return [*groups, first]

    return commands


ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""By default the workers share the launcher's store, where the addresses of the workers before them still are:
one that reads these waits for its dead peers until Gloo's timeout."""


def launcher(programs: Programs, workers: int) -> list[str]:
    counts = ["--nproc-per-node", str(workers), "--max-restarts", RESTARTS]
    return [str(programs.python), "-m", "torch.distributed.run", "--standalone", "--nnodes", "1", *counts]


def script(system: str, job: Job, settings: dict) -> list[str]:
    words = {"steps": job.steps, "sleep": job.sleep, "checkpoint_steps": job.checkpoint_steps} | settings
    return [str(HERE / "recovery_pytorch.py"), system, str(job.folder), json.dumps(words)]


def marked(job: Job) -> dict[str, str]:
    return {MARK: str(job.folder)}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def kolo_weights(folder: Path) -> str:
    return json.loads((folder / "run" / "summary.json").read_text())["weights_sha256"]


def torch_weights(folder: Path) -> str:
    """One hash if all workers have the same weights, else all of them."""
    return " ".join(sorted({path.read_text() for path in folder.glob("weights-*")}))


def processes(folder: Path, variable: str = "") -> list[int]:
    """The living processes of the job in that folder, of which those with a variable; by their start."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            # That of the dead is empty.
            names = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={folder}".encode() in names:
            if not variable or any(name.startswith(f"{variable}=".encode()) for name in names):
                found.append(int(path.name))
    return sorted(found, key=lambda pid: (started(pid), pid))


def started(pid: int) -> int:
    """When a process began, in the kernel's ticks; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


KOLO = System("Kolo", "as it comes", kolo, KoloReader, kolo_weights, KOLO_WORKER, "kolo")
README_MANAGER = {"collective_seconds": 5, "manager_seconds": 30, "heartbeat_ms": 100}
README_LIGHTHOUSE = ["--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000"]
HEARTBEAT_MS = 500
"""Below that, a worker that a busy machine keeps waiting counts as dead."""
TUNED_MANAGER = {"collective_seconds": 2, "manager_seconds": 5, "heartbeat_ms": 50}
TUNED_LIGHTHOUSE = ["--min_replicas", "1", "--quorum_tick_ms", "10", "--join_timeout_ms", "1000"]
TUNED_LIGHTHOUSE += ["--heartbeat_timeout_ms", str(HEARTBEAT_MS)]


def torch_system(name: str, settings: str, commands: Callable[[Programs, Job], list[Command]], needs: str) -> System:
    return System(name, settings, commands, TorchReader, torch_weights, TORCH_WORKER, needs)


SYSTEMS = (
    KOLO,
    torch_system(
        "torchft",
        "as its README and `train_ddp.py` have it: heartbeats time out after 5 s, Gloo after 5 s",
        torchft(README_MANAGER, README_LIGHTHOUSE),
        "torchft",
    ),
    torch_system(
        "torchft, tuned",
        f"heartbeats every 50 ms time out after {HEARTBEAT_MS} ms, quorum tick 10 ms, join timeout 1 s, Gloo 2 s",
        torchft(TUNED_MANAGER, TUNED_LIGHTHOUSE),
        "torchft",
    ),
    torch_system(
        "torchrun",
        "monitor interval 0.1 s, Gloo's timeout 30 minutes, a store of the workers' own",
        torchrun({"collective_seconds": 0}, []),
        "torch",
    ),
    torch_system(
        "torchrun, tuned",
        "monitor interval 0.01 s, Gloo's timeout 5 s, a store of the workers' own",
        torchrun({"collective_seconds": 5}, ["--monitor-interval", "0.01"]),
        "torch",
    ),
)


def end_all(folder: Path) -> None:
    """Ends what is left of the job in that folder, whatever started it, and what is just being started."""
    for _ in range(100):
        if not (left := processes(folder)):
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    raise BenchError(f"processes {left} do not end: end them by hand")
