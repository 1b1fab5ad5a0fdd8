// SPDX-License-Identifier: Apache-2.0

// It is only compiled: a worker in TypeScript has the types of worker.js.

import { Failure, Submitted, Task, Worker, type Options } from "./worker.js";

const options: Options = { queue: "demo", concurrency: 2, labels: { gpu: "yes" }, grace: 10 };
const worker = new Worker(options);
worker.action("shout", async (task: Task) => {
  const signal: AbortSignal = task.cancelled;
  signal.throwIfAborted();
  if (task.attempt > 3) throw new Failure("RATE_LIMITED", "later", { retryAfter: 5 });
  const file: string = await task.putFile(await task.openFile(String(task.input.file)), "copy.txt");
  task.price = "0.5";
  return { file };
});
worker.action("draw", () => new Submitted("farm", "job_1", { ttl: 3600, handle: { model: "final" } }));
// @ts-expect-error an action has a name
worker.action(5, () => ({}));
// @ts-expect-error there is no such level
worker.action("log", (task) => task.log("loud", "text"));
await worker.run();
