"""librdkafka's mock cluster, from the library that is bundled with confluent-kafka.

It speaks Kafka's protocol well enough for produce, fetch, consumer groups, commits, idempotence
and every codec (librdkafka, ``src/rdkafka_mock.h``). Its limits: memory only, about 5 MB of
compressed messages a partition with the oldest dropped, no admin calls, no compaction, loopback
only, and the system chooses the ports.

Its threads do not survive a fork, and a broken call takes the process down: `deploy.local` runs
it in a process of its own.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from deploy.errors import NoEmbeddedBroker
from schemas.topics import Topic

ALL_BROKERS = -1
PRODUCER = 0
NUDGE_S = 0.02

_handle, _int, _int16, _int32, _size = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int16,
    ctypes.c_int32,
    ctypes.c_size_t,
)
_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "rd_kafka_conf_new": (_handle, ()),
    "rd_kafka_conf_set": (
        _int,
        (_handle, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, _size),
    ),
    "rd_kafka_new": (_handle, (_int, _handle, ctypes.c_char_p, _size)),
    "rd_kafka_err2str": (ctypes.c_char_p, (_int,)),
    "rd_kafka_mock_cluster_new": (_handle, (_handle, _int)),
    "rd_kafka_mock_cluster_bootstraps": (ctypes.c_char_p, (_handle,)),
    "rd_kafka_mock_topic_create": (_int, (_handle, ctypes.c_char_p, _int, _int)),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, (_handle, _int32)),
    "rd_kafka_mock_broker_set_down": (_int, (_handle, _int32)),
    "rd_kafka_mock_broker_set_up": (_int, (_handle, _int32)),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        (_handle, _int16, _size, ctypes.POINTER(_int)),
    ),
}


def find_library() -> str:
    """Return where librdkafka is: in confluent-kafka's wheel, else the system's.

    Raises
    ------
    NoEmbeddedBroker
        Neither is there.
    """
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise NoEmbeddedBroker("the embedded broker is part of confluent-kafka: pip install it")
    bundle = Path(spec.origin).parent.parent / "confluent_kafka.libs"
    for file in sorted(bundle.glob("librdkafka*.so*")):
        return str(file)
    system = ctypes.util.find_library("rdkafka")
    if system is not None:
        return system
    raise NoEmbeddedBroker(
        f"no librdkafka in {bundle} nor on the system: install confluent-kafka from its wheel,"
        " or use a Kafka of your own with --brokers host:port"
    )


def load_library() -> ctypes.CDLL:
    """Return librdkafka with the signatures of what is called here.

    Raises
    ------
    NoEmbeddedBroker
        There is none, or it has no mock cluster.
    """
    path = find_library()
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as e:
        raise NoEmbeddedBroker(f"{path} cannot be used: {e}") from e
    return library


class MockCluster:
    """A cluster that lives as long as this process.

    Attributes
    ----------
    bootstrap
        ``host:port`` of every broker, comma-separated. Brokers are numbered from 1.
    """

    def __init__(self, brokers: int = 1, *, rebalance_delay_ms: int = 500) -> None:
        self._library = lib = load_library()
        self._caller = ThreadPoolExecutor(1)
        text = ctypes.create_string_buffer(512)
        conf = lib.rd_kafka_conf_new()
        # The client that carries the cluster has no brokers itself, and would warn of that.
        lib.rd_kafka_conf_set(conf, b"log_level", b"3", text, len(text))
        client = lib.rd_kafka_new(PRODUCER, conf, text, len(text))
        if not client:
            raise NoEmbeddedBroker(f"librdkafka: {text.value.decode()}")
        self._cluster = lib.rd_kafka_mock_cluster_new(client, brokers)
        if not self._cluster:
            raise NoEmbeddedBroker(f"librdkafka made no mock cluster of {brokers} brokers")
        lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, rebalance_delay_ms)
        self.bootstrap: str = lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topics: Iterable[Topic]) -> None:
        """Create topics with their partition counts."""
        for topic in topics:
            self._call(
                f"topic {topic.name}",
                self._library.rd_kafka_mock_topic_create,
                topic.name.encode(),
                topic.partitions,
                1,
            )

    def set_down(self, broker: int = ALL_BROKERS) -> None:
        """Close a broker's connections and accept no new ones; what it holds is kept."""
        self._call(f"broker {broker} down", self._library.rd_kafka_mock_broker_set_down, broker)

    def set_up(self, broker: int = ALL_BROKERS) -> None:
        """Accept connections again, on the same port."""
        self._call(f"broker {broker} up", self._library.rd_kafka_mock_broker_set_up, broker)

    def push_request_errors(self, api_key: int, codes: Iterable[int]) -> None:
        """Answer the next requests of a kind with these error codes, one each.

        Both are the protocol's numbers: 11 is JoinGroup, 14 SyncGroup, 25 UNKNOWN_MEMBER_ID
        (Kafka protocol guide, "API Keys" and "Error Codes").
        """
        array = [*codes]
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, api_key, len(array), (ctypes.c_int * len(array))(*array)
        )

    def _call(self, what: str, function: Any, *arguments: Any) -> None:
        """Call a function that the cluster's own thread carries out.

        That thread can miss the request and sleep on for a second; a connection wakes it.
        """
        pending = self._caller.submit(function, self._cluster, *arguments)
        while True:
            try:
                error = pending.result(NUDGE_S)
                break
            except TimeoutError:
                host, port = self.bootstrap.split(",")[0].rsplit(":", 1)
                with suppress(OSError):
                    socket.create_connection((host, int(port)), NUDGE_S).close()
        if error:
            text = self._library.rd_kafka_err2str(error).decode()
            raise NoEmbeddedBroker(f"embedded broker: {what}: {text}")
