"""Forming of a group by the store that torch gives to its members. A rank whose call differs from that of the group's
first rank reports both to the store, and all ranks that wait raise the same error."""

import secrets
import threading

import torch.distributed as dist

from .. import _native
from .._errors import Error, InvalidCall

# Seconds between two looks for a report.
_TURN = 0.2


def _report_of(mine, theirs):
    """Returns the sentence about two calls (rank, size, ranks of the job), of a rank and of the group's first one."""
    rank, size, ranks = mine
    _, their_size, their_ranks = theirs
    if ranks and their_ranks:
        return (f"new_group of rank {ranks[rank]}: its call is for ranks {ranks}, and that of rank {their_ranks[0]} for ranks "
                f"{their_ranks}; all ranks must call new_group for the same groups in one order")
    return f"forming a group: WORLD_SIZE is {their_size} on rank 0 and {size} on rank {rank}; give all processes the same"


class Forming:
    """A group while it forms, with the address and the token by which its ranks meet."""

    def __init__(self, store, rank, size, ranks, timeout):
        self._store, self._timeout = store, timeout
        self._call = (rank, size, list(ranks))
        self.token, self._address = "", ""

    def serve(self, host):
        """Starts the server of the group's first rank and publishes it."""
        rank, size, ranks = self._call
        self.token = secrets.token_hex(32)
        server = _native.StoreServer(host, size, self.token)
        self._address = server.address
        self._published = f"{self._address} {self.token} {size} {','.join(map(str, ranks))}"
        self._store.set("kolo", self._published)
        return server

    def _other_call(self):
        """Returns the call of the first rank that has published one last."""
        try:
            published = self._store.get("kolo").decode()
        except dist.DistStoreError as error:
            rank, size, ranks = self._call
            call = f"new_group for ranks {ranks}" if ranks else f"init_process_group with WORLD_SIZE {size}"
            raise Error(f"forming a group of rank {rank}: its first rank has not come to this call ({call}); all ranks need the same "
                        f"calls in one order, and one WORLD_SIZE: {error}") from None
        self._address, self.token, size, *ranks = published.split()
        return 0, int(size), [int(rank) for rank in ranks[0].split(",")] if ranks else []

    def join(self):
        """Returns the native group."""
        rank, size, ranks = self._call
        if size == 1:
            return _native.NativeGroup.join(rank, size, "", None, self._timeout, True)
        if rank > 0:
            other = self._other_call()
            if other[1:] != self._call[1:]:
                self._refuse(_report_of(self._call, other))
        outcome = []
        thread = threading.Thread(target=self._join_now, args=(outcome,), name="kolo-forming", daemon=True)
        thread.start()
        while True:
            thread.join(_TURN)
            group, error = (None, None) if thread.is_alive() else outcome[0]
            if group is not None:
                return group
            try:
                self._raise_reported()
            except dist.DistError:
                # The store ends with rank 0's process; the native group names it.
                pass
            if error is not None:
                raise error

    def _join_now(self, outcome):
        rank, size, _ = self._call
        try:
            outcome.append((_native.NativeGroup.join(rank, size, self._address, self.token, self._timeout, True), None))
        except Exception as error:
            outcome.append((None, error))

    def _raise_reported(self):
        store, key = self._reports()
        if store.check([key]):
            raise InvalidCall(store.get(key).decode())
        if self._call[0] == 0 and self._store.get("kolo").decode() != self._published:
            own = self.token
            report, self.token = _report_of(self._call, self._other_call()), own
            self._refuse(report)

    def _reports(self):
        """Returns the store and the key for reports: those of the job's group, if it has formed."""
        world = dist.group.WORLD
        is_formed = hasattr(world, "forming")
        return (world.forming._store, f"kolo {world.forming.token}") if is_formed else (self._store, f"kolo {self.token}")

    def _refuse(self, report):
        store, key = self._reports()
        store.set(key, report)
        raise InvalidCall(report)
