"""What a fault has cost, which processes are struck, and what is printed, without any of the systems."""

import contextlib
import io
import json
import os
import signal
import sys
import time
import unittest
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import recovery
import recovery_systems
from processes import BenchError, Command
from recovery_figures import KILL, STOP, Fault, Struck, cost, costs, rendered
from recovery_systems import SYSTEMS, Job, KoloReader, Step, TorchReader
from systems import Programs

READY = Programs("/kolo", "/venv/bin/python", None, None)
JOB = Job(Path("/folder"), 100, 0.045, 20)


def step(unix: float, number: int, generation: int, world: int = 3, samples: int | None = None) -> Step:
    return Step(unix, number, generation, world, 32 * world if samples is None else samples)


class Costs(unittest.TestCase):
    def test_two_continue_with_all_samples_and_the_third_comes_back(self):
        steps = [step(9.9, 40, 1), step(10.2, 41, 2, 2, 96), step(10.3, 42, 2, 2, 96), step(11.5, 43, 3)]
        found = cost(Struck(KILL, 10.0, 40, 1), steps)
        self.assertAlmostEqual(found.next_step, 0.2)
        self.assertAlmostEqual(found.full_strength, 1.5)
        self.assertEqual((found.again, found.skipped), (0, 0))

    def test_two_continue_without_the_samples_of_the_third(self):
        steps = [step(15.0, 41, 2, 2), step(15.0, 41, 2, 2), step(15.1, 42, 2, 2), step(20.0, 43, 3)]
        self.assertEqual(cost(Struck(KILL, 10.0, 40, 1), steps), Fault(KILL, 10.0, 5.0, 10.0, 0, 64))

    def test_all_begin_again_at_a_checkpoint(self):
        # Steps 20 to 40 were done; the checkpoint is of 20 steps.
        steps = [step(18.0, 20, 2), step(18.1, 21, 2)]
        self.assertEqual(cost(Struck(KILL, 10.0, 40, 1), steps), Fault(KILL, 10.0, 8.0, 8.0, 21, 0))

    def test_a_step_that_was_already_on_its_way_is_no_recovery(self):
        steps = [step(10.01, 41, 1), step(12.0, 41, 2, 2), step(13.0, 42, 3)]
        found = cost(Struck(KILL, 10.0, 40, 1), steps)
        self.assertEqual((found.next_step, found.again), (2.0, 1))

    def test_a_step_that_is_missing_leaves_out_a_whole_batch(self):
        self.assertEqual(cost(Struck(KILL, 10.0, 40, 1), [step(11.0, 42, 2)]).skipped, 96)

    def test_each_fault_has_what_came_until_the_next_one(self):
        struck = [Struck(KILL, 10.0, 40, 1), Struck(KILL, 20.0, 60, 2)]
        steps = [step(11.0, 41, 2), step(19.0, 60, 2), step(21.0, 61, 3, 2), step(22.0, 62, 4)]
        first, second = costs(struck, steps)
        self.assertEqual((first.full_strength, second.next_step, second.full_strength), (1.0, 1.0, 2.0))
        self.assertEqual((first.skipped, second.skipped), (18 * 96, 32))

    def test_what_never_came_has_no_seconds(self):
        self.assertEqual(cost(Struck(STOP, 10.0, 40, 1), []), Fault(STOP, 10.0, None, None, 0, 0))


def row(system: str, kind: str, first: float | None, full: float | None, again: int = 0, skipped: int = 0) -> dict:
    return {"row": "fault", "system": system, **Fault(kind, 1.0, first, full, again, skipped).row()}


class Table(unittest.TestCase):
    def test_medians_and_the_worst(self):
        rows = [row("Kolo", KILL, first, first + 1) for first in (0.1, 0.3, 0.2)]
        rows += [row("Kolo", STOP, 5.5, 6.5), {"row": "end", "system": "Kolo", "same": True}]
        rows += [row("torchrun", KILL, 8.0, 8.0, again, 0) for again in (3, 9, 20)]
        rows += [row("torchrun", STOP, None, None), {"row": "end", "system": "torchrun", "same": False}]
        self.assertEqual(
            rendered(rows).splitlines()[2:],
            [
                "| Kolo | 0.20 s / 0.30 s | 1.20 s / 1.30 s | 0 | 0 | yes | 5.50 s | 6.50 s |",
                "| torchrun | 8.00 s | 8.00 s | 9 / 20 | 0 | no | never | never |",
            ],
        )

    def test_one_that_never_came_is_the_worst(self):
        rows = [row("torchft", KILL, 5.0, full) for full in (6.0, None, 9.0)]
        self.assertIn("| 5.00 s | 9.00 s / never |", rendered(rows))

    def test_the_section_names_settings_and_what_was_left_out(self):
        head = {"row": "head", "machine": "a machine", "load": 0.1, "versions": {"Kolo": "kolo 1"}, "date": "a day"}
        head |= {"commit": "c", "command": "x", "kills": 1, "steps": 9, "checkpoint_steps": 2}
        note = {"row": "note", "text": "torchft: no wheel\nmore"}
        text = recovery.section([head, row("Kolo", KILL, 0.1, 1.0), note])
        self.assertIn("- versions: Kolo 1\n", text)
        self.assertIn("- Kolo: as it comes\n- not measured: torchft: no wheel\n", text)


