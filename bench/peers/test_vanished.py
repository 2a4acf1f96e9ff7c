"""Hosts are made and removed by the right commands, each system is called on them, and a lost host's steps are
counted, without any of the systems and without root."""

import json
import os
import sys
import time
import unittest
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import hosts
import recovery
import recovery_systems
import vanished
from processes import BenchError, Command
from recovery_figures import CUT, rendered_cuts
from recovery_systems import Job
from systems import Programs
from test_namespaces import Machine
from vanished_systems import ALL, HOST_SYSTEMS, HostSystem

READY = Programs("/kolo", "/venv/bin/python", None, None)
AT = hosts.place(3, Path("/tables"))


class Made(unittest.TestCase):
    def test_every_host_is_at_the_switch_by_a_link_of_its_own(self):
        machine = Machine()
        with hosts.joined(3, machine) as at:
            self.assertEqual(machine.there[1:], list(at.names))
            self.assertEqual(at.table.read_text().splitlines()[1:3], ["10.78.0.1 host0", "10.78.0.2 host1"])
        for host, name in enumerate(at.names[:-1]):
            pair = f"ip -n {at.names[-1]} link add link{host} type veth peer name eth0 netns {name}"
            up = f"ip -n {at.names[-1]} link set link{host} master switch up"
            self.assertLess(machine.asked.index(pair), machine.asked.index(up))
            self.assertIn(f"ip -n {name} addr add 10.78.0.{host + 1}/24 dev eth0", machine.asked)

    def test_only_our_own_are_removed_however_it_ends(self):
        for failure in (None, ZeroDivisionError, KeyboardInterrupt, SystemExit):
            machine = Machine()
            try:
                with hosts.joined(3, machine):
                    if failure:
                        raise failure
            except (ZeroDivisionError, KeyboardInterrupt, SystemExit):
                pass
            self.assertEqual(machine.there, ["somebody-elses"])

    def test_half_of_them_are_removed(self):
        machine = Machine(fails_at="type veth")
        with self.assertRaisesRegex(BenchError, "no type veth"), hosts.joined(3, machine):
            self.fail("there are no hosts")
        self.assertEqual(machine.there, ["somebody-elses"])

    def test_a_link_goes_down_at_the_switch(self):
        self.assertEqual(" ".join(AT.cutting(1)), f"ip -n {AT.names[-1]} link set link1 down")
        self.assertEqual(AT.inside(1, ["x"])[:4], ["ip", "netns", "exec", AT.names[1]])
        self.assertEqual(AT.inside(1, ["x"])[-3:], ["/tables/hosts", "host1", "x"])


class Calls(unittest.TestCase):
    def commands(self, name: str) -> list[Command]:
        system = next(each for each in HOST_SYSTEMS if each.name == name)
        found = system.commands(READY, Job(Path("/folder"), 100, 0.045, 20, AT))
        for host, command in enumerate(found[:3]):
            self.assertIn(AT.names[host], command.argv)
            self.assertEqual(command.env["PEERS_RECOVERY"], "/folder")
        return found

    def test_kolo_has_a_launcher_on_each_host_which_finds_the_job_at_any(self):
        first, *others = self.commands("Kolo")
        master = "--master 10.78.0.1:29500,10.78.0.2:29500,10.78.0.3:29500"
        for host, command in enumerate([first, *others]):
            line = " ".join(command.argv)
            self.assertIn(f"launch --nnodes 3 --node-rank {host} --nproc 1 {master}", line)
            self.assertEqual(command.env["KOLO_VERIFY_FILE"], f"/folder/trace-{host}.jsonl")
            self.assertEqual(command.env["KOLO_TOKEN"], first.env["KOLO_TOKEN"])
            self.assertNotIn("KOLO_HOST_TIMEOUT", command.env)
        self.assertEqual({each.env["KOLO_HOST_TIMEOUT"] for each in self.commands("Kolo, tuned")}, {"2"})

    def test_torchft_has_its_lighthouse_on_the_host_that_stays(self):
        *groups, lighthouse = self.commands("torchft, tuned")
        self.assertEqual(len(groups), 3)
        self.assertIn(AT.names[-1], lighthouse.argv)
        self.assertEqual({group.env["TORCHFT_LIGHTHOUSE"] for group in groups}, {"http://10.78.0.254:29500"})
        self.assertEqual(json.loads(groups[1].argv[-1])["hostname"], "10.78.0.2")

    def test_torchrun_meets_at_a_host_that_is_never_cut_off(self):
        plain, tuned = self.commands("torchrun"), self.commands("torchrun, tuned")
        for host, command in enumerate(plain):
            meeting = f"--nnodes 2:3 --rdzv-backend c10d --rdzv-id recovery --rdzv-endpoint {AT.addresses[0]}:29500"
            self.assertIn(f"{meeting} --rdzv-conf is_host={int(host == 0)} --nproc", " ".join(command.argv))
        self.assertIn("last_call_timeout=1,keep_alive_interval=1", " ".join(tuned[2].argv))
        self.assertEqual({host for each in HOST_SYSTEMS if "torchrun" in each.name for host in each.cut}, {1, 2})

    def test_a_job_without_hosts_is_our_own_mistake(self):
        with self.assertRaises(ValueError):
            HOST_SYSTEMS[0].commands(READY, Job(Path("/folder"), 100, 0.045, 20))


