# SPDX-License-Identifier: Apache-2.0
"""The worker that `roux worker conform -- python3 workers/python/conform.py` checks."""

import io
import time

from worker import Failure, Submitted, Worker

worker = Worker(concurrency=8)


@worker.action("conform-echo")
def echo(task):
    return task.input


@worker.action("conform-fail")
def fail(task):
    if "code" not in task.input:
        raise RuntimeError(task.input["message"])
    raise Failure(task.input["code"], task.input["message"], outcome_unknown=task.input.get("outcomeUnknown", False))


@worker.action("conform-progress")
def progress(task):
    for fraction, text in ((0.25, "a quarter"), (0.5, "half"), (0.75, "three quarters")):
        task.progress(fraction, text)
        time.sleep(0.15)
    task.log("info", "a line of the log")
    for piece in "ab":
        task.delta(piece)
    task.preview({"so": "far"})
    time.sleep(0.05)  # while the others are sent
    task.delta("c")
    return {"done": True}


@worker.action("conform-slow")
def slow(task):
    begun = time.monotonic()
    task.cancelled.wait(task.input["ms"] / 1000)
    return {"slept": round((time.monotonic() - begun) * 1000)}


@worker.action("conform-file")
def file(task):
    with task.open_file(task.input["file"]) as content:
        text = content.read()
    return {"size": len(text), "upper": task.put_file(io.BytesIO(text.upper()), "upper.txt")}


@worker.action("conform-key")
def key(task):
    return {"effectKey": task.effect_key, "attempt": task.attempt, "account": task.account, "run": task.run, "step": task.step}


@worker.action("conform-big")
def big(task):
    return {"text": "x" * task.input["bytes"]}


@worker.action("conform-submit")
def submit(task):
    return Submitted("conform", task.input["job"], ttl=600)


worker.run()