class Reading(unittest.TestCase):
    def kolo(self, trace: list[int], steps: list[int], generation: dict) -> list[Step]:
        with TemporaryDirectory() as text:
            run = Path(text) / "run"
            run.mkdir()
            reader = KoloReader(Path(text))
            self.assertEqual(reader.steps(), [])
            lines = ['{"world_size": 3}', *(f'{{"step": {number}, "count": 96.0}}' for number in trace), '{"st']
            (run.parent / "trace.jsonl").write_text("\n".join(lines))
            (run / "steps.jsonl").write_text("".join(f'{{"step": {n}, "images": 96}}\n' for n in steps))
            (run / "generations.jsonl").write_text(json.dumps(generation) + "\n")
            found = reader.steps()
            with (run.parent / "trace.jsonl").open("a") as file:
                file.write('ep": 99, "count": 96}\n')
            self.assertEqual([step.step for step in reader.steps()], [*(step.step for step in found), 99])
            return found

    def test_kolo_has_times_and_worlds_from_its_generations(self):
        row = {"generation": 2, "world_size": 2, "first_step": 1, "first_step_unix": 7.0}
        first, second = self.kolo([0, 1], [0], row)
        self.assertEqual((first.step, first.generation, first.world), (0, 0, 3))
        self.assertEqual(second, Step(7.0, 1, 2, 2, 96))

    def test_a_step_that_kolo_does_again_is_in_its_trace_twice(self):
        row = {"generation": 2, "world_size": 2, "first_step": 1, "first_step_unix": 7.0}
        found = self.kolo([0, 1, 2, 1, 2], [0, 1, 2], row)
        self.assertEqual([step.generation for step in found], [0, 0, 0, 2, 2])
        self.assertEqual(cost(Struck(KILL, 5.0, 2, 0), found).again, 2)

    def test_a_step_that_the_trace_lacks_is_in_the_run_folder(self):
        row = {"generation": 2, "world_size": 2, "first_step": 2, "first_step_unix": time.time() + 1}
        found = self.kolo([0, 2], [0, 1, 2], row)
        self.assertEqual([(step.step, step.generation) for step in found], [(0, 0), (1, 0), (2, 2)])
        self.assertEqual(cost(Struck(KILL, 5.0, 0, 0), found).skipped, 0)

    def test_the_end_of_an_epoch_is_whole_if_it_has_all_that_is_left(self):
        # 104 batches of 96 images, and 16.
        steps = ((0, 96), (0, 64), (104, 16), (104, 8), (105, 64), (209, 16))
        self.assertEqual([recovery_systems.whole(*step) for step in steps], [96, 64, 96, 8, 64, 96])

    def test_torch_has_a_file_for_each_worker(self):
        with TemporaryDirectory() as text:
            lines = [{"unix": 1.0, "step": 0, "generation": 0, "world": 3, "samples": 96}]
            for pid in (1, 2):
                (Path(text) / f"steps-{pid}.jsonl").write_text(json.dumps(lines[0]) + "\n")
            reader = TorchReader(Path(text))
            self.assertEqual(reader.steps(), [step(1.0, 0, 0)] * 2)
            self.assertEqual(len(reader.steps()), 2)

    def test_workers_that_differ_at_the_end_have_no_one_hash(self):
        with TemporaryDirectory() as text:
            for place, digest in enumerate("aba"):
                (Path(text) / f"weights-{place}").write_text(digest)
            self.assertEqual(recovery_systems.torch_weights(Path(text)), "a b")