def row(system: str, first: float | None, again: int = 0, same: bool | None = True, alone: int = 0) -> dict:
    known = {"kind": CUT, "unix": 1.0, "next_step": first, "full_strength": None, "again": again, "share": again / 4}
    return {"row": CUT, "system": system, "host": 0, **known, "same": same, "alone": alone}


class Table(unittest.TestCase):
    def test_medians_and_the_worst(self):
        rows = [row("Kolo", first) for first in (9.5, 10.5, 9.6)]
        rows += [row("torchft", 5.0, 2), row("torchft", 6.0, 3, False), row("torchft", 5.5, 2, alone=7)]
        rows += [row("torchrun", None, same=None)] * 3
        names = ["Kolo", "Kolo, tuned", "torchft", "torchrun"]
        self.assertEqual(
            rendered_cuts(rows, names).splitlines()[2:],
            [
                "| Kolo | 9.60 s / 10.5 s | 0 | 0 % | yes | 0 |",
                "| torchft | 5.50 s / 6.00 s | 2 / 3 | 50 % / 75 % | no | 0 / 7 |",
                "| torchrun | never |  |  |  | 0 |",
            ],
        )

    def test_the_section_has_what_was_measured(self):
        head = {"row": "head", "machine": "a machine", "load": 0.1, "versions": {"Kolo": "kolo 1"}, "date": "a day"}
        head |= {"commit": "c", "command": "x", "kills": 3, "steps": 9, "checkpoint_steps": 2, "patience": 70}
        text = vanished.section([head, row("Kolo, tuned", 3.0), {"row": "note", "text": "torchft: no wheel"}])
        self.assertIn("- Kolo, tuned: `KOLO_HOST_TIMEOUT=2`\n- not measured: torchft: no wheel\n", text)
        self.assertIn("not within 70 s", text)


WORKER = """
import json, os, sys, time
host, folder = int(sys.argv[1]), sys.argv[2]
file = open(f"{folder}/steps-{host}-{os.getpid()}.jsonl", "a", buffering=1)
step = 0
while step < 10**9:
    cut = os.path.exists(f"{folder}/cut")
    if host == 2 and cut and not MAY_GO_ON:
        time.sleep(100)
    if host != 2 and cut and os.path.getmtime(f"{folder}/cut") + 3 < time.time():
        open(f"{folder}/weights-{host}", "w").write("a")
        sys.exit()
    file.write(json.dumps(dict(unix=time.time(), step=step, generation=int(cut), world=2 if cut else 3,
                               samples=96)) + "\\n")
    step += 1
    time.sleep(0.01)
"""


class Cuts(unittest.TestCase):
    """Cuts off a host of a job that is made up here."""

    def cut(self, may_go_on: bool) -> dict:
        """What is saved of a cut, where the host goes on alone or does not."""
        with TemporaryDirectory() as text:
            folders: list[Path] = []

            def commands(_programs: Programs, job: Job) -> list[Command]:
                folders.append(job.folder)
                code = f"MAY_GO_ON = {may_go_on}\n{WORKER}"
                env = recovery_systems.marked(job)
                argv = [sys.executable, "-c", code]
                return [Command(f"host {n}", [*argv, str(n), str(job.folder)], env) for n in ALL]

            @contextmanager
            def joined(_count: int):
                yield replace(AT, table=Path(text))

            system: HostSystem = replace(HOST_SYSTEMS[-1], commands=commands)
            plan = recovery.Plan(READY, [], 1, False, 1000, 20, 0, 100, lambda row: None)
            with (
                mock.patch("hosts.joined", joined),
                mock.patch("hosts.Hosts.cut", lambda _at, host: (folders[0] / "cut").touch()),
                mock.patch("vanished.WATCHED", 3),
            ):
                return vanished.cut(plan, system, 2, "a")

    def test_the_others_go_on_and_the_lost_host_does_nothing(self):
        found = self.cut(may_go_on=False)
        self.assertEqual((found["host"], found["same"], found["alone"]), (2, True, 0))
        self.assertGreater(found["next_step"], 0)
        self.assertEqual(found["share"], 0)

    def test_steps_that_the_lost_host_does_alone_are_counted(self):
        self.assertGreater(self.cut(may_go_on=True)["alone"], 0)

    def test_a_peer_that_fails_is_noted_and_kolo_is_not(self):
        rows: list[dict] = []
        plan = recovery.Plan(READY, [], 1, False, 1, 1, 0, 5, rows.append)
        failing = lambda *_: [Command("peer", ["/no-such-program"], {})]  # noqa: E731
        for system in HOST_SYSTEMS[::5]:
            broken = replace(system, one_host=replace(system.one_host, commands=failing))
            if system.needs == "kolo":
                with self.assertRaises(BenchError):
                    vanished.measure(plan, broken)
            else:
                vanished.measure(plan, broken)
        self.assertIn("torchrun, tuned: peer: cannot start", rows[0]["text"])

    def test_without_root_nothing_is_begun(self):
        with mock.patch("os.geteuid", return_value=1000), self.assertRaisesRegex(BenchError, "need root"):
            vanished.measured(vanished.parse([]))


if __name__ == "__main__":
    unittest.main()
