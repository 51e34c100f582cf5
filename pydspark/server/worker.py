"""The one thread that loads the model and generates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing

from pydspark.chat import ChatEvent
from pydspark.errors import Cancelled
from pydspark.generate import Done
from pydspark.llama import Llama
from pydspark.records import Progress
from pydspark.server.errors import HttpError
from pydspark.server.fair_queue import FairQueue
from pydspark.server.job import Failure, Job, PlainSpeed
from pydspark.server.metrics import Metrics

Load = Callable[[Progress], Llama]
"""Opens the model; told where to report the fraction done, which may stop it."""

_RETRY_AFTER_S = 5


class Worker:
    """Loads a model and then runs one job after the other, until it is stopped.

    Its methods may be called from any thread.

    Args:
        load: opens the model, on this worker's thread.
        queue_size: most jobs that wait.
        metrics: told of every job that has run.
        on_ready: called on this worker's thread when the model is loaded.
        on_end: called on this worker's thread when it ends, with the error that ended it.

    Attributes:
        model: None while it is being loaded.
        fraction: of the model that is loaded, in [0, 1].
        running: the job that runs, or None.
    """

    def __init__(
        self,
        load: Load,
        queue_size: int,
        metrics: Metrics,
        on_ready: Callable[[Llama], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._load = load
        self._metrics = metrics
        self._on_ready = on_ready
        self._on_end = on_end
        self._changed = threading.Condition()
        self._queue: FairQueue[Job] = FairQueue(queue_size)
        self._is_stopping = False
        self.model: Llama | None = None
        self.fraction = 0.0
        self.running: Job | None = None
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Begins to load."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Puts a job at the end of the line.

        Raises:
            HttpError: the line is full, or the worker is stopping.
        """
        with self._changed:
            if self._is_stopping:
                raise HttpError(503, "The server is stopping")
            if not self._queue.put(job.client, job):
                headers = {"Retry-After": str(_RETRY_AFTER_S)}
                raise HttpError(503, f"{len(self._queue)} requests are waiting already", headers=headers)
            self._changed.notify_all()

    def cancel(self, job: Job) -> None:
        """Nobody wants the answer any more: a job that waits never runs, one that runs ends within a round."""
        job.is_cancelled = True
        with self._changed:
            self._queue.remove(job.client, job)

    @property
    def n_waiting(self) -> int:
        """Jobs in line."""
        with self._changed:
            return len(self._queue)

    def stop(self, in_haste: bool = False) -> None:
        """Sends waiting jobs away and ends after the one that runs, or, in haste, within its next round."""
        with self._changed:
            self._is_stopping = True
            for job in self._queue.clear():
                job.items.put(Failure(HttpError(503, "The server is stopping")))
            running = self.running
            self._changed.notify_all()
        if in_haste and running is not None:
            running.is_cancelled = True

    def join(self, timeout_s: float | None = None) -> None:
        """Waits for the end."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    # ---- on the worker's own thread ----

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            with self._load(self._note_loading) as model:
                self.model = model
                self._on_ready(model)
                while (job := self._next()) is not None:
                    self._run(job)
        except Cancelled as cancelled:
            error = None if self._is_stopping else cancelled
        except BaseException as caught:  # it must not die unnoticed: the server would hang
            error = caught
        finally:
            self.stop()
            self._on_end(error)

    def _note_loading(self, fraction: float) -> bool:
        self.fraction = fraction
        return not self._is_stopping

    def _next(self) -> Job | None:
        with self._changed:
            self.running = None
            while not self._is_stopping:
                job = self._queue.get()
                if job is not None:
                    self.running = job
                    return job
                self._changed.wait()
            return None

    def _run(self, job: Job) -> None:
        job.begin()
        try:
            # Closing brings the session into order on this thread, whoever holds on to the error.
            with closing(job.events) as events:
                done = self._pass_on(job, events)
            self._measure(job)
            job.items.put(done)
        except Exception as error:
            job.items.put(Failure(error))
        finally:
            if (stats := job.final_stats()) is not None:
                self._metrics.note(stats)

    def _pass_on(self, job: Job, events: Iterable[ChatEvent]) -> Done:
        for event in events:
            if job.is_cancelled:
                break
            job.note(event)
            if isinstance(event, Done):
                return event
            job.items.put(event)
        raise Cancelled("nobody waits for the answer any more")

    def _measure(self, job: Job) -> None:
        if job.ask.wants_plain_speed and self.model is not None:
            ms = self.model.engine.plain_step_ms()
            if ms is not None:
                job.items.put(PlainSpeed(ms))
