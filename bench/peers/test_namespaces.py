"""The link is made by the right commands and is gone afterwards, whatever happens; this needs no root."""

import os
import socket
import threading
import time
import unittest
from unittest import mock

import link_rate
import namespaces
from processes import BenchError
from settings import GBIT


class Machine:
    """Stands in for `ip` and `tc`: remembers what was asked, knows which namespaces there are."""

    def __init__(self, fails_at: str = "\0"):
        self.fails_at, self.asked = fails_at, []
        self.there = ["somebody-elses"]

    def __call__(self, argv: list[str]) -> str:
        line = " ".join(argv)
        self.asked.append(line)
        if self.fails_at in line:
            raise BenchError(f"no {self.fails_at}")
        if line.startswith("ip netns add"):
            self.there.append(argv[3])
        if line.startswith("ip netns del"):
            self.there.remove(argv[3])
        return "\n".join(f"{name} (id: 1)" for name in self.there) if line == "ip netns list" else ""


class Link(unittest.TestCase):
    def test_both_ends_are_shaped_before_they_are_up(self):
        machine = Machine()
        with namespaces.shaped_link(GBIT, machine) as place:
            asked = list(machine.asked)
        for name in place.names:
            shaped = asked.index(
                f"tc -n {name} qdisc add dev peers0 root tbf rate 1000000000bit burst 32768 latency 50ms"
            )
            self.assertLess(asked.index(f"ip -n {name} link set peers0 gso_max_size 16384"), shaped)
            self.assertLess(shaped, asked.index(f"ip -n {name} link set peers0 up"))

    def test_only_our_own_are_removed_however_it_ends(self):
        for failure in (None, ZeroDivisionError, KeyboardInterrupt, SystemExit):
            machine = Machine()
            try:
                with namespaces.shaped_link(GBIT, machine) as place:
                    self.assertEqual(machine.there[1:], list(place.names))
                    if failure:
                        raise failure
            except (ZeroDivisionError, KeyboardInterrupt, SystemExit):
                pass
            self.assertEqual(machine.there, ["somebody-elses"])

    def test_half_a_link_is_removed(self):
        machine = Machine(fails_at="qdisc")
        with self.assertRaisesRegex(BenchError, "no qdisc"), namespaces.shaped_link(GBIT, machine):
            self.fail("there is no link")
        self.assertEqual(machine.there, ["somebody-elses"])

    def test_names_are_this_process_own(self):
        for name in namespaces.names():
            self.assertIn(str(os.getpid()), name)

    def test_packets_fit_into_the_burst_and_the_burst_into_a_millisecond(self):
        for rate, shape in namespaces.SHAPES.items():
            self.assertEqual(rate, shape.rate)
            self.assertLess(shape.largest_packet, shape.burst)
            self.assertLess(8 * shape.burst / rate, 1e-3)

    def test_what_stands_in_the_way_is_said(self):
        with mock.patch("os.geteuid", return_value=1000):
            self.assertIn("root", namespaces.obstacle() or "")
        with mock.patch("os.geteuid", return_value=0), mock.patch("shutil.which", return_value=None):
            self.assertIn("apt-get install iproute2", namespaces.obstacle() or "")
        with mock.patch("os.geteuid", return_value=0), mock.patch("shutil.which", return_value="/sbin/ip"):
            self.assertIsNone(namespaces.obstacle())


class Rate(unittest.TestCase):
    def test_received_bytes_are_divided_by_their_time(self):
        near, far = socket.socketpair()
        with near, far:
            sender = threading.Thread(target=link_rate.send, args=(near, 0.2))
            began = time.monotonic()
            sender.start()
            rate = link_rate.receive(far)
            sender.join(10)
        self.assertGreater(rate, 1e6)
        self.assertLess(time.monotonic() - began, 10)

    def test_nothing_received_is_no_rate(self):
        near, far = socket.socketpair()
        with near, far:
            near.close()
            with self.assertRaisesRegex(SystemExit, "more seconds"):
                link_rate.receive(far)


if __name__ == "__main__":
    unittest.main()
