// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JSON Schema of the document, derived from its types.

use alloc::string::ToString;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::document::Document;

/// Returns the JSON Schema (draft 2020-12) of a policy document.
///
/// Beyond the standard's keywords: `format` names the way a text is written (`bit-rate`,
/// `packet-rate`, `size`, `time`, `share`, `decimal`, `mac`, `ip`, `prefix`, `protocol`, `name`,
/// `device`, `device-pattern`, `name-template`); `x-minimum` and `x-maximum` bound such a value in
/// base units (bits or packets a second, bytes, nanoseconds, millionths); `x-default` says in words
/// what holds where the key is absent.
#[must_use]
pub fn schema() -> Value {
    schema_of::<Document>()
}

/// Returns the schema of a document of any type.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Removes `null`, which TOML does not have: an optional key is one that may be absent. Removes the
/// width of integers, which says nothing beside their bounds.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("format").and_then(Value::as_str).is_some_and(|f| f.contains("int")) {
                map.remove("format");
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".to_string(), only);
                }
            }
            if let Some(Value::Array(mut choices)) = map.remove("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
                match choices.as_mut_slice() {
                    [Value::Object(only)] => map.append(only),
                    _ => drop(map.insert("anyOf".to_string(), Value::Array(choices))),
                }
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
