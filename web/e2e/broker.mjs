// SPDX-License-Identifier: Apache-2.0 OR MIT
// Drives the broker's page in a real browser, as a person would, and says what it saw.
//
//   node web/e2e/broker.mjs URL FOLDER [FROM TO RATE MUCH OTHER]
//   node web/e2e/broker.mjs URL FOLDER ask FROM TO RATE BACK PROTOCOL PORT AVOID
//
// The address has a token. Between end nodes FROM and TO a connection of RATE is admitted, one of
// MUCH is refused; OTHER is the token of another network's administrator. Without them only what
// networks share is looked at. With `ask` it only asks for one connection, to a port, that avoids a
// link. Pictures go into FOLDER.
// Each line on standard output is a JSON object: `{"sample": NAME, "value": NUMBER}`.

import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

const [url, folder, ...words] = process.argv.slice(2);
const [from, to, rate, much, other] = words;
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");

const sample = (name, value) =>
  process.stdout.write(`${JSON.stringify({ sample: name, value: Number(value) })}\n`);

const VIEWS = [360, 1600].flatMap((width) =>
  ["light", "dark"].map((colorScheme) => ({ width, colorScheme, name: `${width}-${colorScheme}` })),
);

/** Lines that the browser itself logs of an answer that refuses, whatever the page does. */
const REFUSED = /^Failed to load resource: .*(401|422)/;

async function main() {
  await mkdir(folder, { recursive: true });
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
  });
  try {
    const viewport = { width: 1600, height: 1000 };
    // The test's certificate is its own.
    const page = await browser.newPage({ viewport, ignoreHTTPSErrors: true });
    page.setDefaultTimeout(20_000);
    let errors = 0;
    const count = (text) => {
      if (REFUSED.test(text)) return;
      errors += 1;
      process.stderr.write(`console: ${text}\n`);
    };
    page.on("console", (message) => message.type() === "error" && count(message.text()));
    page.on("pageerror", (error) => count(String(error)));
    try {
      if (from === "ask") await askOnce(page, words.slice(1));
      else await (from ? visit(page) : visitSharing(page));
    } catch (error) {
      await page.screenshot({ path: `${folder}/failed.png`, fullPage: true });
      throw error;
    }
    sample("errors", errors);
  } finally {
    await browser.close();
  }
}

/** What the first network shares with others, while it is held. */
async function visitSharing(page) {
  await page.goto(url);
  const under = (name) => ({ has: page.getByRole("heading", { name }) });
  const policing = page.locator("section", under("Policing"));
  await policing.locator(".state", { hasText: /^\s*held\s*$/ }).waitFor();
  const shares = page.locator("section", under(/^Shares/));
  const words = await shares.locator("tbody tr").allInnerTexts();
  const share = /b1-b2 over n1-n2: n1 ↔ n2\s+60\S* Mb\/s of 90\S* Mb\/s\s+10\S* Mb\/s/;
  sample("shares", words.filter((text) => share.test(text)).length);
  sample("routers", await policing.locator("tbody tr").count());
  const held = await policing.locator("tbody .held").allInnerTexts();
  sample("held", held.filter((text) => /^1\.4\d* kp\/s$/.test(text)).length);
  sample("contended", await policing.getByText("n2 is contended").count());
  sample("foreign", await policing.getByText("r1").count());
  for (const view of VIEWS) await look(page, view, "sharing");
}

/** A connection with a port and a link that it avoids; it stays. */
async function askOnce(page, [from, to, rate, back, protocol, port, avoid]) {
  await page.goto(url);
  await page.locator("header .phase", { hasText: "Live" }).waitFor();
  const choose = (name, value) =>
    page.getByRole("combobox", { name, exact: true }).selectOption(value);
  const fill = (name, value) => page.getByRole("textbox", { name, exact: true }).fill(value);
  await choose("From", from);
  await choose("To", to);
  await fill("Rate", rate);
  await fill("Rate back", back);
  await page.getByText("Ports and limits").click();
  await choose("Protocol", protocol);
  await fill("To port", port);
  await page.getByRole("checkbox", { name: avoid, exact: true }).check();
  for (const view of VIEWS) await look(page, view, "form");
  await page.getByRole("button", { name: "Ask", exact: true }).click();
  await page.getByText(/is active/).waitFor();
  sample("asked", 1);
}

