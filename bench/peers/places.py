"""Where ranks run: on this machine's loopback interface, or one in each of two joined network namespaces."""

from dataclasses import dataclass

LOOPBACK_INTERFACE = "lo"


@dataclass(frozen=True)
class Loopback:
    """All ranks in the network that this program runs in."""

    interface: str = LOOPBACK_INTERFACE

    def inside(self, _rank: int, argv: list[str]) -> list[str]:
        return argv


@dataclass(frozen=True)
class Namespaces:
    """Rank r in the namespace `names[r]`, in which it is at `addresses[r]`."""

    names: tuple[str, str]
    addresses: tuple[str, str]
    interface: str

    def inside(self, rank: int, argv: list[str]) -> list[str]:
        return inside(self.names[rank], argv)


def inside(namespace: str, argv: list[str]) -> list[str]:
    """The command that runs another one in a network namespace."""
    return ["ip", "netns", "exec", namespace, *argv]


Place = Loopback | Namespaces
