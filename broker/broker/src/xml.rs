// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XML in place of JSON: the same messages, in an obvious form.
//!
//! An object is an element with a child for each key, in any order. A list is an element whose
//! children are its items: `<links><link>a</link></links>`. Everything else is text, and spaces
//! around it do not count. There are no namespaces, and no attributes but those that name a schema.
//!
//! A message is data, so nothing of it may have the reader do more than read: no document type, no
//! entities of its own, no processing instructions, and bounds on depth and number of elements
//! beside the one on its bytes.

use std::fmt;

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_xml_entity};
use quick_xml::events::{BytesRef, BytesStart, Event};
use serde::de::value::{MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// Reason for which a text is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct XmlError(String);

impl Error for XmlError {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

/// Reads a message whose outermost element has that name.
pub(crate) fn read<T: DeserializeOwned>(root: &str, text: &str) -> Result<T, XmlError> {
    let element = tree(text)?;
    if element.name != root {
        return Err(XmlError(format!("element <{:.40}>: expected <{root}>", element.name)));
    }
    T::deserialize(element)
}

/// Writes a message.
pub(crate) fn write(root: &str, value: &Value) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    write_element(&mut text, root, value);
    text + "\n"
}

/// Returns the name of the items of a list.
pub(crate) fn item_name(list: &str) -> &str {
    match list {
        "avoid" => "link",
        "include" | "exclude" => "colour",
        "history" => "entry",
        "report" => "tunnel",
        "traffic" => "link",
        _ => list.strip_suffix('s').unwrap_or(list),
    }
}

fn write_element(text: &mut String, name: &str, value: &Value) {
    let open = format!("<{name}>");
    match value {
        Value::Null => return,
        Value::Object(fields) => {
            *text += &open;
            for (key, field) in fields {
                write_element(text, key, field);
            }
        }
        Value::Array(items) => {
            *text += &open;
            for item in items {
                write_element(text, item_name(name), item);
            }
        }
        Value::String(content) => {
            *text += &open;
            *text += &escape(content.chars().map(allowed).collect::<String>());
        }
        Value::Bool(_) | Value::Number(_) => {
            *text += &open;
            *text += &value.to_string();
        }
    }
    *text += &format!("</{name}>");
}

/// Returns the character, or U+FFFD for one that XML 1.0 does not allow
/// (<https://www.w3.org/TR/xml/#charsets>).
const fn allowed(of: char) -> char {
    match of {
        '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..='\u{10ffff}' => of,
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// An element that was read.
#[derive(Debug)]
struct XmlElement {
    name: String,
    text: String,
    children: Vec<Self>,
}

/// Reads the elements of a document.
fn tree(text: &str) -> Result<XmlElement, XmlError> {
    let mut reader = Reader::from_str(text);
    let (mut open, mut root): (Vec<XmlElement>, Option<XmlElement>) = (Vec::new(), None);
    let mut count = 0;
    loop {
        let event = reader.read_event();
        let at = reader.buffer_position();
        let wrong = |what: &str| XmlError(format!("at byte {at}: {what}"));
        let closed = match event.map_err(|error| wrong(&error.to_string()))? {
            Event::Start(start) => {
                open.push(element(&start).map_err(|what| wrong(&what))?);
                None
            }
            Event::Empty(start) => Some(element(&start).map_err(|what| wrong(&what))?),
            Event::End(_) => open.pop(),
            Event::Text(text) => {
                add_text(&mut open, &text.xml10_content()).map_err(wrong)?;
                None
            }
            Event::CData(text) => {
                add_text(&mut open, &text.xml10_content()).map_err(wrong)?;
                None
            }
            Event::GeneralRef(reference) => {
                let meant = referenced(&reference).map_err(|what| wrong(&what))?;
                add_text(&mut open, &meant).map_err(wrong)?;
                None
            }
            Event::Comment(_) | Event::Decl(_) => None,
            Event::DocType(_) => return Err(wrong("a document type is not accepted")),
            Event::PI(_) => return Err(wrong("a processing instruction is not accepted")),
            Event::Eof => break,
        };
        count += usize::from(closed.is_some());
        if open.len() > DEPTH_MAX || count > ELEMENTS_MAX {
            let text = format!("more than {DEPTH_MAX} levels or {ELEMENTS_MAX} elements");
            return Err(wrong(&text));
        }
        match (closed, open.last_mut()) {
            (Some(child), Some(parent)) => parent.children.push(child),
            (Some(child), None) if root.is_none() => root = Some(child),
            (Some(_), None) => return Err(wrong("a second outermost element")),
            (None, _) => {}
        }
    }
    match open.last() {
        Some(element) => Err(XmlError(format!("<{:.40}> does not end", element.name))),
        None => root.ok_or_else(|| XmlError("no element".to_owned())),
    }
}

fn element(start: &BytesStart<'_>) -> Result<XmlElement, String> {
    let name = start.name().as_ref().to_owned();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let key = attribute.key.as_ref();
        // Attributes that name a schema say nothing.
        if !key.starts_with("xmlns:") && !key.starts_with("xsi:") {
            return Err(format!("<{name:.40}>: attribute {key:.40?} is not accepted"));
        }
    }
    Ok(XmlElement { name, text: String::new(), children: Vec::new() })
}

fn add_text(open: &mut [XmlElement], text: &str) -> Result<(), &'static str> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err("text outside of the outermost element"),
    }
    Ok(())
}

