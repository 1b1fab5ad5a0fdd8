// SPDX-License-Identifier: Apache-2.0

/**
 * A remote worker of Roux, in one file and without packages, for Node 20 and later.
 *
 * Copy this file beside yours. An action is a function that gets a task and returns its output:
 *
 *     import { Worker } from "./worker.js";
 *
 *     const worker = new Worker({ queue: "audio" });
 *     worker.action("transcribe", async (task) => ({ text: await listen(task.input.file) }));
 *     await worker.run();
 *
 * A function may be called twice for one task, because a worker can die before its result is
 * recorded. `task.effectKey` is then the same: pass it to services as their idempotency key.
 * The page docs/workers.md of Roux describes the protocol. TypeScript reads the types from the
 * comments, with `"allowJs": true`.
 */

import { createHash } from "node:crypto";
import { createReadStream, createWriteStream, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { hostname, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { json, text as textOf } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";

const POLL_MS = 20_000; // how long a request for tasks waits for the first one
const REPORT_MS = 100; // the least time between two requests with reports
const MAX_TASKS = 256; // of one request, as the server says; so are the limits below
const MAX_RESULTS = 256;
const MAX_LEASES = 1000;
const MAX_REPORTS = 1000;
const MAX_TEXT = 1000;
const MAX_LOG = 65_536;
const MAX_MESSAGE = 4096;
const MAX_REPORTED = 4 << 20; // characters of reports of one task; the server drops what exceeds it
const MAX_BODY = 1 << 19; // characters of a request with several results or reports
const MAX_PIECE = 1 << 16; // characters of a piece of a streamed text
const FILE_ATTEMPTS = 8;

/**
 * Ends a task with a code that recipes and retry policies can tell from others.
 *
 * The codes that every action may use are STEP_FAILED, INPUT_INVALID, RATE_LIMITED,
 * SERVICE_UNAVAILABLE and PROVIDER_ERROR; the configuration names others under `faults`.
 */
export class Failure extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {{ retryAfter?: number, outcomeUnknown?: boolean }} [options] retryAfter: how many seconds
   * the step waits, at the least. outcomeUnknown: the effect of the task may have happened although it
   * failed, for example because a connection broke after a request was sent; the next attempt has the
   * same effectKey
   */
  constructor(code, message, options = {}) {
    super(message);
    this.code = code;
    this.retryAfter = options.retryAfter;
    this.outcomeUnknown = options.outcomeUnknown === true;
  }
}

/**
 * What a function returns that has submitted the work to a service, where it goes on as a job.
 *
 * The step then waits for the job, and the task has ended. Submit the job with `task.effectKey` as
 * idempotency key: the task is repeated if the worker dies before the server knows of the job.
 */
export class Submitted {
  /**
   * @param {string} provider the service's name in the configuration of the server, which the action permits under `providers`
   * @param {string} job the id that the service has given the job
   * @param {{ ttl?: number, handle?: unknown }} [options] ttl: how many seconds it may take (24 hours); handle: { model } if the job is not of the default model of the provider
   */
  constructor(provider, job, options = {}) {
    this.provider = provider;
    this.jobId = job;
    this.ttlMs = options.ttl === undefined ? undefined : Math.round(options.ttl * 1000);
    this.handle = options.handle;
  }
}

/** The server has answered a request with an error. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} detail
   * @param {number} [retryAfterMs]
   */
  constructor(status, detail, retryAfterMs = 0) {
    super(`the server answers ${status}: ${detail}`);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status >= 500 || [408, 425, 429].includes(this.status);
  }

  /** Whether the server does not accept the key. */
  get key() {
    return this.status === 401 || this.status === 403;
  }
}

/** The pauses between attempts: they double, differ at random, and honour Retry-After. */
class Backoff {
  #failures = 0;
  #most;

  constructor(most = 10_000) {
    this.#most = most;
  }