class Calls(unittest.TestCase):
    def commands(self, name: str) -> list[Command]:
        system = next(each for each in SYSTEMS if each.name == name)
        return system.commands(READY, JOB)

    def test_kolo_is_launched_and_sleeps_for_each_shard(self):
        (command,) = self.commands("Kolo")
        self.assertEqual(command.argv[:6], ["/kolo", "launch", "--nproc", "3", "--max-restarts", "100"])
        self.assertIn("--slow 2:compute:45 --steps 100", " ".join(command.argv))
        self.assertEqual(command.env["PEERS_RECOVERY"], "/folder")
        (undisturbed,) = SYSTEMS[0].commands(READY, replace(JOB, sleep=0))
        self.assertNotIn("--slow", undisturbed.argv)

    def test_torchft_has_a_lighthouse_and_a_launcher_for_each_worker(self):
        *groups, lighthouse = self.commands("torchft, tuned")
        self.assertEqual([group.env["REPLICA_GROUP_ID"] for group in groups], ["0", "1", "2"])
        self.assertEqual(lighthouse.argv[0], "/venv/bin/torchft_lighthouse")
        self.assertEqual(lighthouse.argv[-2:], ["--heartbeat_timeout_ms", "500"])
        self.assertEqual(groups[0].env["TORCHFT_LIGHTHOUSE"], f"http://{lighthouse.argv[2]}")

    def test_torchrun_is_tuned_by_its_monitor_interval(self):
        (plain,), (tuned,) = self.commands("torchrun"), self.commands("torchrun, tuned")
        self.assertNotIn("--monitor-interval", plain.argv)
        self.assertEqual(plain.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"], "1")
        self.assertIn("--monitor-interval 0.01", " ".join(tuned.argv))
        self.assertEqual(json.loads(plain.argv[-1])["checkpoint_steps"], 20)


WORKER = """
import json, os, sys, time
folder, launcher = sys.argv[1:]
file = open(f"{folder}/steps-{os.getpid()}.jsonl", "a", buffering=1)
generation = 0
while os.getppid() == int(launcher):
    begun = len(open(f"{folder}/starts").read())
    world = 3 if generation == begun else 2
    generation = begun
    file.write(json.dumps(dict(unix=time.time(), step=int(1000 * time.time()) % 10**9, generation=generation,
                               world=world, samples=96)) + "\\n")
    time.sleep(0.01)
"""
LAUNCHER = """
import os, subprocess, sys, time
folder = sys.argv[1]
def begun():
    with open(f"{folder}/starts", "a") as file:
        file.write("x")
    own = dict(os.environ, TORCHELASTIC_RESTART_COUNT="0")
    return subprocess.Popen([sys.executable, "-c", WORKER, folder, str(os.getpid())], env=own)
workers = [begun() for _ in range(3)]
until = time.monotonic() + 60
while time.monotonic() < until:
    for place, worker in enumerate(workers):
        if worker.poll() is not None:
            workers[place] = begun()
    time.sleep(0.01)
"""


class Faults(unittest.TestCase):
    """Strikes workers of a launcher that is made up here, and counts what it has to do."""

    def plan(self, patience: float = 100) -> recovery.Plan:
        return recovery.Plan(READY, [], 2, False, 1000, 20, 0, patience, lambda row: None)

    def system(self, code: str) -> recovery.System:
        def commands(_programs: Programs, job: Job) -> list[Command]:
            code_ = f"WORKER = {WORKER!r}\n{code}"
            return [Command("launcher", [sys.executable, "-c", code_, str(job.folder)], recovery_systems.marked(job))]

        return replace(SYSTEMS[-1], commands=commands)

    def test_a_killed_worker_is_one_of_the_job_and_is_replaced(self):
        system, plan = self.system(LAUNCHER), self.plan()
        with recovery.job(plan, system, 0) as (folder, running):
            faults = recovery.disturbed(plan, system, folder, running, KILL, 2)
            self.assertEqual((folder / "starts").read_text(), "xxxxx")
        self.assertEqual([fault.full_strength is None for fault in faults], [False, False])
        self.assertEqual(recovery_systems.processes(folder), [])

    def test_a_job_that_ends_early_says_what_to_do(self):
        system, plan = self.system("pass"), self.plan()
        with self.assertRaisesRegex(BenchError, "give more --steps"):
            with recovery.job(plan, system, 0) as (folder, running):
                recovery.disturbed(plan, system, folder, running, KILL, 1)

    def test_a_stopped_worker_is_ended_with_its_job(self):
        system, plan = self.system(LAUNCHER), self.plan()
        with recovery.job(plan, system, 0) as (folder, running):
            recovery.settled(plan, system.reader(folder), running, -1)
            worker = recovery_systems.processes(folder, system.worker)[0]
            os.kill(worker, signal.SIGSTOP)
        self.assertEqual(recovery_systems.processes(folder), [])

    def test_other_jobs_processes_are_left_alone(self):
        self.assertNotIn(os.getpid(), recovery_systems.processes(Path("/folder")))

    def test_nothing_in_time_is_said_so(self):
        begun = time.monotonic()
        self.assertFalse(recovery.settled(self.plan(0.2), TorchReader(Path("/nowhere")), [], 0))
        self.assertLess(time.monotonic() - begun, 30)


class Peers(unittest.TestCase):
    def test_a_peer_that_fails_is_noted_and_kolo_is_not(self):
        rows: list[dict] = []
        plan = recovery.Plan(READY, [], 1, False, 1, 1, 0, 5, rows.append)
        failing = lambda *_: [Command("peer", ["/no-such-program"], {})]  # noqa: E731
        recovery.measure(plan, replace(SYSTEMS[1], commands=failing))
        self.assertEqual([found["row"] for found in rows], ["note"])
        self.assertIn("torchft: peer: cannot start", rows[0]["text"])
        with self.assertRaises(BenchError):
            recovery.measure(plan, replace(SYSTEMS[0], commands=failing))

    def test_nonsense_is_refused(self):
        for words in (["--kills", "0"], ["--steps", "x"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                recovery.parse(words)
        with self.assertRaisesRegex(BenchError, "Gloo: none of Kolo; torchft"):
            recovery.measured(recovery.parse(["--only", "Gloo"]))


if __name__ == "__main__":
    unittest.main()
