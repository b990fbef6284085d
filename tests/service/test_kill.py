"""The service is killed, at random and at every place where it would hurt; clients insist."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.service import audit, lives
from tests.service.clients import CREATE, Crowd, Line
from tests.service.lives import FAILPOINTS

OFTEN = ("before_commit", "after_commit", "before_apply", "before_answer", "in_replay")
RANDOM = ""


def live_and_die(place: Path, n_lives: int, seed: int = 0, n_workers: int = 0) -> Counter[str]:
    """Kill a service under clients; return where it died, and how often it answered.

    With workers one of them dies first where nothing else is the matter.
    """
    random, folder, ends = Random(seed), place / "folder", Counter[str]()
    secret = lives.first_key(folder)
    crowd = Crowd(secret, 3, seed)
    for n in range(n_lives):
        where = (RANDOM, *FAILPOINTS)[n % (1 + len(FAILPOINTS))]
        count = random.randint(1, 30 if where in OFTEN else 2)
        port = lives.free_port()
        die_at = where and f"{where}:{count}"
        life = lives.begin(lives.serve, folder, port, die_at, "FULL", n_workers)
        if n == 0:
            crowd.begin(port)
        crowd.call(port)
        if where == RANDOM:
            crowd.wait_for(random.choice((0, 0, 10, 30)), life)
            for pid in lives.workers_of(life.pid or 0)[:1]:
                os.kill(pid, signal.SIGKILL)
                ends["worker"] += 1
                crowd.wait_for(random.choice((0, 10)), life)
            time.sleep(random.uniform(0.0, 0.1))
        else:
            life.join(2.0)
        ends[where if where and not life.is_alive() else "random"] += 1
        lives.end(life)
    port = lives.free_port()
    life = lives.begin(lives.serve, folder, port, "", "FULL", n_workers)
    crowd.call(port)
    crowd.end()
    crowd.repeat(100)
    crowd.close()
    lives.end(life)
    audit.nothing_lost(folder, crowd.done)
    audit.same_bytes(folder, crowd.done)
    return ends + Counter(answers=len(crowd.done))


@pytest.mark.parametrize(("n_lives", "n_workers"), [(25, 0), (12, 2)])
def test_nothing_is_lost_or_learned_twice_however_it_dies(
    tmp_path: Path, seed: int, n_lives: int, n_workers: int
) -> None:
    ends = live_and_die(tmp_path, n_lives, seed, n_workers)
    assert ends["answers"] > n_lives, "hardly anything was learned between the deaths"


def test_the_command_loses_nothing_when_it_dies(tmp_path: Path) -> None:
    folder, port = tmp_path / "folder", lives.free_port()
    secret = lives.first_key(folder)
    script = (
        "import sys; from folklearn.cli import serve; from folklearn.cli.app import main\n"
        "from tests.service.lives import die_at_failpoint\n"
        "serve.warm_up_service = lambda: die_at_failpoint('after_commit')\n"
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, "serve", folder, "--port", str(port)]
    process = subprocess.Popen(command, cwd=lives.ROOT, env=os.environ)
    line = Line(secret, port)
    while process.poll() is None and line.send(CREATE[0]).status == 0:
        time.sleep(0.05)
    line.close()
    assert process.wait() == -9
    assert audit.same_bytes(folder).keys() == {"labels"}
