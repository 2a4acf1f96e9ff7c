"""How each system is called, and in which order. Neither MPI nor PyTorch is needed: no call is made."""

import contextlib
import io
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import arguments
import measure
import mpi
import programs
from places import Loopback, Namespaces
from processes import BenchError
from results import Results
from settings import ALL_REDUCES, PARTS, SIZES, STEPS
from systems import SYSTEMS, Job, Programs, kolo_all_reduce
from trainings import SMOKE, TRAININGS

READY = Programs("/kolo", "/python", "/program.openmpi", "/program.mpich")
LINK = Namespaces(("ns-a", "ns-b"), ("10.77.0.1", "10.77.0.2"), "peers0")
SHM, TCP_4, SLOW = ALL_REDUCES[0], ALL_REDUCES[3], ALL_REDUCES[4]


def commands(name: str, setting, place=None):
    system = next(each for each in SYSTEMS if each.name == name)
    return system.all_reduce(READY, Job(setting, place or Loopback(), Path("/folder"), [4, 1024], 0.5))


class Calls(unittest.TestCase):
    def test_kolo_starts_its_workers_itself_on_one_machine(self):
        (command,) = commands("Kolo", TCP_4)
        words = "bench all-reduce --nproc 4 --sizes 4,1024 --seconds 0.5 --json"
        self.assertEqual(command.argv, ["/kolo", *words.split()])
        self.assertEqual(command.env, {"KOLO_TRANSPORT": "tcp"})

    def test_kolo_is_started_by_hand_in_namespaces_with_one_token(self):
        first, second = commands("Kolo", SLOW, LINK)
        self.assertEqual(first.argv[:5], ["ip", "netns", "exec", "ns-a", "/kolo"])
        self.assertEqual(second.argv[3], "ns-b")
        self.assertEqual((first.env["RANK"], second.env["RANK"]), ("0", "1"))
        self.assertEqual(second.env["MASTER_ADDR"], "10.77.0.1")
        self.assertEqual(first.env["KOLO_TOKEN"], second.env["KOLO_TOKEN"])
        self.assertGreaterEqual(len(first.env["KOLO_TOKEN"]), 32)

    def test_tokens_are_not_used_twice(self):
        job = Job(SLOW, LINK, Path("/folder"), [4], 1.0)
        tokens = {kolo_all_reduce(READY, job)[0].env["KOLO_TOKEN"] for _ in range(3)}
        self.assertEqual(len(tokens), 3)

    def test_gloo_takes_the_interface_of_the_place(self):
        self.assertEqual(commands("Gloo", SHM)[1].env["GLOO_SOCKET_IFNAME"], "lo")
        first, second = commands("Gloo", SLOW, LINK)
        self.assertEqual((first.env["GLOO_SOCKET_IFNAME"], second.argv[3]), ("peers0", "ns-b"))
        self.assertEqual(first.env["PEERS_RENDEZVOUS"], "file:///folder/rendezvous")

    def test_open_mpi_leaves_shared_memory_only_when_told(self):
        self.assertNotIn("btl", commands("Open MPI", SHM)[0].argv)
        line = " ".join(commands("Open MPI", TCP_4)[0].argv)
        self.assertIn("--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo -n 4 /program", line)

    def test_mpich_leaves_shared_memory_only_when_told(self):
        self.assertNotIn("UCX_TLS", commands("MPICH", SHM)[0].argv)
        line = " ".join(commands("MPICH", TCP_4)[0].argv)
        self.assertIn("-genv MPIR_CVAR_NOLOCAL 1 -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES lo", line)

    def test_root_is_allowed_only_for_root(self):
        for user, given in ((0, True), (1000, False)):
            with mock.patch("os.geteuid", return_value=user):
                self.assertEqual("--allow-run-as-root" in commands("Open MPI", SHM)[0].argv, given)

    def test_mpi_reaches_the_other_namespace_by_the_agent(self):
        for name, option in (("Open MPI", "plm_rsh_agent"), ("MPICH", "-launcher-exec")):
            (command,) = commands(name, SLOW, LINK)
            self.assertEqual(command.argv[:4], ["ip", "netns", "exec", "ns-a"])
            self.assertEqual(command.argv[command.argv.index(option) + 1], str(mpi.AGENT))
            self.assertEqual(command.env, {"PEERS_NAMESPACE": "ns-b"})

    def test_trainings(self):
        job = Job(STEPS[1], LINK, Path("/folder"), [], 1.0)
        best = ["--best" in training.step(READY, job, SMOKE)[0].argv for training in TRAININGS]
        self.assertEqual(best, [False, False, True])