/** All of it, in the order in which a person might meet it. */
async function visit(page) {
  await page.goto(url);
  await page.locator("header .phase", { hasText: "Live" }).waitFor();
  sample("routers", await page.locator("svg circle").count());
  await page.getByRole("combobox", { name: "From", exact: true }).selectOption(from);
  await page.getByRole("combobox", { name: "To", exact: true }).selectOption(to);
  await rateField(page).fill(much);
  await page.getByRole("button", { name: "What if?" }).click();
  const take = page.getByRole("button", { name: /^Take rate/ });
  await take.waitFor();
  for (const view of VIEWS) await look(page, view, "refused");
  await take.click();
  sample("taken", (await rateField(page).inputValue()) !== much);
  await page.getByRole("button", { name: "What if?" }).click();
  await page.getByText("Would be admitted.").waitFor();
  sample("marked", await page.locator("svg line.marked").count());
  sample("reserved", (await page.getByRole("button", { name: /^Give back / }).count()) > 0);

  await rateField(page).fill(rate);
  await page.getByRole("button", { name: "Ask", exact: true }).click();
  await page.getByText(/is active/).waitFor();
  const back = page.getByRole("button", { name: /^Give back / });
  await back.waitFor();
  // Rates need two readings.
  await page.waitForTimeout(4500);
  sample("rates", await page.locator("svg line.passing").count());
  for (const view of VIEWS) await look(page, view, "page");

  const shown = () => page.locator("li > div").nth(1).innerText();
  const before = await shown();
  await page.getByRole("button", { name: /^Change / }).click();
  await page.locator("li").getByRole("textbox", { name: "Rate" }).fill(much);
  await page.getByRole("button", { name: "Apply" }).click();
  await page.locator("li").getByRole("button", { name: /^Take rate/ }).click();
  await page.getByRole("button", { name: "Apply" }).click();
  await page.locator("li form").waitFor({ state: "detached" });
  sample("changed", (await shown()) !== before);
  await back.click();
  await back.waitFor({ state: "detached" });

  await timed(page, rate);

  await page.getByRole("button", { name: "Forget token" }).click();
  await page.getByLabel("Token", { exact: true }).fill("wrong");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("alert").waitFor();
  for (const view of VIEWS) await look(page, view, "token");
  await page.getByLabel("Token", { exact: true }).fill(other);
  await page.getByRole("button", { name: "Open" }).click();
  await page.locator("header .phase", { hasText: "Live" }).waitFor();
  // Nothing of the network of the token before.
  sample("left", await page.getByText(from, { exact: true }).count());
}

/** A connection that is held, committed and renewed, loses all its paths, and gets one again. */
async function timed(page, rate) {
  await rateField(page).fill(rate);
  await page.getByText("Times and priority").click();
  const field = (name) => page.getByRole("textbox", { name, exact: true });
  await field("Hold").fill("60s");
  await field("Lease").fill("60s");
  await field("Priority").fill("5");
  await page.getByLabel("End", { exact: true }).fill("2099-12-31T12:00");
  await page.getByRole("button", { name: "Ask", exact: true }).click();
  await page.getByText(/is held/).waitFor();
  const facts = page.locator("li .facts").first();
  sample("held", /priority 5 · ends .*2099.* · held until/.test(await facts.innerText()));
  for (const view of VIEWS) await look(page, view, "held");
  await page.getByRole("button", { name: /^Commit / }).click();
  await state(page, "active").waitFor();
  const before = await facts.innerText();
  // The page says it in seconds.
  await page.waitForTimeout(1100);
  await page.getByRole("button", { name: /^Renew / }).click();
  await page.waitForFunction(
    (before) => document.querySelector("li .facts").innerText !== before,
    before,
  );
  sample("renewed", (await facts.innerText()).includes("lease until"));

  const down = page.getByRole("button", { name: /^Take down / });
  const up = page.getByRole("button", { name: /^Put up / });
  const links = await down.count();
  for (let index = 0; index < links; index += 1) {
    await down.first().click();
    await up.nth(index).waitFor();
  }
  await state(page, "broken").waitFor();
  await page.locator("li .refusal", { hasText: /^Broken: / }).waitFor();
  sample("faults", await page.locator("td .fault, th .fault").count());
  for (const view of VIEWS) await look(page, view, "broken");
  for (let index = 0; index < links; index += 1) {
    await up.first().click();
    await down.nth(index).waitFor();
  }
  await state(page, "active").waitFor();
  sample("restored", (await page.locator("li .refusal").count()) === 0);
  const back = page.getByRole("button", { name: /^Give back / });
  await back.click();
  await back.waitFor({ state: "detached" });
  await page.getByText("History").click();
  const happened = page.locator("ol li", { hasText: "broken" });
  await happened.first().waitFor();
  const all = (await page.locator("ol").innerText()).toLowerCase();
  const words = ["created", "committed", "link down", "broken", "moved", "removed"];
  sample("history", words.filter((word) => all.includes(word)).length);
  for (const view of VIEWS) await look(page, view, "history");
}

/** The connection's state, once it is this one. */
const state = (page, name) => page.locator("li .state", { hasText: name });

/** The field of the form for a new connection. */
const rateField = (page) =>
  page.locator("form").first().getByRole("textbox", { name: "Rate", exact: true });

/** A picture in one size and colour, and what axe finds in it. */
async function look(page, { width, colorScheme, name }, what) {
  await page.setViewportSize({ width, height: width < 600 ? 780 : 1000 });
  await page.emulateMedia({ colorScheme });
  await page.waitForTimeout(300);
  const wide = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  if (wide > 0) process.stderr.write(`${what} ${name}: ${wide} px wider than the window\n`);
  await page.evaluate(axeSource);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document));
  // An axe that looked at nothing would find nothing.
  if (passes.length < 10) throw new Error(`axe looked at ${passes.length} rules only`);
  const bad = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  for (const { id, nodes } of bad) {
    process.stderr.write(`${what} ${name}: ${id}: ${nodes.map(({ html }) => html).join(" ")}\n`);
  }
  sample(`axe/${what}/${name}`, bad.length + (wide > 0 ? 1 : 0));
  await page.screenshot({ path: `${folder}/${what}-${name}.png`, fullPage: true });
}

await main();
