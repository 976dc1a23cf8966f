// SPDX-License-Identifier: Apache-2.0 OR MIT
// Drives the page in a real browser, as a person would, and says what it saw.
//
//   node web/e2e/page.mjs URL FOLDER VIF MBPS
//
// The node behind URL carries traffic. Pictures go into FOLDER; VIF is limited to MBPS. Each line
// on standard output is a JSON object: `{"sample": NAME, "value": NUMBER}` is something seen,
// `{"do": WHAT}` asks whoever started this to do something to the node and to answer with a line:
// `crash` ends it, `start` starts it again, `empty` takes its vifs away, `full` brings them back.

import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

const [url, folder, vif, mbps] = process.argv.slice(2);
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const sample = (name, value) => say({ sample: name, value: Number(value) });

/** Has the caller do something to the node. */
async function ask(what) {
  say({ do: what });
  const { done } = await answers.next();
  if (done) throw new Error(`nobody answered to ${what}`);
}

const VIEWS = [360, 1600].flatMap((width) =>
  ["light", "dark"].map((colorScheme) => ({ width, colorScheme, name: `${width}-${colorScheme}` })),
);

/** What the browser itself logs of an answer that refuses, or of none, whatever the page does. */
const NETWORK = /^Failed to load resource: /;

/** What of that is meant to happen now; anything else is an error of the page's. */
let expected;

async function main() {
  await mkdir(folder, { recursive: true });
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
  });
  try {
    await drive(browser);
  } finally {
    await browser.close();
  }
}

async function drive(browser) {
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  page.setDefaultTimeout(20_000);
  const errors = { page: 0, network: 0 };
  const count = (text) => {
    const kind = NETWORK.test(text) && expected?.test(text) ? "network" : "page";
    errors[kind] += 1;
    if (kind === "page") process.stderr.write(`console: ${text}\n`);
  };
  page.on("console", (message) => message.type() === "error" && count(message.text()));
  page.on("pageerror", (error) => count(String(error)));
  try {
    await visit(page);
  } catch (error) {
    await page.screenshot({ path: `${folder}/failed.png`, fullPage: true });
    throw error;
  }
  sample("errors", errors.page);
  sample("network", errors.network);
}

/** All of it, in the order in which a person might meet it. */
async function visit(page) {
  const findings = new Map(VIEWS.map(({ name }) => [name, 0]));
  await page.goto(url);
  await phase(page, "Live");
  await figures(page);
  // Lines need a while to be some.
  await page.waitForTimeout(9000);
  sample("events", await pace(page));
  const notices = page.getByRole("note", { name: "Faults and keys that are not held" });
  sample("notices", await notices.locator("p").count());
  for (const view of VIEWS) await look(page, view, "page", findings);

  await change(page, findings);
  await shape(page, findings);
  await outage(page, findings);
  await ask("empty");
  await page.getByRole("heading", { name: "No tenants yet" }).waitFor();
  for (const view of VIEWS) await look(page, view, "empty", findings);
  await ask("full");
  await figures(page);

  await page.getByRole("button", { name: "Forget token" }).click();
  expected = /401/;
  await page.getByLabel("Token", { exact: true }).fill("wrong");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("alert").waitFor();
  // Nothing of what the token before has shown is left for whoever comes next.
  sample("left", (await page.getByRole("article").count()) + (await page.getByText(vif).count()));
  for (const view of VIEWS) await look(page, view, "token", findings);

  for (const [name, number] of findings) sample(`axe/${name}`, number);
}

/** The word for the connection. */
const phase = (page, words) =>
  page.locator("header .phase", { hasText: words }).waitFor({ timeout: 30_000 });

/** Waits until the node's traffic shows in the page's digits. */
const figures = (page) =>
  page.waitForFunction(() =>
    [...document.querySelectorAll("article .rate")].some(
      (rate) => Number.parseFloat(rate.textContent ?? "") > 0,
    ),
  );

/** How often a second the charts are drawn: as often as events come. */
async function pace(page) {
  return page.evaluate(async () => {
    const canvas = document.querySelector("article canvas");
    const context = canvas.getContext("2d");
    const clear = context.clearRect;
    let drawn = 0;
    context.clearRect = (...all) => {
      drawn += 1;
      return clear.apply(context, all);
    };
    await new Promise((resolve) => setTimeout(resolve, 3000));
    context.clearRect = clear;
    return drawn / 3;
  });
}

/** A picture in one size and colour, and what axe finds in it. */
async function look(page, { width, colorScheme, name }, what, findings) {
  await page.setViewportSize({ width, height: width < 600 ? 780 : 1000 });
  await page.emulateMedia({ colorScheme });
  await page.waitForTimeout(400);
  const wide = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  if (wide > 0) {
    findings.set(name, (findings.get(name) ?? 0) + 1);
    process.stderr.write(`${what} ${name}: ${wide} px wider than the window\n`);
  }
  await page.evaluate(axeSource);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document));
  // An axe that looked at nothing would find nothing.
  if (passes.length < 10) throw new Error(`axe looked at ${passes.length} rules only`);
  const bad = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  for (const { id, help, nodes } of bad) {
    const where = nodes.map(({ target }) => target.join(" ")).slice(0, 3);
    process.stderr.write(`${what} ${name}: ${id}: ${help}: ${where.join("; ")}\n`);
  }
  findings.set(name, (findings.get(name) ?? 0) + bad.length);
  await page.screenshot({ path: `${folder}/${what}-${name}.png`, fullPage: true });
  sample(`picture/${what}-${name}`, 1);
}

