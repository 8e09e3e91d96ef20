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
CUTS = {
    # 45 s of a quiet training job, then 23 s of a network limited to a fraction, then quiet.
    "bandwidth_cap.avro": (1_796_086_450 * SECOND, 1_796_086_526 * SECOND),
    # A storm of context switches leaves the recorder no time for 38 s.
    "collapse.avro": (1_796_087_001 * SECOND, 1_796_087_053 * SECOND),
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
    for name, (start_ns, end_ns) in CUTS.items():
        cut(Path(sys.argv[1]), name, start_ns, end_ns)
