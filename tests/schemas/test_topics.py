from schemas.topics import TOPICS


def test_names_are_unique_and_ours() -> None:
    names = [t.name for t in TOPICS]
    assert len(set(names)) == len(names)
    assert all(n.startswith("reveal.") for n in names)


def test_topics_keyed_by_host_have_the_same_partitions() -> None:
    assert len({t.partitions for t in TOPICS if t.key == "host"}) == 1


def test_a_compacted_topic_has_no_retention_and_the_others_have_one() -> None:
    for t in TOPICS:
        config = t.config()
        assert (config["cleanup.policy"] == "compact") == ("retention.ms" not in config)
