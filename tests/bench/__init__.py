"""What Reveal costs, measured beside what it is compared with: ``python -m tests.bench``."""
