// SPDX-License-Identifier: Apache-2.0

// What a program in TypeScript writes with the types of the OpenAPI document. It is
// compiled and never run: .ci/openapi/check generates api.d.ts beside it. The lines
// marked as errors are mistakes that the types must find.

import type { components, paths } from "./api.js";

type Body<Op> = Op extends { requestBody: { content: { "application/json": infer B } } } ? B : never;
type Answer<Op, S extends number> = Op extends { responses: { [K in S]: { content: { "application/json": infer A } } } } ? A : never;

type Execute = paths["/v1/recipes/{id}/execute"]["post"];
// With fields= the answer is a part of it.
type Run = Extract<Answer<paths["/v1/recipe-executions/{id}"]["get"], 200>, components["schemas"]["Execution"]>;
type Problem = components["schemas"]["Problem"];

class RouxError extends Error {
  constructor(readonly problem: Problem) {
    super(`${problem.code}: ${problem.detail ?? problem.title}; ${problem.remedy}`);
  }
}

async function call<T>(server: string, key: string, method: "GET" | "POST", path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method, headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" } };
  if (body !== undefined) init.body = JSON.stringify(body);
  const answer = await fetch(server + path, init);
  if (!answer.ok) throw new RouxError((await answer.json()) as Problem);
  return (await answer.json()) as T;
}

export async function runToEnd(server: string, key: string, recipe: string, parameters: Record<string, unknown>): Promise<Run> {
  const body: Body<Execute> = { parameters, maxCredits: 50, labels: { team: "docs" } };
  const accepted = await call<Answer<Execute, 202>>(server, key, "POST", `/v1/recipes/${encodeURIComponent(recipe)}/execute`, body);
  const id: string = accepted.executionId;
  for (;;) {
    const run = await call<Run>(server, key, "GET", `/v1/recipe-executions/${id}`);
    switch (run.status) {
      case "completed":
        return run;
      case "failed":
      case "cancelled":
        throw new Error(run.error?.message ?? run.state);
    }
    const done: number = run.progress.percentComplete;
    console.log(`${id}: ${done} %`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

// @ts-expect-error: credits are a number
export const wrongType: Body<Execute> = { maxCredits: "50" };

// @ts-expect-error: there is no such field
export const wrongName: Body<Execute> = { parametres: {} };

// @ts-expect-error: there is no such path
export type WrongPath = paths["/v1/recipes/{id}/exekute"];
