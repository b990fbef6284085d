"""Places where the service can be made to die, for the tests that kill it there.

`die_at("after_commit:3")`, or ``FOLKLEARN_DIE_AT=after_commit:3`` of ``folklearn serve``, ends the
process, as kill -9 does, the third time that it gets to the place called ``after_commit``. Without
it nothing is counted.
"""

import os
import signal

PLACES = (
    "before_commit",
    "after_commit",
    "before_apply",
    "before_answer",
    "in_replay",
    "in_snapshot",
    "before_rename",
    "after_rename",
    "before_checkpoint",
    "after_checkpoint",
)

_place, _left = "", 0


def die_at(where: str) -> None:
    """Die at a place, such as ``after_commit:3``."""
    global _place, _left
    _place, _, count = where.partition(":")
    _left = int(count or 1)


def reach(place: str) -> None:
    """Say that the process has come to a place."""
    global _left
    if place != _place:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
