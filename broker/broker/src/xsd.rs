// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The XML schema of the messages, made from the same types as the OpenAPI document, so that it
//! cannot say anything else.

use serde_json::Value;

use crate::xml::item_name;

/// Returns the schema (XSD 1.0) of the messages that an OpenAPI document describes.
pub(crate) fn schema(openapi: &str) -> String {
    let api: Value = serde_json::from_str(openapi).unwrap_or_default();
    let none = serde_json::Map::new();
    let schemas = api["components"]["schemas"].as_object().unwrap_or(&none);
    let mut text = HEAD.to_owned();
    for (root, schema, is_list) in MESSAGES {
        text += &if is_list {
            let items = complex(&list_of(item_name(root), schema, 3), 2);
            format!("  <xs:element name=\"{root}\">\n{items}  </xs:element>\n")
        } else {
            format!("  <xs:element name=\"{root}\" type=\"{schema}\"/>\n")
        };
    }
    for (name, schema) in schemas {
        text += &declared(name, schema, schemas);
    }
    text + "</xs:schema>\n"
}

/// Declares the type of a schema.
fn declared(name: &str, schema: &Value, schemas: &serde_json::Map<String, Value>) -> String {
    let about = annotation(schema, 2);
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().filter_map(Value::as_str);
        let values = values.map(|value| format!("      <xs:enumeration value=\"{value}\"/>\n"));
        let values: String = values.collect();
        return format!(
            "  <xs:simpleType name=\"{name}\">\n{about}    <xs:restriction base=\"xs:token\">\n\
             {values}    </xs:restriction>\n  </xs:simpleType>\n"
        );
    }
    let mut fields = String::new();
    add_fields(&mut fields, schema, schemas);
    format!(
        "  <xs:complexType name=\"{name}\">\n{about}    <xs:all>\n{fields}    </xs:all>\n  \
         </xs:complexType>\n"
    )
}

/// Adds the fields of an object, and of those that it takes over.
fn add_fields(text: &mut String, schema: &Value, schemas: &serde_json::Map<String, Value>) {
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let named = referred(part).and_then(|name| schemas.get(name));
        add_fields(text, named.unwrap_or(part), schemas);
    }
    let required = schema["required"].as_array();
    let is_required =
        |key: &str| required.is_some_and(|names| names.iter().any(|name| name == key));
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        let least = if is_required(key) { "" } else { " minOccurs=\"0\"" };
        let about = annotation(field, 4);
        let field = present(field);
        let open = format!("      <xs:element name=\"{key}\"{least}");
        *text += &if kind(field) == Some("array") {
            let item = simple(present(&field["items"]));
            let inner = complex(&list_of(item_name(key), item, 5), 4);
            format!("{open}>\n{about}{inner}      </xs:element>\n")
        } else if about.is_empty() {
            format!("{open} type=\"{}\"/>\n", simple(field))
        } else {
            format!("{open} type=\"{}\">\n{about}      </xs:element>\n", simple(field))
        };
    }
}

/// Returns the schema of a value that may be absent, as it is when it is there.
fn present(schema: &Value) -> &Value {
    let parts = schema["oneOf"].as_array().or_else(|| schema["allOf"].as_array());
    let part = parts.and_then(|parts| parts.iter().find(|part| part["type"] != "null"));
    part.unwrap_or(schema)
}

/// Returns the name of a type.
fn simple(schema: &Value) -> &str {
    if let Some(name) = referred(schema) {
        return name;
    }
    match kind(schema) {
        Some("integer") if schema["minimum"].as_u64() == Some(0) => "xs:nonNegativeInteger",
        Some("integer") => "xs:integer",
        Some("number") => "xs:double",
        Some("boolean") => "xs:boolean",
        // Spaces around a text do not count.
        _ => "xs:token",
    }
}

/// Returns the JSON type of what may be `null` too.
fn kind(schema: &Value) -> Option<&str> {
    let types = schema["type"].as_array();
    let first = types.and_then(|types| types.iter().find(|of| *of != "null"));
    first.or_else(|| schema.get("type"))?.as_str()
}

fn referred(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

/// Declares any number of elements.
fn list_of(name: &str, kind: &str, level: usize) -> String {
    let indent = "  ".repeat(level + 1);
    format!(
        "{indent}<xs:element name=\"{name}\" type=\"{kind}\" minOccurs=\"0\" \
         maxOccurs=\"unbounded\"/>\n"
    )
}

fn complex(inner: &str, level: usize) -> String {
    let indent = "  ".repeat(level);
    format!(
        "{indent}<xs:complexType>\n{indent}  <xs:sequence>\n{inner}{indent}  </xs:sequence>\n\
         {indent}</xs:complexType>\n"
    )
}

fn annotation(schema: &Value, level: usize) -> String {
    let Some(text) = schema["description"].as_str() else { return String::new() };
    let (indent, text) = ("  ".repeat(level), quick_xml::escape::escape(text));
    format!(
        "{indent}<xs:annotation>\n{indent}  <xs:documentation>{text}</xs:documentation>\n\
         {indent}</xs:annotation>\n"
    )
}

/// Outermost elements of the messages, the schemas of what is in them, and whether it is a list.
const MESSAGES: [(&str, &str, bool); 13] = [
    ("request", "RequestedConnection", false),
    ("change", "ConnectionChange", false),
    ("setting", "LinkSetting", false),
    ("admission", "AdmissionView", false),
    ("connection", "ConnectionView", false),
    ("connections", "ConnectionView", true),
    ("networks", "NetworkView", true),
    ("links", "PhysicalLinkView", true),
    ("history", "HistoryEntry", true),
    ("traffic", "LinkTraffic", true),
    ("report", "TunnelReport", true),
    ("policing", "PolicingReport", false),
    ("error", "BrokerRefusal", false),
];

const HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!-- SPDX-License-Identifier: Apache-2.0 OR MIT
     The messages of a Weir broker in XML: docs/broker.md. Written from the broker's types. -->
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
"#;
