"""Composition root: the reveal command line and the one-machine stack."""