/// Returns what a reference means: a character by its number, or one of the five that XML names.
fn referenced(reference: &BytesRef<'_>) -> Result<String, String> {
    let name: &str = reference;
    let by_number = reference.resolve_char_ref().map_err(|error| error.to_string())?;
    let meant = by_number.map(String::from).or_else(|| resolve_xml_entity(name).map(str::to_owned));
    meant.ok_or_else(|| format!("entity &{name:.40}; is not accepted"))
}

impl XmlElement {
    /// Returns the text of an element without children.
    fn leaf(self) -> Result<String, XmlError> {
        match self.children.first() {
            None => Ok(self.text.trim().to_owned()),
            Some(child) => Err(XmlError(format!(
                "<{:.40}>: text was expected, not <{:.40}>",
                self.name, child.name
            ))),
        }
    }

    /// Returns the children of an element without text.
    fn inner(self) -> Result<Vec<Self>, XmlError> {
        if self.text.trim().is_empty() {
            return Ok(self.children);
        }
        let (name, text) = (&self.name, self.text.trim());
        Err(XmlError(format!("<{name:.40}>: text {text:.40?} between elements")))
    }

    fn parsed<T: std::str::FromStr<Err: fmt::Display>>(self) -> Result<T, XmlError> {
        let name = self.name.clone();
        let text = self.leaf()?;
        text.parse().map_err(|error| XmlError(format!("<{name:.40}> {text:.40?}: {error}")))
    }
}

impl IntoDeserializer<'_, XmlError> for XmlElement {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Reads a value by parsing the text.
macro_rules! parse_text {
    ($($method:ident $visit:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, XmlError> {
            visitor.$visit(self.parsed()?)
        }
    )*};
}

impl<'de> Deserializer<'de> for XmlElement {
    type Error = XmlError;