class Missing(unittest.TestCase):
    def test_a_missing_mpi_is_a_note_with_its_packages(self):
        found = Results()
        with mock.patch("shutil.which", return_value=None), contextlib.redirect_stderr(io.StringIO()):
            self.assertIsNone(programs.peer(mpi.MPICH, found))
        self.assertIn("apt-get install mpich libmpich-dev", found.notes[0])

    def test_torch_that_cannot_be_installed_is_a_note(self):
        found = Results()
        with mock.patch("environment.prepared_python", side_effect=BenchError("no network")):
            with contextlib.redirect_stderr(io.StringIO()):
                self.assertIsNone(programs.python(None, found))
        self.assertIn("Gloo and PyTorch DDP", found.notes[0])


class Order(unittest.TestCase):
    """A campaign whose programs are answered for here."""

    def campaign(self, programs: Programs = READY) -> tuple[measure.Campaign, list[str]]:
        plan = measure.Plan(programs, ("shm",), 2, [4], 0.1, 0.1, SMOKE, 10.0)
        return measure.Campaign(plan, Results(), lambda: None), []

    def run_with(self, campaign: measure.Campaign, called: list[str], failing: str = "\0") -> None:
        def answer(commands, _timeout):
            called.append(commands[0].name)
            if failing in commands[0].name:
                raise BenchError("on fire")
            return ['{"bytes": 4, "p50_us": 1.5}']

        with mock.patch("measure.run_together", answer), contextlib.redirect_stderr(io.StringIO()):
            campaign.run()

    def test_systems_take_turns(self):
        campaign, called = self.campaign()
        self.run_with(campaign, called)
        turn = [
            "kolo bench all-reduce",
            "kolo bench all-reduce",
            "gloo_all_reduce.py, rank 0,",
            "Open MPI all-reduce",
            "MPICH all-reduce",
        ]
        self.assertEqual(called, turn * 4)
        self.assertEqual(list(campaign.results.rounds("shm-4", "MPICH")), [1, 2])

    def test_a_missing_peer_is_not_called(self):
        campaign, called = self.campaign(replace(READY, python=None, mpich=None))
        self.run_with(campaign, called)
        self.assertEqual(called, ["kolo bench all-reduce", "kolo bench all-reduce", "Open MPI all-reduce"] * 4)

    def test_a_failing_peer_is_noted_and_left_out_of_its_setting(self):
        campaign, called = self.campaign()
        self.run_with(campaign, called, failing="MPICH")
        self.assertEqual(called.count("MPICH all-reduce"), 2)
        self.assertIn("MPICH failed and is left out from round 1 on", campaign.results.notes[0])

    def test_kolo_failing_ends_all(self):
        campaign, called = self.campaign()
        with self.assertRaisesRegex(BenchError, "on fire"):
            self.run_with(campaign, called, failing="kolo")

    def test_a_link_that_cannot_be_made_is_noted(self):
        campaign, called = self.campaign()
        campaign.plan = replace(campaign.plan, parts=("link", "shm"))
        with mock.patch("namespaces.obstacle", return_value=None):
            with mock.patch("namespaces.creating", side_effect=BenchError("no veth")):
                with mock.patch("namespaces.remove"):
                    self.run_with(campaign, called)
        self.assertEqual(len(campaign.results.notes), 2)
        self.assertEqual(len(called), 20)


class Arguments(unittest.TestCase):
    def test_everything_goes_into_the_document(self):
        options = arguments.parse("", [])
        self.assertEqual((options.docs, options.rounds, options.sizes), (arguments.DOCS, 3, SIZES))
        self.assertEqual(options.only, PARTS)

    def test_a_part_goes_there_only_on_demand(self):
        for words in (["--smoke"], ["--only", "tcp,shm"]):
            self.assertIsNone(arguments.parse("", words).docs)
        self.assertEqual(arguments.parse("", ["--only", "tcp,shm"]).only, ("shm", "tcp"))

    def test_nonsense_is_refused(self):
        for words in (["--only", "udp"], ["--sizes", "6"], ["--rounds", "0"], ["--seconds", "-1"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                arguments.parse("", words)


if __name__ == "__main__":
    unittest.main()
