// SPDX-License-Identifier: Apache-2.0 OR MIT
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { files, generate } from "./types.mjs";

// The stored types are those of the documents, which tests of node and broker hold to their routes.
test("the types are what the OpenAPI documents give; `npm run types` renews them", () => {
  for (const [file, text] of files()) expect(readFileSync(file, "utf8")).toBe(text);
});

test("an answer leaves a field out, a request may set it to null", () => {
  const text = generate({
    paths: { "/v1": { patch: { requestBody: { $ref: "#/x/Sent" } } } },
    components: {
      schemas: {
        Sent: { properties: { rate: { type: ["integer", "null"] } } },
        Said: {
          description: "An answer.",
          required: ["of"],
          properties: {
            of: { type: "array", items: { $ref: "#/x/Kind" } },
            why: { oneOf: [{ type: "null" }, { $ref: "#/x/Kind" }] },
          },
        },
        Kind: { type: "string", enum: ["one", "other"] },
      },
    },
  }, "a document");
  expect(text).toContain("export interface Sent {\n  rate?: number | null;\n}");
  expect(text).toContain("/** An answer. */\nexport interface Said {\n  of: Kind[];\n");
  expect(text).toContain("  why?: Kind;\n}");
  expect(text).toContain('export type Kind = "one" | "other";');
});
