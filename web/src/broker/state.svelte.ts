// SPDX-License-Identifier: Apache-2.0 OR MIT
// The state of the broker's page. It asks the broker every two seconds, and at once after a change.
// All requests of the page are made here.

import { Client, Refused, Unanswered, described } from "../lib/client";
import { pause, retryDelay } from "../lib/retry";
import { givenToken, keepToken } from "../lib/token";
import type {
  AdmissionView,
  ConnectionChange,
  ConnectionView,
  HistoryEntry,
  LinkTraffic,
  NetworkView,
  PhysicalLinkView,
  PolicingReport,
  RequestedConnection,
} from "./api";
import { LinkMeter, key } from "./meter";

export type Phase = "token" | "connecting" | "live" | "lost";

/** A path to point out in the picture. */
type Path = Pick<AdmissionView["tunnels"][number], "links" | "routers">;

class Broker {
  phase = $state<Phase>("connecting");
  /** The reason for no token or no answer: which request failed, how, and after how long. */
  trouble = $state("");
  /** True if there is a token to forget. */
  known = $state(false);
  networks = $state.raw<NetworkView[]>([]);
  /** Connections of the network that is shown; of very many only the first. */
  connections = $state.raw<ConnectionView[]>([]);
  /** The newest changes in the network that is shown, while somebody looks at them. */
  history = $state.raw<HistoryEntry[]>([]);
  /** Bits a second that pass, by direction of a link of the network that is shown. */
  rates = $state.raw(new Map<string, number>());
  /** Physical links that networks share. */
  physical = $state.raw<PhysicalLinkView[]>([]);
  /** Policing of networks, or why it cannot be read. */
  policing = $state.raw<PolicingReport | string>();
  /** The name of the network that is shown. */
  shown = $state("");
  /** Directions of links to point out, as keys. */
  marked = $state.raw(new Set<string>());
  /** The connection whose path is pointed out. */
  chosen = $state("");

  #client = new Client("");
  #stop = new AbortController();
  #meter = new LinkMeter();
  #metered = "";
  #looksBack = false;

  get network(): NetworkView | undefined {
    return this.networks.find(({ name }) => name === this.shown) ?? this.networks[0];
  }

  /** Takes the token of the address or of this tab, and begins to ask. */
  begin(): void {
    this.use(givenToken(TOKEN));
  }

  /** Asks with a token, which this tab keeps. With another one, all that was shown is forgotten. */
  use(token: string): void {
    this.#stop.abort();
    this.#stop = new AbortController();
    if (token !== this.#client.token) this.#forget();
    this.#client = new Client(token);
    this.trouble = "";
    this.known = token !== "";
    keepToken(TOKEN, token);
    if (token === "") {
      this.phase = "token";
      return;
    }
    if (this.phase === "token") this.phase = "connecting";
    void this.#keep(this.#stop.signal);
  }

  /** Shows a network. */
  show(name: string): void {
    this.shown = name;
    this.connections = [];
    this.history = [];
    this.point([]);
    void this.#refresh();
  }

  /** Starts or stops reading the history too. */
  lookBack(on: boolean): void {
    this.#looksBack = on;
    if (on) void this.#readHistory(this.#stop.signal).catch(() => undefined);
  }

  /** Points out these paths in the picture, and says whose they are. */
  point(paths: readonly Path[], chosen = ""): void {
    const keys = paths.flatMap(({ links, routers }) =>
      links.map((link, index) => key(link, routers[index] ?? "")),
    );
    this.marked = new Set(keys);
    this.chosen = chosen;
  }

  /** Asks whether a connection would be admitted. A refusal is thrown. */
  tryOut(wanted: RequestedConnection): Promise<AdmissionView> {
    return this.#client.post<AdmissionView>("/v1/connections/dry-run", wanted);
  }

  /**
   * Asks for a connection. Without an answer it asks once more: the broker may have made the
   * connection, and makes no second one for the same key. A refusal is thrown.
   */
  async create(wanted: RequestedConnection): Promise<ConnectionView> {
    const [client, key] = [this.#client, drawnKey()];
    const ask = () => client.post<ConnectionView>("/v1/connections", wanted, key);
    const made = await ask().catch((error: unknown) => {
      if (error instanceof Unanswered) return ask();
      throw error;
    });
    await this.#refresh();
    return made;
  }

  /** Changes a connection. A refusal is thrown. */
  async change(id: string, change: ConnectionChange): Promise<void> {
    await this.#client.patch(`/v1/connections/${encodeURIComponent(id)}`, change);
    await this.#refresh();
  }

  /** Commits a connection that is held. A refusal is thrown. */
  async commit(id: string): Promise<void> {
    await this.#client.post(`/v1/connections/${encodeURIComponent(id)}/commit`);
    await this.#refresh();
  }

  /** Renews the lease of a connection. A refusal is thrown. */
  async renew(id: string): Promise<void> {
    await this.#client.post(`/v1/connections/${encodeURIComponent(id)}/renew`);
    await this.#refresh();
  }

  /** Takes a link out of service, or puts it back. A refusal is thrown. */
  async setLink(network: string, link: string, up: boolean): Promise<void> {
    const [of, name] = [network, link].map(encodeURIComponent);
    await this.#client.set(`/v1/networks/${of}/links/${name}`, { up });
    await this.#refresh();
  }

  /** Removes a connection. A refusal is thrown. */
  async remove(id: string): Promise<void> {
    await this.#client.delete(`/v1/connections/${encodeURIComponent(id)}`);
    if (this.chosen === id) this.point([]);
    await this.#refresh();
  }

  /** Reads all anew after a change. If that fails, the next reading says why. */
  async #refresh(): Promise<void> {
    await this.#read(this.#stop.signal).catch(() => undefined);
  }

  #forget(): void {
    this.networks = [];
    this.connections = [];
    this.history = [];
    this.rates = new Map();
    this.physical = [];
    this.policing = undefined;
    this.#meter = new LinkMeter();
    this.point([]);
  }