  /** @param {unknown} error @returns {number} the milliseconds to wait after another failure */
  pause(error) {
    const longest = Math.min(this.#most, 100 * 2 ** Math.min(this.#failures++, 20));
    return Math.max(longest * (0.5 + Math.random() / 2), error instanceof Refused ? error.retryAfterMs : 0);
  }

  reset() {
    this.#failures = 0;
  }
}

/** Wakes those that wait for a change. */
class Changes {
  /** @type {Set<() => void>} */
  #waiting = new Set();

  tell() {
    for (const wake of this.#waiting) wake();
  }

  /** @param {number} [ms] how long to wait at most */
  wait(ms = Infinity) {
    return new Promise((/** @type {(value: void) => void} */ resolve) => {
      /** @type {NodeJS.Timeout | undefined} */
      let timer;
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
      if (ms < Infinity) timer = setTimeout(wake, Math.max(ms, 0));
    });
  }
}

/** @param {number} ms */
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** @param {unknown} error */
const said = (error) => (error instanceof Error ? error.message || error.name : String(error));

/**
 * @typedef {object} Fields what the server says of a task
 * @property {string} lease
 * @property {string} action
 * @property {string} version
 * @property {Record<string, any>} input
 * @property {string} account
 * @property {string} run
 * @property {string} step
 * @property {number} attempt
 * @property {string} effectKey
 * @property {string} [traceParent]
 * @property {number} leaseMs
 * @property {string} expiresAt
 *
 * @typedef {{ lease: string } & Record<string, unknown>} Report
 * @typedef {{ lease: string, output?: object, submitted?: object, error?: { code: string, message: string, retryAfterMs?: number, outcomeUnknown?: boolean }, price?: string }} Result
 * @typedef {(task: Task) => object | void | Promise<object | void>} Handler
 *
 * @typedef {object} Options
 * @property {string} [server] the URL; default: ROUX_SERVER
 * @property {string} [key] default: ROUX_KEY, or the file that ROUX_KEY_FILE names
 * @property {string} [queue] default: ROUX_QUEUE, or "default"
 * @property {number} [concurrency] how many tasks are under way at once; default: 4
 * @property {Record<string, string>} [labels] what the worker has, for actions that want some
 * @property {string} [name] what logs call the worker
 * @property {number} [grace] how many seconds tasks under way have to end when the worker is stopped; default: 30
 */

/** A task that the worker has: one attempt of a step. */
export class Task {
  #worker;
  #reported = 0;
  #abort = new AbortController();

  /** @param {TaskHost} worker @param {Fields} fields */
  constructor(worker, fields) {
    this.#worker = worker;
    this.lease = fields.lease;
    this.leaseMs = fields.leaseMs;
    this.action = fields.action;
    this.version = fields.version;
    this.input = fields.input;
    this.account = fields.account;
    this.run = fields.run;
    this.step = fields.step;
    this.attempt = fields.attempt;
    this.effectKey = fields.effectKey;
    this.traceParent = fields.traceParent ?? "";
    this.expiresAt = fields.expiresAt;
    /**
     * What the call has cost, such as "0.25", of an action with a price.
     * @type {string | undefined}
     */
    this.price = undefined;
  }

  /**
   * Is aborted when nobody waits for the task any more: its run was cancelled or timed out, or the
   * server has taken the worker for lost. What the function returns then does not count.
   */
  get cancelled() {
    return this.#abort.signal;
  }

  /** Ends the task; for the worker. */
  cancel() {
    this.#abort.abort();
  }

  /** Reports how much is done, from 0 to 1, and what is being done. @param {number} fraction @param {string} [text] */
  progress(fraction, text = "") {
    this.#report({ fraction: Math.min(Math.max(fraction, 0), 1), text: text.slice(0, MAX_TEXT) });
  }

  /** Adds a line to the log of the run. @param {"debug" | "info" | "warn" | "error"} level @param {string} text */
  log(level, text) {
    if (text) this.#report({ level, log: text.slice(0, MAX_LOG) });
  }

  /** Passes on a piece of a text that is streamed. @param {string} text */
  delta(text) {
    for (let at = 0, end = 0; at < text.length; at = end) {
      end = Math.min(at + MAX_PIECE, text.length);
      if (end < text.length && /[\uD800-\uDBFF]/.test(text.charAt(end - 1))) end--; // both halves of a character stay together
      this.#report({ delta: text.slice(at, end) });
    }
  }

