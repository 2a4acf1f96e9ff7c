#!/usr/bin/env python3
"""Kubernetes without a cluster: validates the manifests of examples/kubernetes/ against the published schemas, and
runs their commands in pods of this machine, which it evicts.

    python3 bench/kubernetes.py [--kolo PROGRAM]

Schemas: `pip install kubernetes-validate kubeflow-trainer-api`. A pod is a network namespace with an address of its
own, and gets the variables that the system injects. An eviction is SIGTERM, and SIGKILL after the grace period; a
replacement has the same index and another address. At the end, each run must have the weights of an undisturbed one.
Pods need root, `ip` and, for the elastic job, etcd. What is missing is named and not tried.
"""

import argparse
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster_trial import FOLDER, ROOT, Failure, in_namespace, slow, steps, training, undisturbed, wait, weights

MANIFESTS = ROOT / "examples" / "kubernetes"
STEPS = 160
TRAINING = training(STEPS)
SLOW = slow(workers=8, milliseconds=20)

BRIDGE = f"kolo{os.getpid() % 100000}"
NETWORK = "10.79.0"
MACHINE = f"{NETWORK}.1"
"""This machine's address for the pods, at which etcd listens."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kolo", type=Path, default=ROOT / "target" / "debug" / "kolo")
    options = parser.parse_args()
    try:
        import yaml
    except ImportError:
        print("note: Kubernetes is not tried, because Python's yaml is missing")
        return 0
    documents = {
        path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(MANIFESTS.glob("*.yaml"))
    }
    if FOLDER in os.environ:
        try:
            return evictions(options.kolo, documents, Path(os.environ[FOLDER]))
        except Failure as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    wrong = validate(documents)
    if wrong:
        return 1
    if os.geteuid() != 0 or not shutil.which("ip"):
        print("note: no pods are started, which need root and iproute2")
        return 0
    if not options.kolo.exists():
        print(f"error: {options.kolo} does not exist; build it, or give --kolo", file=sys.stderr)
        return 2
    # The host table stands for the cluster's names.
    return in_namespace(__file__, ["--kolo", str(options.kolo.resolve())], "127.0.0.1 localhost\n")


def validate(documents: dict[str, list[dict]]) -> int:
    """Prints what is wrong with the manifests, and returns how many are."""
    try:
        import kubernetes_validate
        from kubeflow_trainer_api import models
    except ImportError as error:
        print(f"note: the manifests are not validated: {error}")
        return 0
    own = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}
    wrong = 0
    for name, parts in documents.items():
        for part in parts:
            what = f"{name}: {part['kind']} {part['metadata']['name']}"
            try:
                if model := own.get(part["kind"]):
                    # A field that the schema does not know would be missing.
                    if (known := model.from_dict(part).to_dict()) != part:
                        raise ValueError(f"unknown fields: {differing(part, known)}")
                    for pod in pods_of(part):
                        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
                else:
                    kubernetes_validate.validate(part, kubernetes_validate.latest_version(), strict=True)
                print(f"{what} is valid")
            except Exception as error:  # of two libraries
                wrong += 1
                print(f"error: {what}: {error}", file=sys.stderr)
    return wrong


def pods_of(part: dict) -> list[dict]:
    """The Jobs in a JobSet, whose schema the models of Kubeflow check less strictly."""
    jobs = part["spec"].get("replicatedJobs", [])
    head = {"apiVersion": "batch/v1", "kind": "Job"}
    return [head | {"metadata": {"name": job["name"]}} | job["template"] for job in jobs]


def differing(one: object, other: object, path: str = "") -> str:
    """The first place at which two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        parts = [(f".{key}", one[key], other.get(key)) for key in one]
    elif isinstance(one, list) and isinstance(other, list):
        parts = [(f"[{at}]", *both) for at, both in enumerate(zip(one, other, strict=False))]
    else:
        return path
    return next((differing(a, b, path + name) for name, a, b in parts if a != b), path)


