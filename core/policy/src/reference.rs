// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reference page of the document, derived from its schema.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use serde_json::{Map, Value};

use crate::format::{shown, wanted};
use crate::schema;

/// Returns the reference page, in Markdown: every table, and every key with its type, range,
/// default and meaning. `docs/policy.md` is this text.
#[must_use]
pub fn reference() -> String {
    let schema = schema();
    let mut page = String::from(INTRODUCTION);
    section(&mut page, &schema, "The document", &schema);
    for (title, name) in TABLES {
        if let Some(node) = schema.get("$defs").and_then(|defs| defs.get(*name)) {
            section(&mut page, &schema, title, node);
        }
    }
    page.push_str("\n## Choices\n");
    for (name, node) in choices(&schema) {
        let _ = write!(page, "\n### {name}\n\n");
        for one in node.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
            let value = one.get("const").and_then(Value::as_str).unwrap_or_default();
            wrap(&mut page, &format!("- `\"{value}\"`: {}", description(one)));
        }
    }
    page
}

fn section(page: &mut String, root: &Value, title: &str, node: &Value) {
    let _ = write!(page, "\n## {title}\n\n");
    wrap(page, &description(node));
    page.push('\n');
    page.push_str("| key | type | range | default | meaning |\n|---|---|---|---|---|\n");
    let none = Map::new();
    let properties = node.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required: Vec<&str> = node
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut keys: Vec<&String> = properties.keys().collect();
    // Required keys come first.
    keys.sort_by_key(|key| (!required.contains(&key.as_str()), key.as_str()));
    for key in keys {
        let Some(property) = properties.get(key) else { continue };
        let default = match required.contains(&key.as_str()) {
            true => "required".to_string(),
            false => default(property),
        };
        let _ = writeln!(
            page,
            "| `{key}` | {} | {} | {default} | {} |",
            kind(root, property),
            range(property),
            description(property)
        );
    }
}

/// Returns the type, with a link where it is a table or a set of choices.
fn kind(root: &Value, node: &Value) -> String {
    if let Some(name) = reference_name(node) {
        let definition = root.get("$defs").and_then(|defs| defs.get(name));
        let is_table = definition.is_some_and(|node| node.get("properties").is_some());
        let title = TABLES.iter().find(|(_, table)| *table == name).map(|(title, _)| *title);
        return match title {
            Some(title) if is_table => format!("table, see [{title}](#{})", anchor(title)),
            _ => format!("one of [{}](#{})", choice_title(name), anchor(&choice_title(name))),
        };
    }
    if let Some(items) = node.get("items") {
        let items = kind(root, items);
        return match items.strip_prefix("table, ") {
            Some(link) => format!("list of tables, {link}"),
            None => format!("list, each {items}"),
        };
    }
    if let Some(format) = node.get("format").and_then(Value::as_str) {
        return wanted(format).split([',', ';', ':']).next().unwrap_or_default().to_string();
    }
    if node.get("oneOf").is_some() {
        let names: Vec<_> =
            crate::walk::choices(node).iter().map(|name| format!("`\"{name}\"`")).collect();
        return format!("one of {}", names.join(", "));
    }
    node.get("type").and_then(Value::as_str).unwrap_or_default().to_string()
}

fn range(node: &Value) -> String {
    if let Some(values) = node.get("enum").and_then(Value::as_array) {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    }
    let format = node.get("format").and_then(Value::as_str).unwrap_or_default();
    let bound = |name: &str| node.get(name).map(ToString::to_string);
    let base = |name: &str| node.get(name)?.as_u64().map(|base| shown(format, base));
    let least = bound("minimum").or_else(|| base("x-minimum"));
    let most = bound("maximum").or_else(|| base("x-maximum"));
    match (least, most, bound("minItems"), bound("maxItems")) {
        (Some(least), Some(most), ..) if least == most => format!("`{least}`"),
        (Some(least), Some(most), ..) => format!("`{least}` to `{most}`"),
        (None, Some(most), ..) => format!("up to `{most}`"),
        (Some(least), None, ..) => format!("from `{least}`"),
        (.., Some(least), Some(most)) => format!("{least} to {most} entries"),
        (.., Some(most)) => format!("up to {most} entries"),
        _ => String::new(),
    }
}

fn default(node: &Value) -> String {
    let words = node.get("x-default").and_then(Value::as_str).map(ToString::to_string);
    let value = || node.get("default").map(|value| format!("`{value}`"));
    words.or_else(value).unwrap_or_default()
}

