// SPDX-License-Identifier: Apache-2.0

// The worker that `roux worker conform -- node workers/typescript/conform.js` checks.

import { setTimeout as pause } from "node:timers/promises";
import { text as textOf } from "node:stream/consumers";
import { Failure, Submitted, Worker } from "./worker.js";

const worker = new Worker({ concurrency: 8 });

worker.action("conform-echo", (task) => task.input);

worker.action("conform-fail", ({ input }) => {
  if (!("code" in input)) throw new TypeError(input.message);
  throw new Failure(input.code, input.message, { outcomeUnknown: input.outcomeUnknown });
});

worker.action("conform-progress", async (task) => {
  for (const [fraction, text] of /** @type {[number, string][]} */ ([[0.25, "a quarter"], [0.5, "half"], [0.75, "three quarters"]])) {
    task.progress(fraction, text);
    await pause(150);
  }
  task.log("info", "a line of the log");
  task.delta("a");
  task.delta("b");
  task.preview({ so: "far" });
  await pause(50); // while the others are sent
  task.delta("c");
  return { done: true };
});

worker.action("conform-slow", async (task) => {
  const begun = Date.now();
  await pause(task.input.ms, undefined, { signal: task.cancelled }).catch(() => {}); // it was cancelled
  return { slept: Date.now() - begun };
});

worker.action("conform-file", async (task) => {
  const content = await textOf(await task.openFile(task.input.file));
  return { size: Buffer.byteLength(content), upper: await task.putFile(Buffer.from(content.toUpperCase()), "upper.txt") };
});

worker.action("conform-key", ({ effectKey, attempt, account, run, step }) => ({ effectKey, attempt, account, run, step }));

worker.action("conform-big", (task) => ({ text: "x".repeat(task.input.bytes) }));

worker.action("conform-submit", (task) => new Submitted("conform", task.input.job, { ttl: 600 }));

await worker.run();
