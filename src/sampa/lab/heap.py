"""The C library's heap, which gives freed memory back to the system and then asks for it again.

On a CPU the activations of a step are freed at its end. glibc hands their pages back and the next
step touches fresh ones, at about a thousand page faults a step for a small network. A process that
trains needs the same memory again in a moment, so it should keep it.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of mallopt's options, in <malloc.h>
_KEPT, _KEPT_BY_OLD_VERSIONS = 1 << 30, 1 << 25  # bytes


def keep_freed_memory() -> bool:
    """Let this process keep up to a gigabyte of freed memory for its next use.

    Setting MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ in the environment does the same for
    a program that cannot call this.

    Returns:
        Whether the C library knows these options; only glibc does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Either option ends glibc's own choice of the other, so the first must succeed. Older
    # versions refuse more than half of a thread's heap.
    is_set = any(mallopt(_MMAP_THRESHOLD, size) == 1 for size in (_KEPT, _KEPT_BY_OLD_VERSIONS))
    return is_set and mallopt(_TRIM_THRESHOLD, _KEPT) == 1
