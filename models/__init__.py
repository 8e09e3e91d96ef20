"""Features, detectors, fusion, episodes: arrays in, arrays out; no Kafka and no Avro."""