def evictions(kolo: Path, documents: dict[str, list[dict]], folder: Path) -> int:
    del os.environ[FOLDER]
    os.environ["PATH"] = f"{kolo.resolve().parent}:{os.environ['PATH']}"
    os.chdir(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    expected, failed = undisturbed(kolo, TRAINING), 0
    print(f"undisturbed: {expected}", flush=True)
    trials: dict[str, Callable[[Cluster, dict], None]] = {"jobset.yaml": job_set, "trainjob.yaml": train_job}
    if shutil.which("etcd"):
        trials["indexed-job.yaml"] = indexed_job
    else:
        print("note: indexed-job.yaml is not tried: no etcd")
    with network():
        for name, trial in trials.items():
            cluster = Cluster(folder, name.removesuffix(".yaml"))
            try:
                trial(cluster, documents[name][-1])
                found = weights(cluster.run)
            except Failure as error:
                found = f"{error}\n{cluster.logs()}"
            finally:
                cluster.end()
            failed += found != expected
            print(f"{name}: {'the same' if found == expected else found}", flush=True)
    return int(failed > 0)


@contextmanager
def network() -> Iterator[None]:
    """A switch for the pods, and this machine at it."""
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{MACHINE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        yield
    finally:
        ip("link", "del", BRIDGE)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Cluster:
    """The pods of one job, the names by which they find each other, and the folder that all of them mount."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.run = folder / name / "runs" / "night"
        self.run.parent.mkdir(parents=True)
        self.token = secrets.token_hex(32)
        self.names: dict[str, str] = {"etcd": MACHINE}
        self.pods: list[Pod] = []
        self.addresses = iter(range(10, 250))

    def resolve(self, name: str, address: str) -> None:
        """Gives a name to an address. The file stays the same one, because it is mounted."""
        self.names[name] = address
        lines = [f"{address} {name}\n" for name, address in self.names.items()]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))

    def pod(self, name: str, command: list[str], variables: dict[str, str]) -> "Pod":
        """Starts a pod, and gives it its name only then, as a cluster does."""
        words = [word.replace("/runs/", f"{self.run.parent}/") for word in command]
        number = len(self.pods)
        pod = Pod(f"{BRIDGE}-{self.name[0]}{number}", f"{NETWORK}.{next(self.addresses)}", self.folder / self.name)
        self.pods.append(pod)
        pod.start([*words, *TRAINING, *SLOW], variables | {"KOLO_TOKEN": self.token})
        time.sleep(0.3)
        self.resolve(name, pod.address)
        return pod

    def steps(self) -> int:
        return steps(self.run)

    def wait_for_steps(self, number: int) -> None:
        running = lambda: any(pod.process.poll() is None for pod in self.pods)  # noqa: E731
        wait(lambda: self.steps() >= number or not running(), lambda: f"no step {number} after {self.steps()}")
        if self.steps() < number:
            raise Failure(f"all pods have ended after step {self.steps()}")

    def finish(self) -> None:
        wait(lambda: all(pod.process.poll() is not None for pod in self.pods), lambda: "the pods do not end")
        if not (self.run / "summary.json").exists():
            raise Failure("the run has no summary")

    def logs(self) -> str:
        return "\n".join(f"--- {pod.name}: {pod.process.poll()}\n{pod.last_lines()}" for pod in self.pods)

    def end(self) -> None:
        for pod in self.pods:
            pod.end()


class Pod:
    """A network namespace with one process, and an address that no other pod has had."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name, self.address, self.log = name, address, folder / f"{name}.log"
        ip("netns", "add", name)
        outer = f"v{name[4:]}"
        ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", outer, "master", BRIDGE, "up")
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")

    def start(self, command: list[str], variables: dict[str, str]) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *command],
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def evict(self, grace: float) -> None:
        """Asks the container's first process to end, as the kubelet does, and kills all of it after the grace."""
        self.process.terminate()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        self.end()

    def end(self) -> None:
        """Ends what is left in the namespace, and removes it with its address."""
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        for pid in found.stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])


def container(manifest: dict) -> list[str]:
    """Command and arguments of a pod's container."""
    spec = manifest["spec"]
    if manifest["kind"] == "TrainJob":
        found = spec["trainer"]
    else:
        job = spec if manifest["kind"] == "Job" else spec["replicatedJobs"][0]["template"]["spec"]
        found = job["template"]["spec"]["containers"][0]
    return found["command"] + found["args"]


def indexed_job(cluster: Cluster, manifest: dict) -> None:
    """Three pods; one is evicted in good order, then the first one dies at once."""
    command = container(manifest)

    def start(index: int) -> Pod:
        return cluster.pod(f"train-{index}.train", command, {"JOB_COMPLETION_INDEX": str(index)})

    for index in range(4):
        cluster.resolve(f"train-{index}.train", f"{NETWORK}.{250 + index}")
    with etcd(cluster.folder):
        pods = [start(index) for index in range(3)]
        cluster.wait_for_steps(STEPS // 8)
        pods[1].evict(60)
        pods[1] = start(1)
        cluster.wait_for_steps(STEPS // 3)
        pods[0].evict(0)
        pods[0] = start(0)
        cluster.finish()


def job_set(cluster: Cluster, manifest: dict) -> None:
    """Two pods that know their index; one is evicted, whereupon JobSet makes both anew."""
    restart_all(cluster, container(manifest), lambda index: {"JOB_COMPLETION_INDEX": str(index)})


def train_job(cluster: Cluster, manifest: dict) -> None:
    """The same with the variables of Kubeflow's runtime for torch."""
    trainer = manifest["spec"]["trainer"]

    def variables(index: int) -> dict[str, str]:
        return {
            "JOB_COMPLETION_INDEX": str(index),
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": "train-node-0-0.train",
            "PET_MASTER_PORT": "29400",
        }

    restart_all(cluster, container(manifest), variables)


def restart_all(cluster: Cluster, command: list[str], variables: Callable[[int], dict[str, str]]) -> None:
    def start() -> list[Pod]:
        return [cluster.pod(f"train-node-0-{index}.train", command, variables(index)) for index in range(2)]

    pods = start()
    cluster.wait_for_steps(STEPS // 8)
    if "4 workers" not in pods[0].log.read_text():
        raise Failure("the two pods do not train together")
    for pod in reversed(pods):
        pod.evict(60)
    if cluster.steps() >= STEPS:
        raise Failure("the run was complete before the eviction")
    start()
    cluster.finish()


@contextmanager
def etcd(folder: Path) -> Iterator[None]:
    urls = ["--listen-client-urls", f"http://{MACHINE}:2379", "--advertise-client-urls", "http://etcd:2379"]
    argv = ["etcd", "--data-dir", str(folder / "etcd"), *urls, "--listen-peer-urls", f"http://{MACHINE}:2380"]
    with (folder / "etcd.log").open("wb") as log:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