    parse_text! {
        deserialize_bool visit_bool,
        deserialize_u8 visit_u8,
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
        deserialize_i8 visit_i8,
        deserialize_i16 visit_i16,
        deserialize_i32 visit_i32,
        deserialize_i64 visit_i64,
        deserialize_f32 visit_f32,
        deserialize_f64 visit_f64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, XmlError> {
        visitor.visit_string(self.leaf()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, XmlError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, XmlError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, XmlError> {
        let item = item_name(&self.name).to_owned();
        let items = self.inner()?;
        if let Some(other) = items.iter().find(|child| child.name != item) {
            return Err(XmlError(format!("<{:.40}>: expected <{item}>", other.name)));
        }
        visitor.visit_seq(SeqDeserializer::new(items.into_iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, XmlError> {
        let fields = self.inner()?.into_iter().map(|child| (child.name.clone(), child));
        visitor.visit_map(MapDeserializer::new(fields))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, XmlError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, XmlError> {
        let text: StringDeserializer<XmlError> = self.leaf()?.into_deserializer();
        visitor.visit_enum(text)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, XmlError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// Most levels of elements within each other: a request has three.
const DEPTH_MAX: usize = 8;

/// Most elements of a message.
const ELEMENTS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use weir_broker_api_types::{ConnectionChange, RequestedConnection};

    const REQUEST: &str = "<?xml version=\"1.0\"?><!-- for a film -->\
        <request xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
        xsi:noNamespaceSchemaLocation=\"broker.xsd\">\
        <to>y</to><network>n</network><from><![CDATA[x]]></from><rate>\n 20&#77;bit </rate>\
        <to_port>5201</to_port><protocol>udp</protocol>\
        <avoid><link>a</link><link>b</link></avoid></request>\n";

    #[test]
    fn a_request_is_read_as_its_json_is() {
        let of_json: RequestedConnection = serde_json::from_value(json!({
            "network": "n", "from": "x", "to": "y", "rate": "20Mbit", "protocol": "udp",
            "to_port": 5201, "avoid": ["a", "b"],
        }))
        .unwrap();
        let of_xml: RequestedConnection = read("request", REQUEST).unwrap();
        assert_eq!(of_xml, of_json);
        // A written message is read back.
        let text = write("request", &serde_json::to_value(&of_json).unwrap());
        assert_eq!(read::<RequestedConnection>("request", &text).unwrap(), of_json);
    }

    /// Goal: a change distinguishes an absent list from an empty one, as JSON does.
    #[test]
    fn an_empty_list_is_not_an_absent_one() {
        let none: ConnectionChange = read("change", "<change/>").unwrap();
        assert_eq!(none.avoid, None);
        let empty: ConnectionChange = read("change", "<change><avoid/></change>").unwrap();
        assert_eq!(empty.avoid, Some(Vec::new()));
    }

    #[test]
    fn what_is_written_says_the_same() {
        let value = json!({"name": "a<b", "routers": ["r\u{1}", "s"], "left": null, "up": true});
        let text = write("network", &value);
        let expected = "<network><name>a&lt;b</name><routers><router>r\u{fffd}</router>\
            <router>s</router></routers><up>true</up></network>";
        assert!(text.contains(expected), "{text}");
    }

    /// Goal: each text that is no message is refused with the reason, and within the bounds.
    #[test]
    fn what_is_no_message_is_refused() {
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        let many = format!("<request>{}</request>", "<a/>".repeat(ELEMENTS_MAX + 1));
        for (text, why) in [
            ("", "no element"),
            ("{}", "outside"),
            ("<request>", "does not end"),
            ("<request></change>", "change"),
            ("<change/>", "expected <request>"),
            ("<request/><request/>", "second"),
            ("<!DOCTYPE a [<!ENTITY b \"c\">]><request/>", "document type"),
            ("<?php x?><request/>", "processing instruction"),
            ("<request><rate>&b;</rate></request>", "entity &b;"),
            ("<request><rate>&#0;</rate></request>", "at byte"),
            ("<request><rate unit=\"bit\">1</rate></request>", "attribute \"unit\""),
            ("<request xmlns=\"urn:x\"/>", "attribute \"xmlns\""),
            ("<request><speed>1</speed></request>", "unknown field `speed`"),
            ("<request><rate>1</rate><rate>2</rate></request>", "duplicate field `rate`"),
            ("<request><rate><of>1</of></rate></request>", "<rate>: text was expected"),
            ("<request>text<rate>1</rate></request>", "between elements"),
            ("<request><to_port>70000</to_port></request>", "<to_port> \"70000\""),
            ("<request><avoid><router>a</router></avoid></request>", "expected <link>"),
            ("<request/>", "missing field `network`"),
            (&deep, "levels"),
            (&many, "elements"),
        ] {
            let refused = read::<RequestedConnection>("request", text).unwrap_err();
            assert!(refused.0.contains(why), "{text:.60}: {refused}");
        }
    }

    proptest::proptest! {
        /// Goal: no text makes the reader panic.
        #[test]
        fn any_text_is_read_or_refused(text in "[<>/&;#a-c\"'!?\\[\\]= \n-]{0,200}") {
            let _either = read::<RequestedConnection>("request", &text);
        }
    }
}