  /** Shows a value before the result is there. @param {unknown} value */
  preview(value) {
    this.#report({ preview: JSON.parse(JSON.stringify(value)) }); // as it is now
  }

  /**
   * Returns the content of a file of the run as a stream.
   * @param {string} hash
   * @returns {Promise<Readable>}
   */
  openFile(hash) {
    return this.#worker.openFile(this, hash);
  }

  /**
   * Stores a file, and returns its hash.
   * @param {string | Uint8Array | Readable} source its path, its content, or a stream
   * @param {string} [name]
   * @returns {Promise<string>}
   */
  putFile(source, name) {
    return this.#worker.putFile(this, source, name);
  }

  /** @param {Record<string, unknown>} report */
  #report(report) {
    for (const value of Object.values(report)) if (typeof value === "string") this.#reported += value.length;
    if (this.#reported <= MAX_REPORTED) this.#worker.report({ lease: this.lease, ...report });
  }
}

/**
 * @typedef {object} TaskHost what a task needs of its worker
 * @property {(report: Report) => void} report
 * @property {(task: Task, hash: string) => Promise<Readable>} openFile
 * @property {(task: Task, source: string | Uint8Array | Readable, name?: string) => Promise<string>} putFile
 */

/** Sends requests to the server, each over a connection of its own. */
class Server {
  #base;
  /** @type {Record<string, string>} */
  #headers;

