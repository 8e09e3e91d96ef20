"""Hosts' side: collectors, the agent that runs them, and its publisher."""
