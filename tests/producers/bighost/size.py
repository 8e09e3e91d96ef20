"""How large the host is, and what its parts are called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """How many of what."""

    cores: int = 48
    sockets: int = 2
    memory_gib: int = 512
    disks: int = 4
    ethernet: int = 2
    infiniband: int = 4

    def __post_init__(self) -> None:
        if self.cores % self.sockets:
            raise ValueError(f"{self.cores} cores on {self.sockets} sockets")

    @property
    def per_socket(self) -> int:
        """Cores of a socket, which is a NUMA node, too."""
        return self.cores // self.sockets

    @property
    def nvme(self) -> list[str]:
        """Controllers."""
        return [f"nvme{n}" for n in range(self.disks)]

    @property
    def adapters(self) -> list[tuple[str, str, str]]:
        """Mellanox adapters: RDMA device, interface, PCI address; first those for InfiniBand."""
        count = self.infiniband + self.ethernet
        return [
            (
                f"mlx5_{n}",
                f"ib{n}" if n < self.infiniband else f"ens{n - self.infiniband + 1}np0",
                f"0000:{0x17 + 0x11 * n:02x}:00.0",
            )
            for n in range(count)
        ]

    @property
    def gpus(self) -> list[str]:
        """PCI addresses of four GPUs, of which the kernel knows no more than that."""
        return [f"0000:{0x1B + 0x20 * n:02x}:00.0" for n in range(4)]

    @property
    def online(self) -> str:
        """All cores, as the kernel writes a list."""
        return f"0-{self.cores - 1}"

    def socket(self, n: int) -> str:
        """Return a socket's cores, as the kernel writes a list."""
        return f"{n * self.per_socket}-{(n + 1) * self.per_socket - 1}"
