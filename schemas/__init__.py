"""Contracts: Avro schemas, the records they describe, the codec, the topics, the settings."""