  /** Asks again and again, until stopped or the token is refused. */
  async #keep(stop: AbortSignal): Promise<void> {
    for (let failures = 0; !stop.aborted; ) {
      let wait = INTERVAL_MS;
      try {
        if (!document.hidden || this.phase !== "live") await this.#read(stop);
        failures = 0;
      } catch (error) {
        if (stop.aborted) return;
        if (error instanceof Refused && error.status === 401) {
          this.use("");
          this.trouble = error.message;
          return;
        }
        this.trouble = described(error);
        this.phase = this.networks.length > 0 ? "lost" : "connecting";
        wait = retryDelay(failures);
        failures += 1;
      }
      await pause(wait, stop);
    }
  }

  async #read(stop: AbortSignal): Promise<void> {
    const client = this.#client;
    const [networks, physical, policing] = await Promise.all([
      client.get<NetworkView[]>("/v1/networks"),
      client.get<PhysicalLinkView[]>("/v1/links"),
      client.get<PolicingReport>("/v1/policing").catch(reason),
    ]);
    if (stop.aborted || client !== this.#client) return;
    this.networks = networks;
    this.physical = physical;
    this.policing = policing;
    const { network } = this;
    if (network) {
      const path = `/v1/connections?network=${encodeURIComponent(network.name)}`;
      const connections = await client.get<ConnectionView[]>(path);
      if (stop.aborted || client !== this.#client || network.name !== this.network?.name) return;
      this.connections = connections;
    }
    this.trouble = "";
    this.phase = "live";
    if (!network) return;
    if (this.#looksBack) await this.#readHistory(stop);
    if (network.name !== this.#metered) {
      this.#metered = network.name;
      this.#meter = new LinkMeter();
      this.rates = new Map();
    }
    // Routers that do not answer are named beside the picture; the rest is shown without them.
    const path = `/v1/networks/${encodeURIComponent(network.name)}/traffic`;
    const reading = await client.get<LinkTraffic[]>(path).catch(() => []);
    if (stop.aborted || client !== this.#client || network.name !== this.#metered) return;
    const rates = this.#meter.take(reading);
    if (rates.size > 0 || reading.length === 0) this.rates = rates;
  }

  async #readHistory(stop: AbortSignal): Promise<void> {
    const [client, name] = [this.#client, this.network?.name ?? ""];
    const path = `/v1/history?network=${encodeURIComponent(name)}`;
    const entries = await client.get<HistoryEntry[]>(path);
    if (stop.aborted || client !== this.#client || name !== this.network?.name) return;
    this.history = entries;
  }
}

/** Draws an `Idempotency-Key`: 128 random bits in hexadecimal digits. */
function drawnKey(): string {
  const bytes = [...crypto.getRandomValues(new Uint8Array(16))];
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns why there is no answer; of a refusal, the broker's words alone. */
const reason = (error: unknown): string =>
  error instanceof Refused ? error.message : described(error);

/** The key of this tab's storage that has its token. */
const TOKEN = "weir-broker-token";
/** The interval at which the broker is asked. */
const INTERVAL_MS = 2000;

export const broker = new Broker();