  /** @param {string} url @param {string} key @param {string} agent */
  constructor(url, key, agent) {
    this.#base = new URL(url);
    if (!["http:", "https:"].includes(this.#base.protocol)) throw new Error(`server ${url}: want a URL such as https://roux.example.com`);
    this.#headers = { "User-Agent": agent };
    if (key) this.#headers["Authorization"] = "Bearer " + key;
  }

  /**
   * Sends a request and returns its answer, or throws Refused.
   * @param {string} method
   * @param {string} path
   * @param {{ headers?: Record<string, string>, body?: string | Uint8Array | Readable, timeoutMs: number, begun?: (request: http.ClientRequest) => void }} options
   * @returns {Promise<http.IncomingMessage>}
   */
  async send(method, path, { headers, body, timeoutMs, begun }) {
    const url = new URL(this.#base.pathname.replace(/\/$/, "") + path, this.#base);
    const start = url.protocol === "https:" ? https.request : http.request;
    const request = start(url, { method, headers: { ...this.#headers, ...headers }, agent: false });
    request.setTimeout(timeoutMs, () => request.destroy(new Error(`no answer in ${timeoutMs} ms`)));
    begun?.(request);
    const answered = new Promise((/** @type {(answer: http.IncomingMessage) => void} */ resolve, reject) => {
      request.on("response", resolve);
      request.on("error", reject);
    });
    if (body instanceof Readable) {
      pipeline(body, request).catch((error) => request.destroy(error));
    } else {
      request.end(body);
    }
    const answer = await answered;
    const status = answer.statusCode ?? 0;
    if (status >= 200 && status < 300) return answer;
    throw new Refused(status, detail(await textOf(answer)), retryAfter(answer.headers["retry-after"]));
  }

  /**
   * @param {string} path
   * @param {object} value
   * @param {number} timeoutMs
   * @param {(request: http.ClientRequest) => void} [begun]
   * @returns {Promise<any>}
   */
  async call(path, value, timeoutMs, begun) {
    const body = JSON.stringify(value);
    const headers = { "Content-Type": "application/json", "Content-Length": String(Buffer.byteLength(body)) };
    return json(await this.send("POST", path, { headers, body, timeoutMs, begun }));
  }
}

/** Returns what a problem document says, or how another answer begins. @param {string} body */
function detail(body) {
  try {
    const problem = JSON.parse(body);
    const places = (problem.errors ?? []).map((/** @type {any} */ e) => `; ${e.pointer}: ${e.message}`);
    return ((problem.detail ?? problem.title ?? "") + places.join("")).slice(0, 1000);
  } catch {
    return body.slice(0, 200);
  }
}

/** Reads a header Retry-After: seconds, or a date. Returns milliseconds. @param {string | undefined} header */
function retryAfter(header) {
  if (!header) return 0;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Math.max(ms, 0) || 0;
}

function keyOfEnvironment() {
  const { ROUX_KEY, ROUX_KEY_FILE } = process.env;
  return (ROUX_KEY || (ROUX_KEY_FILE ? readFileSync(ROUX_KEY_FILE, "utf8") : "")).trim();
}

/**
 * Returns the first items, as many as one request may have.
 * @template T
 * @param {T[]} items
 * @param {number} most
 */
function batch(items, most) {
  let size = 0;
  let count = 0;
  for (const item of items.slice(0, most)) {
    size += JSON.stringify(item).length;
    if (count > 0 && size > MAX_BODY) break;
    count++;
  }
  return items.slice(0, count);
}

/** Carries out the tasks of a queue. */
export class Worker {
  #server;
  #labels;
  /** @type {Map<string, Handler>} */
  #handlers = new Map();
  #changes = new Changes();
  #stopping = false;
  #over = false; // run has returned: the loops end
  /** @type {Refused | undefined} */
  #refused;
  #busy = 0; // tasks whose functions have not returned
  /** @type {Map<string, Task>} */
  #held = new Map(); // by lease, until their results are recorded
  /** @type {Report[]} */
  #reports = [];
  /** @type {Map<string, Report>} */
  #progress = new Map(); // the newest of each task, by lease
  #seq = 0; // of the last report that was sent
  /** @type {Map<string, Result>} */
  #results = new Map(); // to be sent, by lease
  #sending = 0; // results that are being sent
  #polling = false;
  /** @type {http.ClientRequest | undefined} */
  #poll;
  /** @type {TaskHost} */
  #host = {
    report: (report) => this.#report(report),
    openFile: (task, hash) => this.#openFile(task, hash),
    putFile: (task, source, name) => this.#putFile(task, source, name),
  };

  /** @param {Options} [options] */
  constructor(options = {}) {
    const server = options.server || process.env.ROUX_SERVER;
    if (!server) throw new Error("no server: pass one, or set ROUX_SERVER");
    this.name = options.name ?? `${hostname()}-${process.pid}`;
    this.queue = options.queue || process.env.ROUX_QUEUE || "default";
    this.concurrency = options.concurrency ?? 4;
    this.grace = options.grace ?? 30;
    if (!(this.concurrency >= 1 && this.concurrency <= MAX_TASKS)) throw new Error(`concurrency ${this.concurrency}: want a number from 1 to ${MAX_TASKS}`);
    this.#labels = options.labels ?? {};
    this.#server = new Server(server, options.key || keyOfEnvironment(), "roux-worker-node/1 " + this.name.replace(/[^ -~]/g, "?"));
  }

  /** Says which function carries out an action. @param {string} name @param {Handler} handler */
  action(name, handler) {
    this.#handlers.set(name, handler);
  }

  /**
   * Carries out tasks until SIGTERM, Ctrl-C or stop().
   *
   * Then it takes no more tasks, lets those under way end, reports their results and returns. A
   * second signal ends the program at once. It throws Refused if the server does not accept the key.
   */
  async run() {
    if (this.#handlers.size === 0) throw new Error("no actions: name some with worker.action(name, function) before run()");
    const onSignal = () => {
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal); // the second one ends the program
      this.stop();
    };
    process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
    for (const loop of [this.#leaseLoop(), this.#reportLoop(), this.#resultLoop()]) {
      loop.catch((error) => {
        process.nextTick(() => {
          throw error; // a fault of this file: ending is better than a worker that does half of its work
        });
      });
    }
    while (!this.#stopping) await this.#changes.wait();
    await this.#drain();
    process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
    if (this.#refused) throw this.#refused;
  }

  /** Makes run() drain and return. */
  stop() {
    this.#stopping = true;
    // Only this half of the connection is closed: the server then answers the request for tasks at
    // once, and tasks that it has handed out meanwhile still arrive.
    this.#poll?.socket?.end();
    this.#changes.tell();
  }

  async #drain() {
    const deadline = Date.now() + this.grace * 1000;
    while (this.#busy > 0 || this.#results.size > 0 || this.#sending > 0 || this.#polling) {
      const left = deadline - Date.now();
      if (left <= 0) {
        this.#warn(`ends with ${this.#held.size} tasks under way: other workers get them when their leases lapse`);
        for (const task of this.#held.values()) task.cancel();
        break;
      }
      await this.#changes.wait(left);
    }
    this.#over = true;
    this.#changes.tell();
  }

  // --- taking tasks

  async #leaseLoop() {
    const backoff = new Backoff();
    while (!this.#stopping) {
      if (this.#busy >= this.concurrency) {
        await this.#changes.wait();
        continue;
      }
      try {
        await this.#takeTasks(this.concurrency - this.#busy);
        backoff.reset();
      } catch (error) {
        if (this.#stopping) return;
        if (error instanceof Refused && error.key) {
          this.#refused = error;
          this.stop();
          return;
        }
        this.#warn("asking for tasks: " + said(error));
        const until = Date.now() + backoff.pause(error);
        while (!this.#stopping && Date.now() < until) await this.#changes.wait(until - Date.now());
      }
    }
  }

  /** @param {number} free */
  async #takeTasks(free) {
    const want = { queue: this.queue, actions: [...this.#handlers.keys()].sort(), labels: this.#labels, max: free, waitMs: POLL_MS };
    this.#polling = true;
    try {
      const answer = await this.#server.call("/v1/workers/lease", want, POLL_MS + 10_000, (request) => {
        this.#poll = request;
      });
      for (const fields of answer.tasks) this.#begin(fields);
    } finally {
      this.#polling = false;
      this.#poll = undefined;
      this.#changes.tell();
    }
  }

  /** @param {Fields} fields */
  #begin(fields) {
    const task = new Task(this.#host, fields);
    this.#busy++;
    this.#held.set(task.lease, task);
    this.#changes.tell();
    this.#carryOut(task).then((result) => {
      this.#busy--;
      if (this.#held.has(task.lease)) this.#results.set(task.lease, result); // else nobody waits for it
      this.#changes.tell();
    });
  }

  /** @param {Task} task @returns {Promise<Result>} */
  async #carryOut(task) {
    /** @type {Result} */
    const result = { lease: task.lease };
    try {
      const handler = this.#handlers.get(task.action);
      if (!handler) throw new Error(`there is no function for the action ${task.action}`);
      const output = (await handler(task)) ?? {};
      if (typeof output !== "object" || Array.isArray(output)) throw new TypeError(`the function of ${task.action} has returned no object`);
      result[output instanceof Submitted ? "submitted" : "output"] = JSON.parse(JSON.stringify(output)); // what JSON does not have is the fault of this task
    } catch (error) {
      const code = error instanceof Failure ? error.code.slice(0, 60) : "STEP_FAILED";
      result.error = { code, message: said(error).slice(0, MAX_MESSAGE) };
      if (error instanceof Failure && error.outcomeUnknown) result.error.outcomeUnknown = true;
      if (error instanceof Failure && error.retryAfter !== undefined) {
        result.error.retryAfterMs = Math.min(Math.max(Math.round(error.retryAfter * 1000), 0), 3_600_000);
      } else if (!(error instanceof Failure) && !task.cancelled.aborted) {
        console.error(`${task.step} of run ${task.run} has failed:`, error);
      }
    }
    if (task.price !== undefined) result.price = task.price;
    return result;
  }

  // --- reporting results

  async #resultLoop() {
    const backoff = new Backoff();
    while (!this.#over) {
      // What a task has reported is sent before its result, with which it ends.
      const reporting = new Set([...this.#reports.map((report) => report.lease), ...this.#progress.keys()]);
      const list = batch([...this.#results.values()].filter((result) => !reporting.has(result.lease)), MAX_RESULTS);
      if (list.length === 0) {
        await this.#changes.wait();
        continue;
      }
      for (const result of list) this.#results.delete(result.lease);
      this.#sending = list.length;
      const { again, pause } = await this.#sendResults(list, backoff);
      for (const result of again) this.#results.set(result.lease, result);
      this.#sending = 0;
      this.#changes.tell();
      if (pause > 0) await sleep(pause);
    }
  }

  /**
   * Sends results. Returns those to send again, and after how many milliseconds.
   * @param {Result[]} list
   * @param {Backoff} backoff
   * @returns {Promise<{ again: Result[], pause: number }>}
   */
  async #sendResults(list, backoff) {
    try {
      const answer = await this.#server.call("/v1/workers/results", { results: list }, 60_000);
      const again = list.filter((result, i) => {
        const { status, detail } = answer.results[i];
        if (status === "failed") this.#warn("a result could not be recorded yet: " + detail);
        else this.#release(result.lease);
        return status === "failed";
      });
      if (again.length > 0) return { again, pause: backoff.pause(undefined) };
      backoff.reset();
      return { again: [], pause: 0 };
    } catch (error) {
      if (error instanceof Refused && !error.passing && !error.key) return { again: await this.#mend(list, error, backoff), pause: 0 };
      this.#warn("reporting results: " + said(error));
      return { again: list, pause: backoff.pause(error) };
    }
  }

  /**
   * Finds the result because of which the server refuses a request: it ends its task as a failure.
   * @param {Result[]} list
   * @param {Refused} error
   * @param {Backoff} backoff
   */
  async #mend(list, error, backoff) {
    /** @type {Result[]} */
    const again = [];
    const [result] = list;
    if (list.length > 1 || !result) {
      for (const one of list) {
        const rest = await this.#sendResults([one], backoff);
        again.push(...rest.again);
        await sleep(rest.pause);
      }
      return again;
    }
    this.#warn("the server refuses a result: " + error.message);
    const refused = "the server refuses the result of the worker: ";
    if (result.error?.message.startsWith(refused)) {
      this.#release(result.lease);
      return [];
    }
    return [{ lease: result.lease, error: { code: "STEP_FAILED", message: (refused + error.message).slice(0, MAX_MESSAGE) } }];
  }

  /** @param {string} lease */
  #release(lease) {
    this.#held.delete(lease);
    this.#progress.delete(lease);
    this.#changes.tell();
  }

  // --- heartbeats and reports

  /** @param {Report} report */
  #report(report) {
    if (!this.#held.has(report.lease)) return;
    if ("fraction" in report) this.#progress.set(report.lease, report);
    else this.#reports.push(report);
    this.#changes.tell();
  }

  async #reportLoop() {
    const backoff = new Backoff(2000);
    let beat = Infinity; // when the next heartbeat is due
    while (!this.#over) {
      const now = Date.now();
      const every = Math.min(30_000, ...[...this.#held.values()].map((task) => task.leaseMs)) / 3;
      beat = this.#held.size > 0 ? Math.min(beat, now + every) : Infinity;
      const due = now >= beat;
      if (!due && this.#reports.length === 0 && this.#progress.size === 0) {
        await this.#changes.wait(beat - now);
        continue;
      }
      const leases = due ? [...this.#held.keys()].slice(0, MAX_LEASES) : [];
      const reports = batch([...this.#reports, ...this.#progress.values()], MAX_REPORTS);
      for (const report of reports) report.seq ??= ++this.#seq; // one that has a number is sent again
      const inOrder = [...reports].sort((a, b) => Number(a.seq) - Number(b.seq));
      let pause = REPORT_MS;
      try {
        const answer = await this.#server.call("/v1/workers/heartbeat", { leases, reports: inOrder }, Math.max(1000, Math.min(every, 10_000)));
        backoff.reset();
        this.#sent(reports);
        if (due) beat = Date.now() + every;
        for (const lease of answer.ended) this.#end(lease);
      } catch (error) {
        this.#warn("sending heartbeats: " + said(error));
        if (error instanceof Refused && !error.passing && !error.key) this.#sent(reports); // they are at fault
        pause = Math.min(backoff.pause(error), Math.max(every, error instanceof Refused ? error.retryAfterMs : 0));
      }
      this.#changes.tell(); // results may have waited for these reports
      await sleep(pause);
    }
  }

  /** Forgets reports that were sent. @param {Report[]} reports */
  #sent(reports) {
    const sent = new Set(reports);
    this.#reports = this.#reports.filter((report) => !sent.has(report));
    for (const [lease, report] of this.#progress) if (sent.has(report)) this.#progress.delete(lease);
  }

  /** Stops a task whose lease is over. @param {string} lease */
  #end(lease) {
    const task = this.#held.get(lease);
    this.#held.delete(lease);
    this.#progress.delete(lease);
    this.#reports = this.#reports.filter((report) => report.lease !== lease);
    task?.cancel();
  }

  // --- files

  /** @param {Task} task @param {string} hash @returns {Promise<Readable>} */
  #openFile(task, hash) {
    return this.#try(task, `reading file ${hash}`, async () => {
      const answer = await this.#server.send("GET", `/v1/files/${encodeURIComponent(hash)}/content`, { headers: { "Roux-Lease": task.lease }, timeoutMs: 60_000 });
      const copy = await spool(answer);
      if ("sha256_" + copy.sha256 !== hash) {
        await copy.remove();
        throw new Error("the content has another hash, or is not complete");
      }
      return createReadStream(copy.path).once("close", copy.remove);
    });
  }

  /** @param {Task} task @param {string | Uint8Array | Readable} source @param {string} [name] @returns {Promise<string>} */
  async #putFile(task, source, name) {
    const copy = source instanceof Readable ? await spool(source) : undefined;
    try {
      const content = copy?.path ?? source;
      const read = () => (typeof content === "string" ? createReadStream(content) : Readable.from([content]));
      const { sha256, size } = copy ?? (await measure(read()));
      const headers = {
        "Content-Type": "application/octet-stream", "Content-Length": String(size), "X-Content-Sha256": sha256, "Roux-Lease": task.lease,
      };
      const called = name ?? (typeof source === "string" ? basename(source) : "file");
      const path = "/v1/files?" + new URLSearchParams({ name: called });
      return await this.#try(task, `storing file ${called}`, async () => {
        const answer = await this.#server.send("POST", path, { headers, body: read(), timeoutMs: 60_000 });
        return /** @type {{ hash: string }} */ (await json(answer)).hash;
      });
    } finally {
      await copy?.remove();
    }
  }

  /**
   * Sends a request for a file, again if need be.
   * @template T
   * @param {Task} task
   * @param {string} what
   * @param {() => Promise<T>} request
   */
  async #try(task, what, request) {
    const backoff = new Backoff();
    for (let attempt = 1; ; attempt++) {
      try {
        return await request();
      } catch (error) {
        if (error instanceof Refused && !error.passing) throw error;
        if (attempt === FILE_ATTEMPTS || task.cancelled.aborted) throw new Failure("SERVICE_UNAVAILABLE", `${what}: ${said(error)}`);
        await sleep(backoff.pause(error));
      }
    }
  }

  /** @param {string} text */
  #warn(text) {
    console.error(`${this.name}: ${text}`);
  }
}

/** Writes a stream to a temporary file. @param {Readable} from */
async function spool(from) {
  const directory = await mkdtemp(join(tmpdir(), "roux-worker-"));
  const path = join(directory, "content");
  const remove = () => rm(directory, { recursive: true, force: true });
  try {
    await pipeline(from, createWriteStream(path, { mode: 0o600 }));
    return { path, remove, ...(await measure(createReadStream(path))) };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** @param {Readable} content */
async function measure(content) {
  const hash = createHash("sha256");
  let size = 0;
  for await (const block of content) {
    hash.update(block);
    size += block.length;
  }
  return { sha256: hash.digest("hex"), size };
}