/** Opens a vif's form with the keyboard, is refused, then limits the vif, then takes it back. */
async function change(page, findings) {
  await page.setViewportSize({ width: 1600, height: 1000 });
  const card = page.getByRole("article", { name: `Tenant ${vif}` });
  await card.locator("summary").focus();
  await page.keyboard.press("Enter");
  const form = card.getByRole("form");
  const sends = form.getByRole("group", { name: "Sends" });
  const field = sends.getByLabel("Guarantee", { exact: true });
  const before = await field.inputValue();
  await sends.getByLabel("Guarantee, slider").focus();
  await page.keyboard.press("ArrowRight");
  sample("keyboard", (await field.inputValue()) !== before);

  // A guarantee beyond the port: the node's own words, at the field.
  expected = /422/;
  await field.fill("2 Gbit");
  await field.press("Enter");
  const refusal = sends.getByRole("alert");
  await refusal.waitFor();
  sample("refused", /\b\d+[MG]bit\b/.test(await refusal.innerText()));
  for (const view of VIEWS) await look(page, view, "refused", findings);
  await page.setViewportSize({ width: 1600, height: 1000 });
  await form.getByRole("button", { name: "Reset" }).click();
  expected = undefined;

  // As a person types it, which is not as the node says it.
  const limit = sends.getByLabel("Limit", { exact: true });
  await limit.fill(`${mbps}M`);
  await form.getByRole("button", { name: "Apply" }).click();
  await form.getByText(/Holds as change/).waitFor();
  say({ event: "limited" });
  await page.waitForTimeout(6000);
  sample("shown", await shownMbps(card));
  const idle = await form.getByRole("button", { name: "Apply" }).isDisabled();
  sample("applied", idle && (await limit.inputValue()) === `${mbps} Mbit`);
  await look(page, VIEWS[2], "limited", findings);
  say({ event: "measured" });

  await page.getByRole("button", { name: /^Undo change/ }).first().click();
  await page.getByText(/takes back/).first().waitFor();
  say({ event: "undone" });
  await page.waitForTimeout(4000);
  sample("shown/undone", await shownMbps(card));
  await card.locator("summary").click();
}

/** Puts a smooth window into the place of the bucket, then another queue; takes both back. */
async function shape(page, findings) {
  await page.setViewportSize({ width: 1600, height: 1000 });
  const card = page.getByRole("article", { name: `Tenant ${vif}` });
  await card.locator("summary").click();
  const form = card.getByRole("form");
  const sends = form.getByRole("group", { name: "Sends" });
  const field = (label) => sends.getByLabel(label, { exact: true });
  let last = "none yet";
  const apply = async () => {
    await form.getByRole("button", { name: "Apply" }).click();
    const note = form.getByText(/Holds as change \d+/).filter({ hasNotText: last });
    await note.waitFor();
    last = await note.innerText();
    return /\d+/.exec(last)[0];
  };
  const takeBack = async (id) => {
    await page.getByRole("button", { name: `Undo change ${id}`, exact: true }).click();
    await page.getByText(`takes back #${id}`).waitFor();
  };
  /** The form shows what the node says. */
  const shows = async (label, value) => {
    for (let tries = 0; tries < 100; tries += 1) {
      if ((await field(label).inputValue()) === value) return true;
      await page.waitForTimeout(100);
    }
    return false;
  };
  const bucket = await field("Burst").inputValue();
  await field("Limit").fill(`${mbps}M`);
  await field("Shaper").selectOption("smooth");
  await field("Width").fill("5ms");
  const changes = [await apply()];
  // The rest of the window, and the queue behind it, are the node's defaults.
  const smooth = [await shows("Width", "5 ms"), await shows("Credit", "100 ms")];
  smooth.push(await shows("Queue", "fifo"));
  for (const view of VIEWS) await look(page, view, "smooth", findings);
  await page.setViewportSize({ width: 1600, height: 1000 });
  await field("Shaper").selectOption("bucket");
  changes.unshift(await apply());
  smooth.push(await shows("Queue", "flows"));
  await field("Queue").selectOption("fifo");
  changes.unshift(await apply());
  for (const id of changes) await takeBack(id);
  smooth.push(await shows("Queue", "flows"), await shows("Burst", bucket));
  // Where packets wait by flow, CoDel is on.
  for (const [label, value] of [["Congestion", "drop"], ["Delay control", "none"]]) {
    const before = await field(label).inputValue();
    await field(label).selectOption(value);
    const change = await apply();
    smooth.push(await shows(label, value));
    await takeBack(change);
    smooth.push(await shows(label, before));
  }
  sample("smooth", smooth.every((one) => one));
  await card.locator("summary").click();
}

/** What the page says that the tenant sends, in Mb/s. */
async function shownMbps(card) {
  const text = (await card.locator(".rate").first().innerText()).replace(/\s+/g, " ").trim();
  const [, number, prefix] = /^([\d.]+) (k|M|G|)b\/s$/.exec(text) ?? [];
  if (number === undefined) throw new Error(`no rate: ${text}`);
  return Number(number) * { "": 1e-6, k: 1e-3, M: 1, G: 1e3 }[prefix];
}

/** The node dies and comes back: the page says so, and goes on by itself. */
async function outage(page, findings) {
  expected = /./;
  await ask("crash");
  await phase(page, "Connection lost");
  await page.waitForTimeout(2500);
  for (const view of VIEWS) await look(page, view, "lost", findings);
  await ask("start");
  const started = Date.now();
  await phase(page, "Live");
  await figures(page);
  sample("back", (Date.now() - started) / 1000);
  await page.waitForTimeout(1500);
  expected = undefined;
}

await main().catch((error) => {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
  process.exitCode = 1;
});
process.stdin.destroy();
