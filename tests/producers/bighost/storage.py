"""Disks: diskstats, md, and NFS."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import ZERO, Files, Number, counter, fixed, level, table

SECTORS_A_REQUEST = 96
MOUNTS = {"/home": 0.2, "/data": 1.0}
OPERATIONS = table(
    """
    NULL 0  READ 400  WRITE 150  COMMIT 3  OPEN 40  OPEN_CONFIRM 0  OPEN_NOATTR 9
    OPEN_DOWNGRADE 0.1  CLOSE 48  SETATTR 2  FSINFO 0.001  RENEW 0  SETCLIENTID 0
    SETCLIENTID_CONFIRM 0  LOCK 0.1  LOCKT 0  LOCKU 0.1  ACCESS 60  GETATTR 310  LOOKUP 45
    LOOKUP_ROOT 0  REMOVE 1  RENAME 0.6  LINK 0  SYMLINK 0  CREATE 0.2  PATHCONF 0.001  STATFS 0.1
    READLINK 0.5  READDIR 2  SERVER_CAPS 0.002  DELEGRETURN 5  GETACL 0  SETACL 0  FS_LOCATIONS 0
    RELEASE_LOCKOWNER 0  SECINFO 0  FSID_PRESENT 0  EXCHANGE_ID 0.001  CREATE_SESSION 0.001
    DESTROY_SESSION 0  SEQUENCE 0.02
    """
)
"""What an NFS client asks for, and how often a second."""


def add(files: Files, size: Size) -> None:
    """Add the files."""
    _diskstats(files, size)
    files.text(
        "proc/mdstat",
        "Personalities : [raid1] \n"
        "md127 : active raid1 nvme1n1p1[1] nvme0n1p1[0]\n"
        "      1046528 blocks super 1.2 [2/2] [UU]\n"
        "      \nunused devices: <none>",
    )
    for n, name in enumerate(size.nvme):
        root = f"sys/class/nvme/{name}"
        files.text(f"{root}/model", "SAMSUNG MZWLR3T8HBLS-00007              ")
        files.text(f"{root}/serial", f"S6EXNE0R{n:06}      ")
        files.text(f"{root}/firmware_rev", "MPK94R5Q")
        files.text(f"{root}/state", "live")
        files.text(f"sys/block/{name}n1/queue/rotational", "0")
        files.one(f"sys/block/{name}n1/size", fixed(7_501_476_528))
    for dm, name in enumerate(("vg0-root", "vg0-scratch")):
        files.text(f"sys/block/dm-{dm}/dm/name", name)
    array = "sys/block/md127/md"
    files.text(f"{array}/sync_action", "idle")
    files.one(f"{array}/degraded", ZERO)
    files.one(f"{array}/mismatch_cnt", ZERO)
    for name in size.nvme[:2]:
        files.one(f"{array}/dev-{name}n1p1/errors", ZERO)
    _mountstats(files)
    files.add(
        "proc/net/rpc/nfs",
        "net %d %d %d %d\nrpc %d %d %d\nproc3 22" + " %d" * 22 + "\nproc4 69" + " %d" * 69 + "\n",
        *(ZERO, ZERO, ZERO, ZERO, counter(1100), counter(0.01), counter(1100)),
        *[ZERO] * 22,
        *(counter(40 if n % 3 == 0 else 0) for n in range(69)),
    )


def _diskstats(files: Files, size: Size) -> None:
    disks: list[tuple[int, int, str, float]] = [(7, n, f"loop{n}", 0) for n in range(8)]
    for n, name in enumerate(size.nvme):
        disks.append((259, 4 * n, f"{name}n1", 1 + n / 3))
        if n < 2:
            disks += ((259, 4 * n + p, f"{name}n1p{p}", 0.3) for p in (1, 2))
    disks += ((9, 127, "md127", 0.2), (253, 0, "dm-0", 0.7), (253, 1, "dm-1", 0.1))
    lines: list[str] = []
    numbers: list[Number] = []
    for major, minor, name, busy in disks:
        lines.append(f"{major:4} {minor:7} {name}{' %d' * 17}\n")
        reads, writes = 700 * busy, 520 * busy
        numbers += (
            *(counter(reads), counter(reads / 50), counter(reads * SECTORS_A_REQUEST)),
            counter(0.3 * reads, bits=32),
            *(counter(writes), counter(writes / 9), counter(writes * SECTORS_A_REQUEST)),
            counter(0.5 * writes, bits=32),
            level(4 * busy, 0.5),
            *(counter(260 * busy, bits=32), counter(480 * busy, bits=32)),
            *(counter(0.4 * busy), ZERO, counter(800 * busy), counter(0.1 * busy, bits=32)),
            *(counter(6 * busy), counter(4 * busy, bits=32)),
        )
    files.add("proc/diskstats", "".join(lines), *numbers)


def _mountstats(files: Files) -> None:
    text = ["device rootfs mounted on / with fstype rootfs\n"]
    text.append("device proc mounted on /proc with fstype proc\n")
    text.append("device sysfs mounted on /sys with fstype sysfs\n")
    text.append("device tmpfs mounted on /dev/shm with fstype tmpfs\n")
    numbers: list[Number] = []
    for mount, busy in MOUNTS.items():
        text.append(
            f"device filer1:/export{mount} mounted on {mount} with fstype nfs4 statvers=1.1\n"
            "\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,"
            "acdirmin=30,acdirmax=60,hard,proto=tcp,timeo=600,retrans=2,sec=sys,"
            "clientaddr=10.0.0.7,local_lock=none\n"
            "\tage:\t%d\n"
            "\timpl_id:\tname='',domain='',date='0,0'\n"
            "\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255\n"
            "\tnfsv4:\tbm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x68800,acl=0x3,sessions,"
            "pnfs=not configured,lease_time=90,lease_expired=0\n"
            "\tsec:\tflavor=1,pseudoflavor=1\n"
            f"\tevents:\t{' '.join(['%d'] * 27)} \n"
            f"\tbytes:\t{' '.join(['%d'] * 8)} \n"
            "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
            "\txprt:\ttcp 895 0 2 0 24 %d %d %d %d %d %d %d %d\n"
            "\tper-op statistics\n"
        )
        numbers.append(counter(1, since_s=3e6))
        numbers += (counter(busy * 11 * n) for n in range(27))
        numbers += (counter(busy * rate) for rate in (9e6, 4e6, 0, 0, 9e6, 4e6, 2200, 980))
        numbers += (counter(busy * r) for r in (1100, 1100, 0.001, 2e4, 0))
        numbers += (fixed(52), counter(busy * 900), counter(busy * 1200))
        for name, rate in OPERATIONS.items():
            text.append(f"\t{name:>12}: %d %d %d %d %d %d %d %d %d\n")
            ops = busy * rate
            per_op = (1, 1.001, 0.0001, 210, 540, 0.02, 0.8, 0.9, 0.001)
            numbers += (counter(ops * each) for each in per_op)
        text.append("\n")
    files.link("proc/self", "proc/1")
    files.add("proc/1/mountstats", "".join(text), *numbers)
    mounts = ["21 27 0:20 / /proc rw - proc proc rw", "27 1 253:0 / / rw - ext4 /dev/dm-0 rw"]
    mounts += (
        f"{90 + n} 27 0:{60 + n} / {mount} rw - nfs4 filer1:/export{mount} rw,vers=4.2"
        for n, mount in enumerate(MOUNTS)
    )
    files.text("proc/1/mountinfo", "\n".join(mounts))
