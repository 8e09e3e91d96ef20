"""Events of the processor and the kernel, counted by perf_event_open(2)."""
