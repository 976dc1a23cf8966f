// SPDX-License-Identifier: Apache-2.0 OR MIT
import { afterEach, expect, it, vi } from "vitest";

import { broker } from "./state.svelte";

afterEach(() => vi.unstubAllGlobals());

/** Answers each request by its method and path; a path without an answer has none. */
function answering(answers: Record<string, unknown>): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    const line = `${init.method} ${path}`;
    asked.push(line);
    const known = line in answers;
    return known
      ? Promise.resolve(new Response(JSON.stringify(answers[line])))
      : Promise.reject(new Error("gone"));
  });
  return asked;
}

it("a connection that was made is no failure, even if nothing can be read after it", async () => {
  const asked = answering({ "POST /v1/connections": { id: "c1" } });
  const wanted = { network: "n", from: "a", to: "b", rate: "1Mbit" };
  await expect(broker.create(wanted)).resolves.toEqual({ id: "c1" });
  expect(asked).toContain("GET /v1/networks");
});

it("asks again with the same key without an answer, and not after a refusal", async () => {
  const keys: string[] = [];
  const outcomes: (() => Promise<Response>)[] = [];
  vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
    if (init.method !== "POST") return Promise.reject(new Error("gone"));
    keys.push(new Headers(init.headers).get("idempotency-key") ?? "");
    return outcomes.shift()?.();
  });
  const wanted = { network: "n", from: "a", to: "b", rate: "1Mbit" };
  const lost = () => Promise.reject(new Error("reset"));
  outcomes.push(lost, () => Promise.resolve(new Response('{ "id": "c1" }')));
  await expect(broker.create(wanted)).resolves.toEqual({ id: "c1" });
  outcomes.push(lost, lost);
  await expect(broker.create(wanted)).rejects.toThrow("no answer (reset)");
  const refusal = '{ "code": "refused", "message": "no room" }';
  outcomes.push(() => Promise.resolve(new Response(refusal, { status: 422 })));
  await expect(broker.create(wanted)).rejects.toThrow("no room");
  expect(keys).toHaveLength(5);
  for (const key of keys) expect(key).toMatch(/^[0-9a-f]{32}$/);
  expect(new Set(keys).size).toBe(3);
  expect([keys[0], keys[2]]).toEqual([keys[1], keys[3]]);
});

it("reads the network that is shown, and says why it cannot show policing", async () => {
  const asked = answering({
    "DELETE /v1/connections/c1": null,
    "GET /v1/networks": [{ name: "a" }, { name: "b/c" }],
    "GET /v1/links": [],
    "GET /v1/connections?network=b%2Fc": [{ id: "c2" }],
  });
  broker.shown = "b/c";
  await broker.remove("c1");
  expect(asked).toContain("GET /v1/connections?network=b%2Fc");
  expect(broker.connections).toEqual([{ id: "c2" }]);
  expect(broker.policing).toMatch(/^GET \/v1\/policing: no answer \(gone\)/);
});
