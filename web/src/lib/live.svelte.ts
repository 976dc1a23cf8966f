// SPDX-License-Identifier: Apache-2.0 OR MIT
// The state of the page, and the connection that feeds it. It listens to the node's events, and
// connects again by itself when the stream breaks. All requests of the page are made here.

import type { AdviceView, ClassStatusView, RealtimeView, RouterChange } from "./api";
import { Client, Refused, described } from "./client";
import { Meter } from "./meter";
import { Model } from "./model";
import { pause, retryDelay } from "./retry";
import { givenToken, keepToken } from "./token";
import type { Caller, Change, Policy, Status } from "./types";

export type Phase = "token" | "connecting" | "live" | "lost";

class Live {
  phase = $state<Phase>("connecting");
  /** Why there is no token or no connection: which request failed, how, and after how long. */
  trouble = $state("");
  caller = $state.raw<Caller>();
  policy = $state.raw<Policy>();
  status = $state.raw<Status>();
  changes = $state.raw<Change[]>([]);
  /** Counts looks. Charts are drawn anew with each. */
  tick = $state(0);
  /** Counts slower than `tick`. Numbers change with it, so that they can be read. */
  beat = $state(0);
  /** When the last figures came, by the browser's clock. */
  heardAt = $state(0);
  /** When the next attempt is made. */
  retryAt = $state(0);

  /** True if there is a token to forget. */
  known = $state(false);

  model = new Model(ROWS);
  meter = new Meter();
  #client = new Client("");
  #stop = new AbortController();
  #lastBeat = 0;
  #record = { busy: false, again: false };

  /** True if the caller may change what it sees. */
  get mayChange(): boolean {
    return this.caller?.role === "administrator" || this.caller?.role === "tenant";
  }

  /** True if the caller sees the node's routers. */
  get seesRouters(): boolean {
    return this.caller?.role === "administrator" || this.caller?.role === "reader";
  }

  /** Takes the token of the address or of this tab, and connects. */
  begin(): void {
    this.use(givenToken(TOKEN));
  }

  /** Connects with a token, which this tab keeps. With another token, all figures are forgotten. */
  use(token: string): void {
    this.#stop.abort();
    this.#stop = new AbortController();
    if (token !== this.#client.token) this.#forget();
    this.#client = new Client(token);
    // A read that is under way is the old client's: its answer is dropped.
    this.#record = { busy: false, again: false };
    this.trouble = "";
    this.known = token !== "";
    keepToken(TOKEN, token);
    if (token === "") {
      this.phase = "token";
      return;
    }
    if (this.phase === "token") this.phase = "connecting";
    void this.#keep(this.#client, this.#stop.signal);
  }

  /** Forgets the token. */
  leave(): void {
    this.use("");
  }

  /** Forgets everything that the token has shown. */
  #forget(): void {
    this.status = this.policy = this.caller = undefined;
    this.changes = [];
    this.model = new Model(ROWS);
    this.meter = new Meter();
  }

  /** Tries again now. */
  retry(): void {
    this.use(this.#client.token);
  }

  /** Changes a vif. The node checks the change; its refusal is thrown as an error. */
  change(vif: string, body: unknown): Promise<Change> {
    return this.#client.patch<Change>(`/v1/vifs/${encodeURIComponent(vif)}`, body);
  }

  /** Changes a router, as a vif is changed. */
  changeRouter(router: string, body: RouterChange): Promise<Change> {
    return this.#client.patch<Change>(`/v1/routers/${encodeURIComponent(router)}`, body);
  }

  /** The state of the class of a router; nothing if it has none. */
  async classOf(router: string): Promise<ClassStatusView | undefined> {
    const { routers } = await this.#client.get<RealtimeView>("/v1/realtime");
    return routers.find((one) => one.router === router);
  }

  /** Has the node observe a router's activations for two seconds, and propose a class. */
  advice(router: string): Promise<AdviceView> {
    return this.#client.get<AdviceView>(`/v1/realtime/${encodeURIComponent(router)}/advice`);
  }

  /** Takes a change back. */
  async undo(id: number): Promise<void> {
    await this.#client.post<Change>("/v1/undo", { id });
  }

  /** Reads the record of changes, by one request at a time, however often it changes meanwhile. */
  async #readChanges(client: Client): Promise<void> {
    const record = this.#record;
    record.again = true;
    if (record.busy) return;
    record.busy = true;
    while (record.again && client === this.#client) {
      record.again = false;
      // After a failure it is read with the next change, or when the connection is back.
      const path = `/v1/changes?newest=${CHANGES}`;
      const newest = await client.get<Change[]>(path).catch(() => undefined);
      if (newest && client === this.#client) this.changes = newest.reverse();
    }
    record.busy = false;
  }

  /** Keeps a connection, until stopped or the token is refused. */
  async #keep(client: Client, stop: AbortSignal): Promise<void> {
    for (let attempt = 0; !stop.aborted; attempt += 1) {
      const heard = this.heardAt;
      try {
        await this.#listen(client, stop);
        this.trouble = "GET /v1/events: the node ended the stream";
      } catch (error) {
        if (stop.aborted) return;
        if (error instanceof Refused && error.status === 401) {
          this.use("");
          this.trouble = error.message;
          return;
        }
        this.trouble = described(error);
      }
      if (stop.aborted) return;
      if (this.heardAt !== heard) attempt = 0;
      if (this.phase === "live") this.model.lose();
      this.phase = this.status ? "lost" : "connecting";
      const wait = retryDelay(attempt);
      this.retryAt = Date.now() + wait;
      await pause(wait, stop);
    }
  }

  async #listen(client: Client, stop: AbortSignal): Promise<void> {
    const caller = await client.get<Caller>("/v1/caller");
    const policy = await client.get<Policy>("/v1/policy");
    if (stop.aborted) return;
    this.caller = caller;
    // With many vifs, the status is read once a second only.
    const interval = policy.vifs.length > VIFS_FAST ? 1000 : 100;
    const path = `/v1/events?interval_ms=${interval}`;
    for await (const { event, data } of client.events(path, stop, SILENCE_MS)) {
      if (stop.aborted) return;
      if (event === "policy") {
        this.policy = JSON.parse(data) as Policy;
        this.model.follow(this.policy);
        void this.#readChanges(client);
      }
      if (event === "status") this.#hear(JSON.parse(data) as Status);
    }
  }

  #hear(status: Status): void {
    this.status = status;
    this.model.look(status);
    this.meter.look(status);
    this.heardAt = Date.now();
    this.tick += 1;
    this.trouble = "";
    this.phase = "live";
    if (this.heardAt - this.#lastBeat >= BEAT_MS) {
      this.#lastBeat = this.heardAt;
      this.beat += 1;
    }
  }
}

/** The key of this tab's storage that has its token. */
const TOKEN = "weir-token";
/** A minute at ten a second. */
const ROWS = 600;
/** The number of the newest changes that are shown. */
const CHANGES = 20;
/** The most vifs of which ten statuses a second are read. */
const VIFS_FAST = 100;
/** The least time between two changes of a number: more often, nobody can read it. */
const BEAT_MS = 300;
/** The silence after which the connection counts as broken. Events come once a second at least. */
const SILENCE_MS = 4000;

export const live = new Live();
