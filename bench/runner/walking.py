"""The visits of several sessions as one stream: one device after the other, or all at the same time.

One after the other is how numbers are made that others are compared with: GPUs in one box share its power,
its cooling and its host. All at once tells how they do under each other's load; a thread walks each session,
whose worker is a process of its own, and nothing is pinned to processors or memory nodes. Whatever ends the
stream early (enough failures, Ctrl-C, a full disk) ends all of them: the visits that are going on are given
up, what was visited before is safe in the journals.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import NamedTuple

from bench.runner.forecast import Forecast
from bench.runner.session import Session
from bench.runner.supervisor import Stopped
from bench.store.schema import Measurement
from bench.sweep.load import Case


class Visited(NamedTuple):
    """One visit, done. What is known of its session is as of then: it may be walking on in another thread."""

    session: Session
    case: Case
    row: Measurement
    visits_left: int
    """About how many visits of this session are to come."""
    left_s: float | None
    """About how long they will take; None while nothing is known."""
    forecast: Forecast | None = None
    """What is expected of the cases, at the first visit since it rests on this run's ceilings."""
    given_up: Sequence[str] = ()
    """A sentence for each implementation that is asked no more because of this visit."""


def in_turn(sessions: Sequence[Session]) -> Iterator[Visited]:
    """The visits of one session after the other; each has its budget to itself."""
    for session in sessions:
        if len(sessions) > 1:
            session.begin()
        yield from _walk(session)


@contextmanager
def at_once(sessions: Sequence[Session]) -> Iterator[Iterator[Visited]]:
    """The visits of all sessions as they come, for as long as the block runs.

    What is raised in a session's thread (UserError) is raised where the stream is read.
    """
    messages: SimpleQueue[Visited | _Ended] = SimpleQueue()
    threads: list[threading.Thread] = []
    try:
        for session in sessions:
            thread = threading.Thread(target=_send, args=(session, messages), name=str(session.device))
            thread.start()
            threads.append(thread)
        yield _received(messages, len(threads))
    finally:
        _until_ended(sessions, threads)


def prepare_all(sessions: Sequence[Session]) -> None:
    """Compile, tune and check on all devices at once; only timing must be done alone.

    If one fails, or this is interrupted, all end.
    """
    with ThreadPoolExecutor(len(sessions)) as pool:
        try:
            for done in as_completed([pool.submit(session.prepare) for session in sessions]):
                done.result()
        except BaseException:
            _stop(sessions)
            raise


class _Ended(NamedTuple):
    """A session makes no more visits; `error` is why, if not because all were made."""

    error: BaseException | None


def _walk(session: Session) -> Iterator[Visited]:
    planner, shown, refined = session.planner, 0, False
    for case, row in session.walk():
        given_up = planner.given_up[shown:]
        shown += len(given_up)
        forecast = None
        if not refined and planner.has_ceilings and case.role == "measurement":
            refined, forecast = True, planner.forecast(session.elapsed_s)
        left_s = planner.left_s(session.elapsed_s)
        yield Visited(session, case, row, planner.visits_left(), left_s, forecast, given_up)


def _send(session: Session, messages: SimpleQueue[Visited | _Ended]) -> None:
    """Walk a session to its end. Whatever happens, the last message is that it has ended."""
    error: BaseException | None = None
    try:
        session.begin()
        for visited in _walk(session):
            messages.put(visited)
    except Stopped:
        pass
    except BaseException as raised:
        error = raised
    finally:
        with suppress(Exception):  # an end that fails must not keep the others waiting
            session.worker.close()  # it would die with this thread
        messages.put(_Ended(error))


def _received(messages: SimpleQueue[Visited | _Ended], going: int) -> Iterator[Visited]:
    while going:
        message = messages.get()
        if isinstance(message, Visited):
            yield message
            continue
        going -= 1
        if message.error is not None:
            raise message.error


def _until_ended(sessions: Sequence[Session], threads: Sequence[threading.Thread]) -> None:
    """Stop all that is still going on; no thread is left, though this be interrupted once more."""
    try:
        _stop(sessions)
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        _stop(sessions)
        for thread in threads:
            thread.join()
        raise


def _stop(sessions: Sequence[Session]) -> None:
    for session in sessions:
        session.worker.stop()
