// SPDX-License-Identifier: Apache-2.0 OR MIT
// Writes src/lib/api.ts and src/broker/api.ts: the types of the requests and answers of node and
// broker, from docs/openapi.json and docs/broker-openapi.json.
//
//   node types.mjs
//
// The Rust types are the source: they make the OpenAPI document, and this makes TypeScript of the
// schemas that the page reads or sends, one interface or union each, with the same names. A test
// (types.test.mjs) fails if the stored file is not what the document gives.
//
// A field that the document does not require is optional. The node leaves such a field out of an
// answer rather than write `null`, so `null` stays only in what the page sends.

import { readFileSync, writeFileSync } from "node:fs";

/** The text of a file of types. The pages read the schemas `named`, and those in them. */
export function generate(document, from, named = Object.keys(document.components.schemas)) {
  const schemas = document.components.schemas;
  const sent = reachable(bodies(document), schemas);
  const read = reachable(named, schemas);
  const each = Object.entries(schemas).filter(([name]) => read.has(name)).map(
    ([name, schema]) =>
      comment(schema.description, "") + declaration(name, whole(schema, schemas), sent.has(name)),
  );
  return [head(from), ...each].join("\n");
}

/** A schema with the fields of those that it takes over. */
function whole(schema, schemas) {
  if (!schema.allOf || schema.properties) return schema;
  const parts = schema.allOf.map((part) => (part.$ref ? schemas[reference(part)] : part));
  return {
    ...schema,
    properties: Object.assign({}, ...parts.map(({ properties }) => properties)),
    required: parts.flatMap(({ required = [] }) => required),
  };
}

function declaration(name, schema, isSent) {
  if (schema.properties === undefined) {
    const line = `export type ${name} = ${type(schema)};\n`;
    return line.length <= 100 ? line : line.replace("= ", "=\n  | ").replaceAll('" | ', '"\n  | ');
  }
  const required = new Set(schema.required);
  const fields = Object.entries(schema.properties).map(([key, field]) => {
    const mark = required.has(key) ? "" : "?";
    const text = type(isSent || mark === "" ? field : withoutNull(field));
    return `${comment(field.description, "  ")}  ${key}${mark}: ${text};\n`;
  });
  return `export interface ${name} {\n${fields.join("")}}\n`;
}

/** The TypeScript type of a schema. */
function type(schema) {
  if (schema.$ref) return reference(schema);
  const parts = schema.oneOf ?? schema.anyOf ?? schema.allOf;
  if (parts) return parts.map(type).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (Array.isArray(schema.type)) {
    return schema.type.map((one) => type({ ...schema, type: one })).join(" | ");
  }
  if (schema.type === "array") return `${grouped(type(schema.items))}[]`;
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return `Record<string, ${type(schema.additionalProperties)}>`;
  }
  return PRIMITIVES[schema.type] ?? "unknown";
}

function withoutNull(schema) {
  if (Array.isArray(schema.type)) {
    return { ...schema, type: schema.type.filter((one) => one !== "null") };
  }
  const { oneOf } = schema;
  return oneOf ? { ...schema, oneOf: oneOf.filter((one) => one.type !== "null") } : schema;
}

/** Names of the schemas that request bodies refer to. */
function bodies(document) {
  const operations = Object.values(document.paths).flatMap((path) => Object.values(path));
  return operations.flatMap(({ requestBody }) => references(requestBody ?? {}));
}

/** These names, and those that their schemas refer to. */
function reachable(names, schemas, found = new Set()) {
  for (const name of names.filter((one) => !found.has(one))) {
    found.add(name);
    reachable(references(schemas[name]), schemas, found);
  }
  return found;
}

function references(value) {
  if (value === null || typeof value !== "object") return [];
  return value.$ref ? [reference(value)] : Object.values(value).flatMap(references);
}

const reference = ({ $ref }) => $ref.split("/").at(-1);
const grouped = (text) => (text.includes(" | ") ? `(${text})` : text);
const comment = (text, indent) => {
  if (!text) return "";
  const lines = text.split("\n");
  if (lines.length === 1) return `${indent}/** ${text} */\n`;
  const inner = lines.map((line) => `${indent} * ${line}`.trimEnd()).join("\n");
  return `${indent}/**\n${inner}\n${indent} */\n`;
};

/** The requests and answers of the node's page. */
const NODE = [
  "AdviceView",
  "ApiError",
  "CallerView",
  "ChangeView",
  "NodeStatus",
  "PolicyView",
  "RealtimeView",
  "RouterChange",
  "UndoRequest",
  "VifChange",
];

const PRIMITIVES = {
  string: "string",
  integer: "number",
  number: "number",
  boolean: "boolean",
  null: "null",
};

const head = (from) => `// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written by types.mjs from ${from}: \`npm run types\` renews it.
`;

/** The files, with their texts. */
export const files = () =>
  [
    ["src/lib/api.ts", "docs/openapi.json", NODE],
    ["src/broker/api.ts", "docs/broker-openapi.json", undefined],
  ].map(([file, from, named]) => {
    const document = readFileSync(new URL(`../${from}`, import.meta.url), "utf8");
    return [file, generate(JSON.parse(document), from, named)];
  });

if (process.argv[1] && import.meta.url === new URL(process.argv[1], "file://").href) {
  for (const [file, text] of files()) writeFileSync(new URL(file, import.meta.url), text);
}