/// Joins lines, since a cell of a Markdown table is one line.
fn description(node: &Value) -> String {
    let text = node.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds the text in lines of at most [`WIDTH`] characters.
fn wrap(page: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            // The continuation of a list entry is indented.
            let indent = if text.starts_with("- ") { "\n  " } else { "\n" };
            page.push_str(indent);
            column = indent.len() - 1;
        } else if column > 0 {
            page.push(' ');
            column += 1;
        }
        page.push_str(word);
        column += length;
    }
    page.push('\n');
}

/// Returns the sets of choices that several keys may use.
fn choices(root: &Value) -> Vec<(String, &Value)> {
    let definitions = root.get("$defs").and_then(Value::as_object).into_iter().flatten();
    let chosen = definitions.filter(|(_, node)| node.get("oneOf").is_some());
    chosen.map(|(name, node)| (choice_title(name), node)).collect()
}

fn choice_title(name: &str) -> String {
    name.strip_suffix("Kind").filter(|rest| !rest.is_empty()).unwrap_or(name).to_lowercase()
}

fn reference_name(node: &Value) -> Option<&str> {
    node.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// Returns the anchor that GitHub makes for a heading.
fn anchor(title: &str) -> String {
    title.chars().filter(|c| !"`[]\".=".contains(*c)).collect::<String>().replace(' ', "-")
}

/// The line width of the repository.
const WIDTH: usize = 100;

const TABLES: &[(&str, &str)] = &[
    ("`[node]`", "node"),
    ("`[api]`", "api"),
    ("`[[api.token]]`", "token"),
    ("`[report]`", "report"),
    ("`[xtc]`", "xtc"),
    ("`[[port]]`", "port"),
    ("`cycle` of a port", "cycle"),
    ("`host_send` and `host_receive` of a port", "host-share"),
    ("`[[port.rule]]`", "rule"),
    ("`[[slice]]`", "slice"),
    ("`match` of a slice", "match"),
    ("`[[router]]`", "router"),
    ("`xtc` of a router", "router-xtc"),
    ("`realtime` of a router", "router-realtime"),
    ("`interface` of a router", "interface"),
    ("`model` of a router", "model"),
    ("`map` of a router", "point"),
    ("`[[vif]]`", "vif"),
    ("`send` and `receive` of a slice or router", "share"),
    ("`send` and `receive` of a vif or rule", "vif-share"),
    ("`queue`", "queue"),
    ("`filter`", "filter"),
];

const INTRODUCTION: &str = "\
# The policy document

<!-- Written from the types of weir-policy; change those, then run `./x bless`. -->

One TOML file says what a node is asked to do. Every problem in it is reported at once, with line,
column, key, value and bound; a key that is not listed here is refused.
[`policy.schema.json`](policy.schema.json) is the same as a JSON Schema, for editors.

A quantity is a text with its unit: bit rates `bit`, `kbit`, `Mbit`, `Gbit`, `Tbit`; packet rates
`pps`, `kpps`, `Mpps`; sizes `B`, `kB`, `MB`, `KiB`, `MiB`; times `ns`, `us`, `ms`, `s`. `k` is
1000; 1024 is written `Ki`. A decimal fraction is allowed where the result is whole: `1.5Gbit`.

What is checked beyond the range of each value:

- names are unique in their table, devices on the node, VLANs among slices, MAC addresses on a port
  within a VLAN; every reference names something;
- `min_rate` is at most `rate`, and `min_pps` at most `max_pps`, at every level;
- on each port and in each direction, the `min_rate` of a router's vifs add up to at most the
  router's own `min_rate` (if it has one) and `rate`, those of a slice's routers and vifs to at most
  the slice's, and those of all slices and of the host itself to at most the port's `rate` times
  `overbooking`;
- a rule of a port counts as if it had its `devices_max` devices, each in a slice of its own unless
  `slice` has no words;
- `min_pps` likewise, up to the node's `capacity`, both directions together;
- on each port, what the delays and minimums promise within any time, the port can send in it;
- a router is held at a rate within its `receive.min_pps` and `receive.max_pps`, by a controller
  that has what it needs;
- a real-time class has a deadline of at most its period and work that fits in it, and names one
  process, control group, guest or list of interfaces, here or in `xtc`; whether all classes fit
  together is checked where the number of processors is known, at start and at each change;
- queues and bursts hold at least one packet, and the pool holds all that the queues may hold.
";
