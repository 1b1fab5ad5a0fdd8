# SPDX-License-Identifier: Apache-2.0
"""A remote worker of Roux, in one file and with the standard library only.

Copy this file beside yours. An action is a function that gets a Task and returns its output::

    from worker import Worker

    worker = Worker(queue="audio")

    @worker.action("transcribe")
    def transcribe(task):
        return {"text": listen(task.input["file"])}

    worker.run()

A function may be called twice for one task, because a worker can die before its result is
recorded. ``task.effect_key`` is then the same: pass it to services as their idempotency key.
The page docs/workers.md of Roux describes the protocol.
"""

from __future__ import annotations

import dataclasses
import email.utils
import hashlib
import http.client
import json
import logging
import math
import mimetypes
import os
import random
import signal
import socket
import tempfile
import threading
import time
import urllib.parse
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Callable, Dict, List, Mapping, Optional, Tuple, Union

__all__ = ["Worker", "Task", "Submitted", "Failure", "Refused"]

log = logging.getLogger("roux.worker")

POLL_SECONDS = 20.0  # how long a request for tasks waits for the first one
SIGNAL_SECONDS = 0.5  # how late a signal may be noticed that comes at the wrong moment
REPORT_SECONDS = 0.1  # the least time between two requests with reports
MAX_TASKS = 256  # of one request, as the server says; so are the limits below
MAX_RESULTS = 256
MAX_LEASES = 1000
MAX_REPORTS = 1000
MAX_TEXT = 1000
MAX_LOG = 65536
MAX_MESSAGE = 4096
MAX_REPORTED = 4 << 20  # characters of reports of one task; the server drops what exceeds it
MAX_BODY = 1 << 19  # bytes of a request with several results or reports
MAX_PIECE = 1 << 16  # characters of a piece of a streamed text
FILE_ATTEMPTS = 8


