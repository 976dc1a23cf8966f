// SPDX-License-Identifier: Apache-2.0 OR MIT
import { afterEach, expect, test, vi } from "vitest";

import { Client, Refused, Unanswered, described } from "./client";
import { retryDelay } from "./retry";

afterEach(() => vi.unstubAllGlobals());

const answerWith = (answer: () => Promise<Response>) => vi.stubGlobal("fetch", answer);

/** The failure of a request, as the page shows it. */
const failure = (asked: Promise<unknown>): Promise<Error> =>
  asked.then(
    () => expect.unreachable(),
    (error: Error) => error,
  );

test("a failure names the request, what went wrong, and after how long", async () => {
  const caller = () => failure(new Client("").get("/v1/caller"));
  answerWith(() => Promise.reject(new TypeError("Failed to fetch")));
  expect(described(await caller())).toMatch(
    /^GET \/v1\/caller: no answer \(Failed to fetch\) after \d+ ms$/,
  );
  answerWith(() => Promise.resolve(new Response("{")));
  const broken = await caller();
  expect(broken).toBeInstanceOf(Unanswered);
  expect(described(broken)).toMatch(/^GET \/v1\/caller: the answer broke off \(.+\) after \d+ ms$/);
  answerWith(() => Promise.resolve(new Response("", { status: 502, statusText: "Bad Gateway" })));
  expect(described(await caller())).toMatch(
    /^GET \/v1\/caller: status 502 after \d+ ms: Bad Gateway$/,
  );
});

test("a refusal keeps the node's code and text apart from the request", async () => {
  const body = JSON.stringify({ code: "refused", message: "too much" });
  answerWith(() => Promise.resolve(new Response(body, { status: 422 })));
  const refused = (await failure(new Client("").patch("/v1/vifs/a", {}))) as Refused;
  expect([refused.status, refused.code, refused.message]).toEqual([422, "refused", "too much"]);
  expect(described(refused)).toMatch(/^PATCH \/v1\/vifs\/a: status 422 after \d+ ms: too much$/);
});

test("a silent stream and a broken one are told apart", async () => {
  const stream = (start: (at: ReadableStreamDefaultController) => void, signal?: AbortSignal) =>
    new Response(
      new ReadableStream({
        start(at) {
          start(at);
          signal?.addEventListener("abort", () => at.error(signal.reason));
        },
      }),
    );
  const listen = async () => {
    for await (const _ of new Client("").events("/v1/events", new AbortController().signal, 30));
  };
  vi.stubGlobal("fetch", (_: string, init: RequestInit) =>
    Promise.resolve(stream(() => undefined, init.signal ?? undefined)),
  );
  expect(described(await failure(listen()))).toMatch(
    /^GET \/v1\/events: no event for 30 ms, after \d+ ms$/,
  );
  answerWith(() => Promise.resolve(stream((at) => at.error(new Error("reset")))));
  expect(described(await failure(listen()))).toMatch(
    /^GET \/v1\/events: the stream broke \(reset\) after \d+ ms$/,
  );
});

test("the first retry comes after 250 ms, later ones after twice as long, up to 5 s", () => {
  expect([0, 1, 2, 3, 4, 5, 50].map(retryDelay)).toEqual([250, 500, 1000, 2000, 4000, 5000, 5000]);
});
