"""Cuts the raw kernel recordings in this folder out of a whole campaign.

python tests/data/cut.py campaign-a/raw.avro
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fastavro

HERE = Path(__file__).parent
SECOND = 1_000_000_000
HALF_A_TICK = 50_000_000
"""A sample of 10.995 s is of the tick at 11 s."""
CUTS = {
    # 52 s of a quiet training job, then 13 s of a flood of UDP through rank0, then quiet.
    "udp_flood.avro": (1_796_086_530, 1_796_086_602),
    # A storm of context switches leaves the recorder no time for 38 s.
    "collapse.avro": (1_796_087_001, 1_796_087_053),
}
BLOCK_BYTES = 4 << 20
LEVEL = 19


def cut(whole: Path, name: str, start_ns: int, end_ns: int) -> None:
    """Write the samples of [start, end) to a file of this folder."""
    with whole.open("rb") as file, (HERE / name).open("wb") as out:
        reader: Any = fastavro.reader(file)
        fastavro.writer(
            out,
            reader.writer_schema,
            (s for s in reader if start_ns <= s["wall_ns"] < end_ns),
            codec="zstandard",
            sync_interval=BLOCK_BYTES,
            codec_compression_level=LEVEL,
        )


if __name__ == "__main__":
    for name, (start, end) in CUTS.items():
        cut(Path(sys.argv[1]), name, start * SECOND - HALF_A_TICK, end * SECOND - HALF_A_TICK)