class Failure(Exception):
    """Ends a task with a code that recipes and retry policies can tell from others.

    The codes that every action may use are STEP_FAILED, INPUT_INVALID, RATE_LIMITED,
    SERVICE_UNAVAILABLE and PROVIDER_ERROR; the configuration names others under ``faults``.
    ``retry_after`` is how many seconds the step waits before it is tried again, at the least.
    ``outcome_unknown`` says that the effect of the task may have happened although it failed, for
    example because a connection broke after a request was sent: the next attempt has the same
    ``effect_key``.
    """

    def __init__(self, code: str, message: str, retry_after: Optional[float] = None, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.outcome_unknown = outcome_unknown


@dataclasses.dataclass(frozen=True)
class Submitted:
    """What a function returns that has submitted the work to a service, where it goes on as a job.

    The step then waits for the job, and the task has ended. ``provider`` is the service's name in
    the configuration of the server, which the action permits under ``providers``; ``job`` is the
    id that the service has given the job, ``ttl`` how many seconds it may take (24 hours), and
    ``handle`` is {"model": NAME} if it is not of the provider's default model. Submit the job with
    ``task.effect_key`` as idempotency key: the task is repeated if the worker dies before the
    server knows of the job.
    """

    provider: str
    job: str
    ttl: Optional[float] = None
    handle: Any = None

    def _fields(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = {"provider": self.provider, "jobId": self.job}
        if self.ttl is not None:
            fields["ttlMs"] = int(self.ttl * 1000)
        if self.handle is not None:
            fields["handle"] = self.handle
        return fields


class Refused(Exception):
    """The server has answered a request with an error."""

    def __init__(self, status: int, detail: str, retry_after: Optional[float] = None) -> None:
        super().__init__(f"the server answers {status}: {detail}")
        self.status = status
        self.retry_after = retry_after

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status >= 500 or self.status in (408, 425, 429)


# What a request fails with when the server or the network is away.
_AWAY = (OSError, http.client.HTTPException, ValueError)


class _Backoff:
    """The pauses between attempts: they double, differ at random, and honour Retry-After."""

    def __init__(self, most: float = 10.0) -> None:
        self._most = most
        self._failures = 0

    def pause(self, error: Optional[Exception] = None) -> float:
        """Returns the seconds to wait after another failure."""
        longest = min(self._most, 0.1 * 2 ** min(self._failures, 20))
        self._failures += 1
        pause = longest * random.uniform(0.5, 1.0)
        return max(pause, getattr(error, "retry_after", None) or 0.0)

    def reset(self) -> None:
        self._failures = 0


class _Server:
    """Sends requests to the server. Each has a connection of its own, so threads share it."""

    def __init__(self, url: str, key: str, agent: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"server {url!r}: want a URL such as https://roux.example.com")
        self._parts = parts
        self._headers = {"User-Agent": agent}
        if key:
            self._headers["Authorization"] = "Bearer " + key

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=timeout)
        connection.connect()
        return connection

    def send(
        self, connection: http.client.HTTPConnection, method: str, path: str,
        body: Any = None, headers: Optional[Mapping[str, str]] = None,
    ) -> http.client.HTTPResponse:
        """Sends a request and returns its answer, or raises Refused."""
        connection.request(method, self._parts.path.rstrip("/") + path, body, {**self._headers, **(headers or {})})
        response = connection.getresponse()
        if response.status // 100 == 2:
            return response
        raise Refused(response.status, _detail(response.read(1 << 16)), _retry_after(response.headers.get("Retry-After")))

    def post(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> Dict[str, Any]:
        answer = self.send(connection, "POST", path, body, {"Content-Type": "application/json"}).read()
        return json.loads(answer)

    def call(self, path: str, body: Mapping[str, Any], timeout: float) -> Dict[str, Any]:
        connection = self.connect(timeout)
        try:
            return self.post(connection, path, _encode(body))
        finally:
            connection.close()


def _encode(value: Any) -> bytes:
    """Encodes a value as JSON, which has no NaN and no Infinity."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _detail(body: bytes) -> str:
    """Returns what a problem document says, or how another answer begins."""
    try:
        problem = json.loads(body)
        text = problem.get("detail") or problem.get("title") or ""
        for error in problem.get("errors") or []:
            text += f"; {error.get('pointer', '')}: {error.get('message', '')}"
        return text[:1000]
    except (ValueError, AttributeError):
        return body[:200].decode("utf-8", "replace")


def _retry_after(header: Optional[str]) -> Optional[float]:
    """Reads a header Retry-After: seconds, or a date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


@dataclasses.dataclass(eq=False)
class Task:
    """A task that the worker has: one attempt of a step.

    ``cancelled`` is set when nobody waits for the task any more: its run was cancelled or timed
    out, or the server has taken the worker for lost. What the function returns then does not
    count, so it should end soon.
    """

    action: str
    version: str
    input: Dict[str, Any]
    account: str
    run: str
    step: str
    attempt: int
    effect_key: str
    trace_parent: str
    expires_at: str
    cancelled: threading.Event
    price: Optional[str] = None  # what the call has cost, such as "0.25", of an action with a price
    _lease: str = dataclasses.field(default="", repr=False)
    _lease_seconds: float = dataclasses.field(default=30.0, repr=False)
    _worker: Any = dataclasses.field(default=None, repr=False)
    _reported: int = dataclasses.field(default=0, repr=False)

    def progress(self, fraction: float, text: str = "") -> None:
        """Reports how much is done, from 0 to 1, and what is being done."""
        self._worker._report(self, {"fraction": min(max(float(fraction), 0.0), 1.0), "text": text[:MAX_TEXT]})

    def log(self, level: str, text: str) -> None:
        """Adds a line to the log of the run. The levels are debug, info, warn and error."""
        if level not in ("debug", "info", "warn", "error"):
            raise ValueError(f"level {level!r}: want debug, info, warn or error")
        if text:
            self._worker._report(self, {"level": level, "log": text[:MAX_LOG]})

    def delta(self, text: str) -> None:
        """Passes on a piece of a text that is streamed."""
        for start in range(0, len(text), MAX_PIECE):
            self._worker._report(self, {"delta": text[start:start + MAX_PIECE]})

    def preview(self, value: Any) -> None:
        """Shows a value before the result is there."""
        _encode(value)  # what is wrong with it is raised here
        self._worker._report(self, {"preview": value})

    def open_file(self, file_hash: str) -> BinaryIO:
        """Returns the content of a file of the run as a file object, which the caller closes."""
        return self._worker._open_file(self, file_hash)

    def put_file(self, source: Union[str, "os.PathLike[str]", BinaryIO], name: Optional[str] = None) -> str:
        """Stores a file, given by its path or as an open binary file, and returns its hash."""
        return self._worker._put_file(self, source, name)


Handler = Callable[[Task], Union[Dict[str, Any], Submitted, None]]


class Worker:
    """Carries out the tasks of a queue.

    ``server``, ``key`` and ``queue`` default to the variables ROUX_SERVER, ROUX_KEY (or
    ROUX_KEY_FILE, a file with the key) and ROUX_QUEUE. ``concurrency`` is how many tasks are
    under way at once, each in a thread. ``labels`` are what the worker has, for actions that
    want some. ``grace`` is how many seconds the tasks under way have to end when the worker is
    stopped. ``name`` is what the log and the server's log call it.
    """

    def __init__(
        self, server: Optional[str] = None, key: Optional[str] = None, queue: Optional[str] = None, concurrency: int = 4,
        labels: Optional[Mapping[str, str]] = None, name: Optional[str] = None, grace: float = 30.0,
    ) -> None:
        if not 1 <= concurrency <= MAX_TASKS:
            raise ValueError(f"concurrency {concurrency}: want a number from 1 to {MAX_TASKS}")
        server = server or os.environ.get("ROUX_SERVER")
        if not server:
            raise ValueError("no server: pass one, or set ROUX_SERVER")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.queue = queue or os.environ.get("ROUX_QUEUE") or "default"
        self.concurrency = concurrency
        self.grace = grace
        self._labels = dict(labels or {})
        self._server = _Server(server, key or _key_of_environment(), "roux-worker-python/1 " + _header_text(self.name))
        self._handlers: Dict[str, Handler] = {}
        self._signals: SimpleQueue[str] = SimpleQueue()
        self._refused: Optional[Refused] = None

        # What the threads share. _changed guards all of it.
        self._changed = threading.Condition()
        self._stopping = False
        self._busy = 0  # tasks whose functions have not returned
        self._held: Dict[str, Task] = {}  # by lease, until their results are recorded
        self._reports: List[Dict[str, Any]] = []
        self._progress: Dict[str, Dict[str, Any]] = {}  # the newest of each task, by lease
        self._seq = 0  # of the last report that was sent
        self._results: Dict[str, Dict[str, Any]] = {}  # to be sent, by lease
        self._sending = 0  # results that are being sent
        self._poll: Optional[http.client.HTTPConnection] = None

    def action(self, name: str) -> Callable[[Handler], Handler]:
        """Decorates the function that carries out an action."""

        def register(handler: Handler) -> Handler:
            self._handlers[name] = handler
            return handler

        return register

    def run(self) -> None:
        """Carries out tasks until SIGTERM, Ctrl-C or stop().

        Then it takes no more tasks, lets those under way end, reports their results and returns.
        A second signal ends the program at once. Raises Refused if the server does not accept
        the key.
        """
        if not self._handlers:
            raise ValueError("no actions: decorate functions with @worker.action(\"name\") before run()")
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        for loop in (self._lease_loop, self._report_loop, self._result_loop):
            threading.Thread(target=loop, name=loop.__name__, daemon=True).start()
        log.info("%s carries out %s of the queue %s", self.name, ", ".join(sorted(self._handlers)), self.queue)
        self._wait_for_signal()
        self._drain()
        if self._refused:
            raise self._refused

    def stop(self) -> None:
        """Makes run() drain and return. It may be called from any thread."""
        self._signals.put("stop")

    def _wait_for_signal(self) -> None:
        # Python calls a handler between two instructions of the main thread. A signal that comes just
        # before that blocks in get() does not wake it, so there is a next instruction soon.
        while True:
            try:
                self._signals.get(timeout=SIGNAL_SECONDS)
                return
            except Empty:
                continue

    def _on_signal(self, _number: int, _frame: Any) -> None:
        # A handler interrupts the main thread anywhere, so it takes no lock.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # the second one ends the program
        self._signals.put("signal")

    def _drain(self) -> None:
        deadline = time.monotonic() + self.grace
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            poll = self._poll
        open_socket = poll.sock if poll is not None else None  # the other thread may close it now
        if open_socket is not None:
            # Only this half of the connection is closed: the server then answers the request for
            # tasks at once, and tasks that it has handed out meanwhile still arrive. (The method
            # of the class is called because that of TLS sockets would end reading, too.)
            try:
                socket.socket.shutdown(open_socket, socket.SHUT_WR)
            except OSError:
                pass  # the request has ended by itself
        with self._changed:
            while self._busy or self._results or self._sending or self._poll is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    log.warning("%s ends with %d tasks under way: other workers get them when their leases lapse", self.name, len(self._held))
                    return
                self._changed.wait(left)

    # --- taking tasks

    def _lease_loop(self) -> None:
        backoff = _Backoff()
        while True:
            with self._changed:
                while self._busy >= self.concurrency and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                free = self.concurrency - self._busy
            try:
                self._take_tasks(free)
                backoff.reset()
            except Refused as error:
                if error.status in (401, 403):
                    self._refused = error
                    self.stop()
                    return
                log.warning("asking for tasks: %s", error)
                self._wait_unless_stopping(backoff.pause(error))
            except _AWAY as error:
                if not self._stopping:
                    log.warning("asking for tasks: %r", error)
                    self._wait_unless_stopping(backoff.pause())

    def _take_tasks(self, free: int) -> None:
        body = _encode({
            "queue": self.queue, "actions": sorted(self._handlers), "labels": self._labels,
            "max": free, "waitMs": int(POLL_SECONDS * 1000),
        })
        connection = self._server.connect(POLL_SECONDS + 10)
        try:
            with self._changed:
                if self._stopping:
                    return
                self._poll = connection
            for fields in self._server.post(connection, "/v1/workers/lease", body)["tasks"]:
                self._begin(fields)
        finally:
            connection.close()
            with self._changed:
                self._poll = None
                self._changed.notify_all()

    def _wait_unless_stopping(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)

    def _begin(self, fields: Mapping[str, Any]) -> None:
        task = Task(
            action=fields["action"], version=fields["version"], input=fields["input"], account=fields["account"],
            run=fields["run"], step=fields["step"], attempt=fields["attempt"], effect_key=fields["effectKey"],
            trace_parent=fields.get("traceParent", ""), expires_at=fields["expiresAt"], cancelled=threading.Event(),
            _lease=fields["lease"], _lease_seconds=fields["leaseMs"] / 1000, _worker=self,
        )
        with self._changed:
            self._busy += 1
            self._held[task._lease] = task
            self._changed.notify_all()
        threading.Thread(target=self._carry_out, args=(task,), name=f"{task.run} {task.step}", daemon=True).start()

    def _carry_out(self, task: Task) -> None:
        result: Dict[str, Any] = {"lease": task._lease}
        try:
            output = self._handlers[task.action](task)
            if output is None:
                output = {}
            submitted = isinstance(output, Submitted)
            if submitted:
                output = output._fields()
            if not isinstance(output, dict):
                raise TypeError(f"the function of {task.action} has returned {type(output).__name__}: want a dict")
            _encode(output)  # what JSON does not have is the fault of this task, not of those sent with it
            result["submitted" if submitted else "output"] = output
        except Failure as failure:
            result["error"] = {"code": failure.code[:60], "message": failure.message[:MAX_MESSAGE]}
            if failure.retry_after is not None:
                result["error"]["retryAfterMs"] = min(max(int(failure.retry_after * 1000), 0), 3_600_000)
            if failure.outcome_unknown:
                result["error"]["outcomeUnknown"] = True
        except BaseException as error:  # also SystemExit: it ends the task, not the thread in silence
            if not task.cancelled.is_set():
                log.warning("%s of run %s has failed", task.step, task.run, exc_info=True)
            result["error"] = {"code": "STEP_FAILED", "message": (str(error) or type(error).__name__)[:MAX_MESSAGE]}
        if task.price is not None:
            result["price"] = task.price
        with self._changed:
            self._busy -= 1
            if task._lease in self._held:  # else nobody waits for it
                self._results[task._lease] = result
            self._changed.notify_all()

    # --- reporting results

    def _result_loop(self) -> None:
        backoff = _Backoff()
        while True:
            with self._changed:
                while True:
                    # What a task has reported is sent before its result, with which it ends.
                    reporting = {report["lease"] for report in self._reports}.union(self._progress)
                    batch = _batch([result for lease, result in self._results.items() if lease not in reporting], MAX_RESULTS)
                    if batch:
                        break
                    self._changed.wait()
                for result in batch:
                    del self._results[result["lease"]]
                self._sending = len(batch)
            again, pause = self._send_results(batch, backoff)
            with self._changed:
                self._results.update((result["lease"], result) for result in again)
                self._sending = 0
                self._changed.notify_all()
            if pause:
                time.sleep(pause)

    def _send_results(self, batch: List[Dict[str, Any]], backoff: _Backoff) -> Tuple[List[Dict[str, Any]], float]:
        """Sends results. Returns those to send again, and after how many seconds."""
        try:
            answer = self._server.call("/v1/workers/results", {"results": batch}, 60)
            again = []
            for result, outcome in zip(batch, answer["results"]):
                if outcome["status"] == "failed":
                    log.warning("a result could not be recorded yet: %s", outcome.get("detail", ""))
                    again.append(result)
                else:
                    self._release(result["lease"])
            if again:
                return again, backoff.pause()
            backoff.reset()
            return [], 0
        except Refused as error:
            if error.passing or error.status in (401, 403):
                log.warning("reporting results: %s", error)
                return batch, backoff.pause(error)
            return self._mend(batch, error, backoff), 0
        except _AWAY as error:
            log.warning("reporting results: %r", error)
            return batch, backoff.pause()

    def _mend(self, batch: List[Dict[str, Any]], error: Refused, backoff: _Backoff) -> List[Dict[str, Any]]:
        """Finds the result because of which the server refuses a request: it ends its task as a failure."""
        again: List[Dict[str, Any]] = []
        if len(batch) > 1:
            for result in batch:
                rest, pause = self._send_results([result], backoff)
                again += rest
                time.sleep(pause)
            return again
        result = batch[0]
        log.error("the server refuses a result: %s", error)
        refused = "the server refuses the result of the worker: "
        if result.get("error", {}).get("message", "").startswith(refused):
            self._release(result["lease"])
            return []
        return [{"lease": result["lease"], "error": {"code": "STEP_FAILED", "message": (refused + str(error))[:MAX_MESSAGE]}}]

    def _release(self, lease: str) -> None:
        with self._changed:
            self._held.pop(lease, None)
            self._progress.pop(lease, None)
            self._changed.notify_all()

    # --- heartbeats and reports

    def _report(self, task: Task, report: Dict[str, Any]) -> None:
        with self._changed:
            if task._lease not in self._held:
                return
            task._reported += sum(len(value) for value in report.values() if isinstance(value, str))
            if task._reported > MAX_REPORTED:
                return
            report["lease"] = task._lease
            if "fraction" in report:
                self._progress[task._lease] = report
            else:
                self._reports.append(report)
            self._changed.notify_all()

    def _report_loop(self) -> None:
        backoff = _Backoff(most=2.0)
        beat = math.inf  # when the next heartbeat is due
        while True:
            with self._changed:
                while True:
                    now = time.monotonic()
                    every = min((task._lease_seconds for task in self._held.values()), default=30.0) / 3
                    beat = min(beat, now + every) if self._held else math.inf
                    due = now >= beat
                    if due or self._reports or self._progress:
                        break
                    self._changed.wait(beat - now if self._held else None)
                leases = list(self._held)[:MAX_LEASES] if due else []
                reports = _batch(self._reports + list(self._progress.values()), MAX_REPORTS)
                for report in reports:
                    if "seq" not in report:  # else it is sent again
                        self._seq += 1
                        report["seq"] = self._seq
                logs = min(len(self._reports), len(reports))
                progress = {r["lease"]: r for r in reports[logs:]}
            pause = REPORT_SECONDS
            try:
                answer = self._server.call("/v1/workers/heartbeat", {"leases": leases, "reports": _in_order(reports)}, max(1.0, min(every, 10.0)))
                backoff.reset()
                ended = answer["ended"]
            except Refused as error:
                log.warning("sending heartbeats: %s", error)
                ended, due = [], False
                if error.passing or error.status in (401, 403):
                    logs, progress = 0, {}  # the reports are sent again; otherwise they are at fault
                    pause = min(backoff.pause(error), max(every, error.retry_after or 0.0))
            except _AWAY as error:
                log.warning("sending heartbeats: %r", error)
                ended, logs, progress, due = [], 0, {}, False
                pause = min(backoff.pause(), every)
            with self._changed:
                del self._reports[:logs]
                for lease, report in progress.items():
                    if self._progress.get(lease) is report:
                        del self._progress[lease]
                if due:
                    beat = time.monotonic() + every
                for lease in ended:
                    self._end(lease)
                self._changed.notify_all()  # results may have waited for these reports
            time.sleep(pause)

    def _end(self, lease: str) -> None:
        """Stops a task whose lease is over. _changed is held."""
        task = self._held.pop(lease, None)
        self._progress.pop(lease, None)
        self._reports = [r for r in self._reports if r["lease"] != lease]
        if task is not None:
            log.info("%s of run %s is no longer waited for", task.step, task.run)
            task.cancelled.set()

    # --- files

    def _open_file(self, task: Task, file_hash: str) -> BinaryIO:
        def download(connection: http.client.HTTPConnection) -> BinaryIO:
            path = f"/v1/files/{urllib.parse.quote(file_hash, safe='')}/content"
            response = self._server.send(connection, "GET", path, headers={"Roux-Lease": task._lease})
            file, digest = tempfile.TemporaryFile(), hashlib.sha256()
            try:
                while True:
                    block = response.read(1 << 16)
                    if not block:
                        break
                    digest.update(block)
                    file.write(block)
                if "sha256_" + digest.hexdigest() != file_hash:
                    raise http.client.HTTPException("the content has another hash, or is not complete")
                file.seek(0)
                return file
            except BaseException:
                file.close()
                raise

        return self._try(task, f"reading file {file_hash}", download)

    def _put_file(self, task: Task, source: Union[str, "os.PathLike[str]", BinaryIO], name: Optional[str]) -> str:
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as opened:
                return self._put_file(task, opened, name or os.path.basename(source))
        if not source.seekable():
            with tempfile.TemporaryFile() as copy:
                for block in iter(lambda: source.read(1 << 16), b""):
                    copy.write(block)
                copy.seek(0)
                return self._put_file(task, copy, name)
        start, size, digest = source.tell(), 0, hashlib.sha256()
        for block in iter(lambda: source.read(1 << 16), b""):
            size += len(block)
            digest.update(block)
        path = "/v1/files?" + urllib.parse.urlencode({"name": name or "file"})
        headers = {
            "Content-Length": str(size), "X-Content-Sha256": digest.hexdigest(), "Roux-Lease": task._lease,
            "Content-Type": mimetypes.guess_type(name or "")[0] or "application/octet-stream",
        }

        def upload(connection: http.client.HTTPConnection) -> str:
            source.seek(start)
            return json.loads(self._server.send(connection, "POST", path, source, headers).read())["hash"]

        return self._try(task, f"storing file {name or ''}", upload)

    def _try(self, task: Task, what: str, request: Callable[[http.client.HTTPConnection], Any]) -> Any:
        """Sends a request for a file, again if need be."""
        backoff = _Backoff()
        for attempt in range(1, FILE_ATTEMPTS + 1):
            try:
                connection = self._server.connect(60)
                try:
                    return request(connection)
                finally:
                    connection.close()
            except Refused as error:
                if not error.passing:
                    raise
                last: Exception = error
            except _AWAY as error:
                last = error
            if attempt < FILE_ATTEMPTS and task.cancelled.wait(backoff.pause(last)):
                break
        raise Failure("SERVICE_UNAVAILABLE", f"{what}: {last}")


def _key_of_environment() -> str:
    key = os.environ.get("ROUX_KEY", "")
    path = os.environ.get("ROUX_KEY_FILE", "")
    if not key and path:
        with open(path, encoding="utf-8") as file:
            key = file.read()
    return key.strip()


def _header_text(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)


def _in_order(reports: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    return sorted(reports, key=lambda report: report["seq"])


def _batch(items: List[Dict[str, Any]], most: int) -> List[Dict[str, Any]]:
    """Returns the first items, as many as one request may have."""
    size, count = 0, 0
    for item in items[:most]:
        size += len(_encode(item))
        if count and size > MAX_BODY:
            break
        count += 1
    return items[:count]
