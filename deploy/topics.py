"""``reveal topics``: the topics on a real Kafka cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from deploy.errors import NoBroker
from deploy.rundir import ViewSettings, find_brokers
from deploy.wording import count_of
from schemas.errors import RevealError
from schemas.flags import with_settings
from schemas.settings import Kafka, Resolved
from schemas.topics import TOPICS, Topic

TIMEOUT_S = 10.0
CREATE_TIMEOUT_S = 30.0


class TopicsDiffer(RevealError):
    """A topic could not be created, or is not as it must be."""


@click.group()
def topics() -> None:
    """List or create the topics on a Kafka cluster."""


@topics.command(name="list")
@with_settings(kafka=Kafka, view=ViewSettings)
def list_topics(settings: Resolved) -> None:
    """Print every topic: partitions, retention, what is in it, and how it is on the cluster."""
    brokers = _brokers(settings)
    found = existing(_admin(brokers), brokers)
    for topic in TOPICS:
        click.echo(
            f"{topic.name:<20} {count_of(topic.partitions, 'partition'):<14}{_retention(topic):<20}"
            f" {topic.purpose:<32} {_compare(topic, found) or 'as it should be'}"
        )


@topics.command()
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Copies of each partition. By default the brokers' own default.",
)
@with_settings(kafka=Kafka, view=ViewSettings)
def create(settings: Resolved, replication_factor: int | None) -> None:
    """Create the topics that are not there. Those that are stay as they are."""
    brokers = _brokers(settings)
    admin = _admin(brokers)
    found = existing(admin, brokers)
    missing = [topic for topic in TOPICS if topic.name not in found]
    failed = create_topics(admin, missing, replication_factor)
    for topic in TOPICS:
        if topic.name in failed:
            click.echo(f"{topic.name}: {failed[topic.name]}")
        elif topic.name in found:
            click.echo(f"{topic.name}: {_compare(topic, found) or 'there already'}")
        else:
            click.echo(
                f"{topic.name}: created, {count_of(topic.partitions, 'partition')},"
                f" {_retention(topic)}"
            )
    if failed:
        raise TopicsDiffer(f"{len(failed)} of {len(missing)} topics could not be created")


def existing(admin: Any, brokers: str) -> dict[str, int]:
    """Return the cluster's topics with their partition counts."""
    try:
        metadata = admin.list_topics(timeout=TIMEOUT_S)
    except KafkaException as e:
        raise NoBroker(f"no Kafka broker answers at {brokers}: {e.args[0].str()}") from None
    return {
        name: len(topic.partitions)
        for name, topic in metadata.topics.items()
        if topic.error is None
    }


def create_topics(
    admin: Any, missing: list[Topic], replication_factor: int | None
) -> dict[str, str]:
    """Create topics; return what went wrong, by topic. One that is there by now is fine."""
    if not missing:
        return {}
    wanted = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            # -1: the brokers' own default (KIP-464).
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=topic.config(),
        )
        for topic in missing
    ]
    failed = {}
    for name, future in admin.create_topics(wanted, request_timeout=CREATE_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as e:
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                failed[name] = e.args[0].str()
    return failed


def _compare(topic: Topic, found: Mapping[str, int]) -> str:
    """Say how a topic differs on the cluster; nothing when it does not."""
    count = found.get(topic.name)
    if count is None:
        return "not there"
    if count != topic.partitions:
        return f"there with {count} partitions, not {topic.partitions}"
    return ""


def _retention(topic: Topic) -> str:
    if topic.retention_ms is None:
        return "newest of each key"
    return count_of(topic.retention_ms / 86_400_000, "day")


def _brokers(settings: Resolved) -> str:
    return find_brokers(settings.get("kafka", Kafka), settings.get("view", ViewSettings))


def _admin(brokers: str) -> Any:
    return AdminClient({"bootstrap.servers": brokers, "log_level": 0})
