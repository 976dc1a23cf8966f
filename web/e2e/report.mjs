// SPDX-License-Identifier: Apache-2.0 OR MIT
// Opens a self-contained page of `weir measure` in a real browser, in two widths and two colours.
//
//   node web/e2e/report.mjs FILE FOLDER
//
// Pictures go into FOLDER. Each line on standard output is a JSON object: `{"sample": NAME,
// "value": NUMBER}`.

import { mkdir } from "node:fs/promises";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { chromium } from "playwright-core";

const [file, folder] = process.argv.slice(2);
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");
const sample = (name, value) =>
  process.stdout.write(`${JSON.stringify({ sample: name, value: Number(value) })}\n`);

await mkdir(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
});
let errors = 0;
let requests = 0;
try {
  for (const width of [360, 1600]) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
      page.on("console", (message) => (errors += message.type() === "error" ? 1 : 0));
      page.on("pageerror", () => (errors += 1));
      page.on("request", (request) => (requests += /^https?:/.test(request.url()) ? 1 : 0));
      await page.goto(pathToFileURL(resolve(file)).href);
      const seen = await page.evaluate(() => {
        const root = document.documentElement;
        const charts = [...document.querySelectorAll("svg")];
        const texts = charts.flatMap((svg) => {
          const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
          return [...svg.querySelectorAll("text")].map(
            (text) => parseFloat(getComputedStyle(text).fontSize) * scale,
          );
        });
        return {
          overflow: root.scrollWidth - root.clientWidth,
          charts: charts.length,
          smallest: Math.min(...texts),
        };
      });
      await page.evaluate(axeSource);
      const found = await page.evaluate(() => window.axe.run());
      const serious = found.violations.filter((one) => /serious|critical/.test(one.impact));
      for (const one of serious) process.stderr.write(`${one.id}: ${one.nodes[0].html}\n`);
      const name = `${width}-${colorScheme}`;
      sample(`overflow/${name}`, Math.max(0, seen.overflow));
      sample(`charts/${name}`, seen.charts);
      sample(`text/${name}`, seen.smallest);
      sample(`axe/${name}`, serious.length);
      await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
      await page.close();
    }
  }
  sample("errors", errors);
  sample("requests", requests);
} finally {
  await browser.close();
}
