"""HugePages set aside and unused, or asked for and refused.

Preallocated huge pages (``vm.nr_hugepages``) are taken from everyone and serve only who maps them
explicitly. Transparent ones that cannot be allocated fall back to small pages (kernel,
Documentation/admin-guide/mm/transhuge.rst, ``thp_fault_fallback``).
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

UNUSED = 0.9
"""Share of the pages that nobody uses."""
LEAST_HUGE = 2.0**28
"""Bytes of anonymous memory in huge pages, that a host has which uses them."""
GONE = 0.1
LEAST_PAGES = 64
LEAST_FALLBACKS = 100.0
"""Per second."""


def hugepages(case: Case) -> Cause | None:
    """Look for pages that appeared and are free, or for faults that fell back to small pages."""
    total, free = case.host("memory.huge_pages_total"), case.host("memory.huge_pages_free")
    if total.rises(1.0, LEAST_PAGES) and free.value >= UNUSED * total.value:
        available = case.host("memory.mem_available")
        return Cause(
            "hugepages",
            "memory",
            "Huge pages are set aside that nobody uses; all others have less memory.",
            0.95,
            (total.evidence, free.evidence, available.evidence),
            (
                Remedy("grep -i huge /proc/meminfo"),
                Remedy("sysctl -w vm.nr_hugepages=0", changes_host=True),
            ),
        )
    fallback, given = case.host("vmstat.thp_fault_fallback"), case.host("vmstat.thp_fault_alloc")
    if fallback.rises(2.0, LEAST_FALLBACKS) and not fallback.value < given.value:
        return Cause(
            "hugepages",
            "memory",
            "Transparent huge pages are asked for and not to be had: memory is fragmented or full.",
            0.6 + 0.2 * between(fallback.times, 2, 20),
            (fallback.evidence, given.evidence),
            (
                Remedy("cat /sys/kernel/mm/transparent_hugepage/{enabled,defrag} /proc/buddyinfo"),
                Remedy("sysctl -w vm.compact_memory=1", changes_host=True),
            ),
        )
    huge, all_pages = case.host("memory.anon_huge_pages"), case.host("memory.anon_pages")
    if huge.falls(GONE, LEAST_HUGE) and not all_pages.falls(0.7):
        return Cause(
            "hugepages",
            "memory",
            "Programs no longer get transparent huge pages: they are switched off or not to be "
            "had.",
            0.7,
            (huge.evidence, all_pages.evidence),
            (
                Remedy("cat /sys/kernel/mm/transparent_hugepage/enabled"),
                Remedy(
                    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", changes_host=True
                ),
            ),
        )
    return None
