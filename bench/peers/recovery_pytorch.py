"""One worker of the jobs that recovery.py disturbs: LeNet-300-100 on made-up images, by DDP that torchrun
restarts from checkpoints, or by torchft.

`python recovery_pytorch.py torchrun|torchft FOLDER SETTINGS`; the settings are JSON, as recovery_systems.py
writes them. Each worker adds a line for each step that is done to a file of its own in the folder, with its host
and process in the name, and leaves the hash of its weights there at the end.
"""

import hashlib
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

WORKERS, BATCH, IMAGES = 3, 32, 10_000
PIXELS, CLASSES = 28 * 28, 10
MEETING_SECONDS = 120


class Data:
    """Made-up images. A step has a batch for each place, the same whoever works and however often."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(0)
        self.images = torch.randn(IMAGES, PIXELS, generator=made)
        self.labels = torch.randint(CLASSES, (IMAGES,), generator=made)
        self.epoch, self.order = -1, torch.empty(0)

    def batch(self, step: int, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        epoch, index = divmod(step, IMAGES // (WORKERS * BATCH))
        if epoch != self.epoch:
            self.epoch, self.order = epoch, torch.randperm(IMAGES, generator=torch.Generator().manual_seed(epoch))
        begin = (index * WORKERS + place) * BATCH
        chosen = self.order[begin : begin + BATCH]
        return self.images[chosen], self.labels[chosen]


class Log:
    """A line for each step that this worker has done."""

    def __init__(self, folder: Path, host: int) -> None:
        name = f"steps-{host}-{os.getpid()}.jsonl"
        self.file = os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def done(self, step: int, generation: int, world: int) -> None:
        row = {"unix": time.time(), "step": step, "generation": generation, "world": world, "samples": world * BATCH}
        os.write(self.file, (json.dumps(row) + "\n").encode())


def network() -> nn.Module:
    torch.manual_seed(0)
    sizes = [PIXELS, 300, 100, CLASSES]
    layers = [part for a, b in zip(sizes, sizes[1:], strict=False) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def torchrun(folder: Path, settings: dict) -> None:
    """DDP; rank 0 writes a checkpoint every so many steps, from which all begin after a restart."""
    timeout = settings["collective_seconds"]
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout) if timeout else None)
    rank, world, generation = dist.get_rank(), dist.get_world_size(), number(folder)
    network_ = network()
    model, optimizer, data = nn.parallel.DistributedDataParallel(network_), sgd(network_), Data()
    log = Log(folder, settings.get("host", 0))
    checkpoint, step = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        network_.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    while step < settings["steps"]:
        images, labels = data.batch(step, rank)
        time.sleep(settings["sleep"])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        log.done(step, generation, world)
        step += 1
        if rank == 0 and step % settings["checkpoint_steps"] == 0:
            state = {"model": network_.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
    leave_hash(folder, rank, network_)
    dist.destroy_process_group()


def number(folder: Path) -> int:
    """How many groups of workers there were before this one. Launchers on several hosts count their restarts
    differently."""
    found = torch.tensor(len(list(folder.glob("group-*"))))
    dist.broadcast(found, 0)
    (folder / f"group-{found.item()}").touch()
    return int(found.item())


def torchft(folder: Path, settings: dict) -> None:
    """A replica group of one worker, as in torchft's train_ddp.py. The batch is that of the manager's step, so
    one whose step failed is taken again and not skipped."""
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    place, network_ = int(os.environ["REPLICA_GROUP_ID"]), network()
    inner = sgd(network_)

    def load(state: dict) -> None:
        network_.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=settings["collective_seconds"])),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": network_.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"recovery_{place}",
        timeout=timedelta(seconds=settings["manager_seconds"]),
        heartbeat_interval=timedelta(milliseconds=settings["heartbeat_ms"]),
        hostname=settings.get("hostname", "localhost"),
        # All begin with the same weights.
        init_sync=False,
    )
    model, optimizer = DistributedDataParallel(manager, network_), Optimizer(manager, inner)
    data, log = Data(), Log(folder, settings.get("host", 0))
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        meet(folder, place)
    while manager.current_step() < settings["steps"]:
        step = manager.current_step()
        optimizer.zero_grad()
        time.sleep(settings["sleep"])
        # One that has just come learns the step while the others' quorum forms; its first gradient counts nothing.
        images, labels = data.batch(step, place)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        done = manager.current_step() - 1
        if done >= step:
            log.done(done, manager._quorum_id, manager.num_participants())
    leave_hash(folder, place, network_)
    manager.shutdown(wait=False)


def meet(folder: Path, place: int) -> None:
    """Waits until all workers send heartbeats, so that the first step is done by all."""
    (folder / f"ready-{place}").touch()
    until = time.monotonic() + MEETING_SECONDS
    while len(list(folder.glob("ready-*"))) < WORKERS:
        if time.monotonic() > until:
            sys.exit(f"error: not all workers came within {MEETING_SECONDS} s")
        time.sleep(0.05)


def leave_hash(folder: Path, place: int, model: nn.Module) -> None:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    (folder / f"weights-{place}").write_text(digest.hexdigest())


def main() -> None:
    system, folder, settings = sys.argv[1:]
    torch.set_num_threads(1)
    {"torchrun": torchrun, "torchft": torchft}[system](Path(folder), json.loads(settings))


if __name__ == "__main__":
    main()
