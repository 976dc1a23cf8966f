// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asks the node. Every refusal becomes a `Refused` with the node's own code and words.

import { EventParser, type ServerEvent } from "./sse";

/** The node answered, and said no. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** No answer came, or the stream broke. */
export class Unreachable extends Error {}

export class Client {
  constructor(readonly token: string) {}

  get<T>(path: string): Promise<T> {
    return this.#json<T>("GET", path);
  }

  patch<T>(path: string, body: unknown): Promise<T> {
    return this.#json<T>("PATCH", path, body);
  }

  post<T>(path: string, body: unknown): Promise<T> {
    return this.#json<T>("POST", path, body);
  }

  /** Events until the stream ends, the signal stops it, or nothing comes for `patienceMs`. */
  async *events(
    path: string,
    stop: AbortSignal,
    patienceMs: number,
  ): AsyncGenerator<ServerEvent, void, void> {
    // One signal for both: AbortSignal.any is younger than some browsers that are in use.
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
    try {
      const answer = await this.#ask("GET", path, undefined, both.signal);
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      if (!reader) throw new Unreachable("the stream has no body");
      const parser = new EventParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(fallSilent, patienceMs);
        yield* parser.take(value);
      }
    } catch (error) {
      if (error instanceof Refused) throw error;
      throw new Unreachable(silent ? "nothing came" : "the stream broke");
    } finally {
      clearTimeout(alarm);
      stop.removeEventListener("abort", stopped);
      both.abort();
    }
  }

  async #json<T>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await this.#ask(method, path, body, AbortSignal.timeout(ANSWER_MS));
    return (await answer.json()) as T;
  }

  async #ask(
    method: string,
    path: string,
    body: unknown,
    signal: AbortSignal,
  ): Promise<Response> {
    const headers: Record<string, string> = {};
    if (this.token !== "") headers["authorization"] = `Bearer ${this.token}`;
    const init: RequestInit = { method, headers, signal, cache: "no-store" };
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(body);
    }
    let answer: Response;
    try {
      answer = await fetch(path, init);
    } catch {
      throw new Unreachable("the node does not answer");
    }
    if (answer.ok) return answer;
    const refusal = (await answer.json().catch(() => ({}))) as { code?: string; message?: string };
    const said = refusal.message ?? `the node answers ${answer.status}`;
    throw new Refused(answer.status, refusal.code ?? "unknown", said);
  }
}

/** A change of vifs waits for devices to come up, a second at most. */
const ANSWER_MS = 15_000;
