// SPDX-License-Identifier: Apache-2.0 OR MIT
// The client of the node's interface. Each failure names its request, what went wrong, and after
// how long. A refusal of the node is thrown as a `Refused`, everything else as an `Unanswered`.

import type { ApiError, ErrorCode, KeyView } from "./api";
import { EventParser, type ServerEvent } from "./sse";
import { duration } from "./format";

/** A request: method, path, and when it was sent. */
class Sent {
  readonly #at = performance.now();

  constructor(
    readonly method: string,
    readonly path: string,
  ) {}

  /** Describes a failure, as in `GET /v1/caller: status 503 after 12 ms`. */
  failed(how: string): string {
    return `${this.method} ${this.path}: ${how} after ${duration(performance.now() - this.#at)}`;
  }
}

/** The node answered with a refusal. The message is the node's text. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: ErrorCode | "unknown",
    message: string,
    /** The request and the status, such as `GET /v1/caller: status 503 after 12 ms`. */
    readonly request: string,
    /** The keys of the policy that the refusal is about. */
    readonly keys: readonly KeyView[],
    /** All of the answer. */
    readonly answer: unknown,
  ) {
    super(message);
  }
}

/** No answer came, or it broke off. The message names the request and the failure. */
export class Unanswered extends Error {}

/** Describes a failure in one line: request, failure, time, and the node's text if there is one. */
export function described(error: unknown): string {
  if (error instanceof Refused) return `${error.request}: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}

export class Client {
  constructor(readonly token: string) {}

  get<T>(path: string): Promise<T> {
    return this.#json<T>("GET", path);
  }

  patch<T>(path: string, body: unknown): Promise<T> {
    return this.#json<T>("PATCH", path, body);
  }

  /** Changes something. The answer has no body. */
  async set(path: string, body: unknown): Promise<void> {
    await this.#ask(new Sent("PATCH", path), body, AbortSignal.timeout(ANSWER_MS));
  }

  /** Posts. A broker executes a request that comes twice with one `Idempotency-Key` once. */
  post<T>(path: string, body?: unknown, key?: string): Promise<T> {
    return this.#json<T>("POST", path, body, key);
  }

  /** Removes something. The answer has no body. */
  async delete(path: string): Promise<void> {
    await this.#ask(new Sent("DELETE", path), undefined, AbortSignal.timeout(ANSWER_MS));
  }

  /** Yields events until the stream ends, `stop` aborts it, or none comes for `patienceMs`. */
  async *events(
    path: string,
    stop: AbortSignal,
    patienceMs: number,
  ): AsyncGenerator<ServerEvent, void, void> {
    // One signal for both reasons. `AbortSignal.any` is missing in browsers that are still in use.
    const both = new AbortController();
    const stopped = () => both.abort();
    if (stop.aborted) stopped();
    stop.addEventListener("abort", stopped, { once: true });
    let silent = false;
    const fallSilent = () => {
      silent = true;
      both.abort();
    };
    let alarm = setTimeout(fallSilent, patienceMs);
    const sent = new Sent("GET", path);
    try {
      const answer = await this.#ask(sent, undefined, both.signal);
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      if (!reader) throw new Error("the answer has no body");
      const parser = new EventParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(fallSilent, patienceMs);
        yield* parser.take(value);
      }
    } catch (error) {
      if (silent) throw new Unanswered(sent.failed(`no event for ${duration(patienceMs)},`));
      if (error instanceof Refused || error instanceof Unanswered) throw error;
      throw new Unanswered(sent.failed(`the stream broke (${described(error)})`));
    } finally {
      clearTimeout(alarm);
      stop.removeEventListener("abort", stopped);
      both.abort();
    }
  }

  async #json<T>(method: string, path: string, body?: unknown, key?: string): Promise<T> {
    const sent = new Sent(method, path);
    const answer = await this.#ask(sent, body, AbortSignal.timeout(ANSWER_MS), key);
    try {
      return (await answer.json()) as T;
    } catch (error) {
      throw new Unanswered(sent.failed(`the answer broke off (${described(error)})`));
    }
  }

  async #ask(sent: Sent, body: unknown, signal: AbortSignal, key?: string): Promise<Response> {
    const headers: Record<string, string> = {};
    if (this.token !== "") headers["authorization"] = `Bearer ${this.token}`;
    if (key !== undefined) headers["idempotency-key"] = key;
    const init: RequestInit = { method: sent.method, headers, signal, cache: "no-store" };
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(body);
    }
    let answer: Response;
    try {
      answer = await fetch(sent.path, init);
    } catch (error) {
      throw new Unanswered(sent.failed(`no answer (${described(error)})`));
    }
    if (answer.ok) return answer;
    const request = sent.failed(`status ${answer.status}`);
    const refusal = (await answer.json().catch(() => ({}))) as Partial<ApiError>;
    const text = refusal.message ?? answer.statusText;
    const { code = "unknown", keys = [] } = refusal;
    throw new Refused(answer.status, code, text, request, keys, refusal);
  }
}

/** The longest wait for an answer. A change of vifs waits a second at most for devices. */
const ANSWER_MS = 15_000;
