// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares a parsed text with the schema: reports every value that does not fit and returns the
//! rest, from which the types can be filled without a further error.
//!
//! *Problem*: a deserializer stops at the first error, and says neither where an unknown key
//! belongs nor which bound a value breaks. *Idea*: the schema is data already. Walk text and schema
//! together, collect each misfit with its place in the text, and hand on only what fits.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::format;
use crate::problem::ProblemPlace;
use crate::suggest::nearest;

/// A value that does not fit the schema, and its place in the text.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) span: Range<usize>,
    pub(crate) place: ProblemPlace,
    pub(crate) message: String,
}

/// The path from the top of a document to a value. It is a linked list on the stack, so that only a
/// problem costs an allocation.
struct WalkPath<'p> {
    parent: Option<&'p Self>,
    step: WalkStep<'p>,
}

/// One step down in a document.
enum WalkStep<'p> {
    /// To the whole document.
    Document,
    /// To the key of that name.
    Key(&'p str),
    /// To the element at that position, with its name if it has one.
    Element(usize, Option<&'p str>),
}

impl<'p> WalkPath<'p> {
    fn place(&self) -> ProblemPlace {
        let mut place = self.parent.map(Self::place).unwrap_or_default();
        match self.step {
            WalkStep::Document => {}
            WalkStep::Key(name) => place.enter(name),
            WalkStep::Element(index, name) => place.enter_element(index, name),
        }
        place
    }

    fn key(&'p self, name: &'p str) -> Self {
        Self { parent: Some(self), step: WalkStep::Key(name) }
    }

    fn element(&'p self, index: usize, item: &'p DeValue<'_>) -> Self {
        Self { parent: Some(self), step: WalkStep::Element(index, name_of(item)) }
    }
}

/// The walk over one document.
pub(crate) struct Walk<'s> {
    root: &'s Value,
    pub(crate) misfits: Vec<Misfit>,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(root: &'s Value) -> Self {
        Self { root, misfits: Vec::new() }
    }

    /// Returns the part of the document that fits.
    pub(crate) fn document(&mut self, table: &DeTable<'_>) -> Value {
        let top = WalkPath { parent: None, step: WalkStep::Document };
        Value::Object(self.table(self.root, table, &(0..0), &top))
    }

    fn value(
        &mut self,
        node: &Value,
        value: &Spanned<DeValue<'_>>,
        path: &WalkPath<'_>,
    ) -> Option<Value> {
        let node = self.resolve(node);
        let span = value.span();
        let result = match (value.get_ref(), node.get("format").and_then(Value::as_str)) {
            (DeValue::String(text), Some(format)) => written(node, format, text),
            (DeValue::Integer(number), Some("protocol")) => {
                written(node, "protocol", &number.to_string())
            }
            (DeValue::String(text), None) if accepts(node, "string") => choice(node, text),
            (DeValue::Integer(number), _) if accepts(node, "integer") => {
                i128::from_str_radix(number.as_str(), number.radix())
                    .map_err(|_| format!("{number} is out of all bounds"))
                    .and_then(|number| integer(node, number))
            }
            (DeValue::Integer(_) | DeValue::Float(_), _) if accepts(node, "number") => {
                factor(node, &number_text(value.get_ref()))
            }
            (DeValue::Boolean(flag), _) if accepts(node, "boolean") => Ok(Value::Bool(*flag)),
            (DeValue::Table(table), _) if accepts(node, "object") => {
                Ok(Value::Object(self.table(node, table, &span, path)))
            }
            (DeValue::Array(items), _) if accepts(node, "array") => {
                self.array(node, items, &span, path).map(Value::Array)
            }
            (other, _) => Err(wrong_type(node, other)),
        };
        result.map_err(|message| self.report(span, path, message)).ok()
    }

    fn table(
        &mut self,
        node: &Value,
        table: &DeTable<'_>,
        span: &Range<usize>,
        path: &WalkPath<'_>,
    ) -> Map<String, Value> {
        let mut fitting = Map::new();
        let Some(properties) = node.get("properties").and_then(Value::as_object) else {
            // A map: any key, each with a value of one kind.
            let values = node.get("additionalProperties").unwrap_or(&Value::Null);
            for (name, value) in table {
                let read = self.value(values, value, &path.key(name.get_ref()));
                fitting.extend(read.map(|value| (name.get_ref().to_string(), value)));
            }
            return fitting;
        };
        for (name, value) in table {
            let path = path.key(name.get_ref());
            match properties.get(name.get_ref().as_ref()) {
                Some(property) => {
                    if let Some(value) = self.value(property, value, &path) {
                        fitting.insert(name.get_ref().to_string(), value);
                    }
                }
                // Enough is reported, and a suggestion for each of a million keys takes too long.
                None if self.misfits.len() > UNKNOWN_MAX => {
                    self.report(name.span(), &path, "unknown key".to_string());
                }
                None => {
                    let message = self.unknown(node, properties, name.get_ref());
                    self.report(name.span(), &path, message);
                }
            }
        }
        let required = node.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !table.contains_key(name) {
                self.report(span.clone(), &path.key(name), "is missing".to_string());
            }
        }
        fitting
    }

    fn array(
        &mut self,
        node: &Value,
        items: &DeArray<'_>,
        span: &Range<usize>,
        path: &WalkPath<'_>,
    ) -> Result<Vec<Value>, String> {
        let bound = |name| node.get(name)?.as_u64().and_then(|bound| usize::try_from(bound).ok());
        if let Some(most) = bound("maxItems").filter(|most| items.len() > *most) {
            return Err(format!("has {} entries, at most {most}", items.len()));
        }
        if let Some(least) = bound("minItems").filter(|least| items.len() < *least) {
            self.report(
                span.clone(),
                path,
                format!("has {} entries, at least {least}", items.len()),
            );
        }
        let Some(item_node) = node.get("items") else { return Ok(Vec::new()) };
        let is_table = accepts(self.resolve(item_node), "object");
        let mut fitting = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let value = self.value(item_node, item, &path.element(index, item.get_ref()));
            // A table that does not fit keeps its place, since others refer to it by index.
            let placeholder = || is_table.then(|| Value::Object(Map::new()));
            fitting.extend(value.or_else(placeholder));
        }
        // If an item that is no table does not fit, no item is kept: later ones would move to its
        // place.
        let all_fit = fitting.len() == items.len();
        Ok(if all_fit { fitting } else { Vec::new() })
    }

    /// Returns the definition that a `$ref` names, or the node itself.
    fn resolve<'n>(&self, node: &'n Value) -> &'n Value
    where
        's: 'n,
    {
        let name = node.get("$ref").and_then(Value::as_str);
        let definition = name.and_then(|name| name.strip_prefix("#/$defs/"));
        definition.and_then(|name| self.root.get("$defs")?.get(name)).unwrap_or(node)
    }

    fn unknown(&self, node: &Value, properties: &Map<String, Value>, name: &str) -> String {
        if let Some(near) = nearest(name, properties.keys().map(String::as_str)) {
            return format!("unknown key; did you mean \"{near}\"?");
        }
        let holds = |node: &Value| {
            let inner = self.resolve(node).get("properties");
            inner.and_then(Value::as_object).is_some_and(|inner| inner.contains_key(name))
        };
        let holders: Vec<_> = properties.iter().filter(|(_, node)| holds(node)).collect();
        let names: Vec<_> = holders.iter().map(|(holder, _)| holder.as_str()).collect();
        if !names.is_empty() {
            return format!("unknown key here; it belongs in {}", names.join(" or "));
        }
        let known: Vec<_> = properties.keys().map(String::as_str).collect();
        let why = node.get("x-refused").and_then(Value::as_str);
        let why = why.map(|why| format!("; {why}")).unwrap_or_default();
        format!("unknown key; known here: {}{why}", known.join(", "))
    }

    fn report(&mut self, span: Range<usize>, path: &WalkPath<'_>, message: String) {
        self.misfits.push(Misfit { span, place: path.place(), message });
    }
}

/// Returns the name of an array's element, if it is a table that has one.
pub(crate) fn name_of<'v>(item: &'v DeValue<'_>) -> Option<&'v str> {
    item.as_table().and_then(|table| table.get("name"))?.get_ref().as_str()
}

fn accepts(node: &Value, wanted: &str) -> bool {
    match node.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        // A `oneOf` is a set of named choices.
        _ => wanted == "string" && node.get("oneOf").is_some(),
    }
}

/// Checks a text in one of the formats, such as a rate.
fn written(node: &Value, format: &str, text: &str) -> Result<Value, String> {
    let base = format::read(format, text)?;
    let bound = |name| node.get(name).and_then(Value::as_u64);
    if let Some(least) = bound("x-minimum").filter(|least| base < *least) {
        return Err(format!("{text} is less than {}", format::shown(format, least)));
    }
    if let Some(most) = bound("x-maximum").filter(|most| base > *most) {
        return Err(format!("{text} is more than {}", format::shown(format, most)));
    }
    Ok(Value::String(text.to_string()))
}

/// Checks one of named choices.
fn choice(node: &Value, text: &str) -> Result<Value, String> {
    let names = choices(node);
    if names.contains(&text) {
        return Ok(Value::String(text.to_string()));
    }
    Err(format!("{} is not one of {}", format::quoted(text), names.join(", ")))
}

pub(crate) fn choices(node: &Value) -> Vec<&str> {
    let named = node.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let bare = node.get("enum").and_then(Value::as_array).into_iter().flatten();
    named.filter_map(|one| one.get("const")).chain(bare).filter_map(Value::as_str).collect()
}

fn integer(node: &Value, number: i128) -> Result<Value, String> {
    let bound = |name| node.get(name).and_then(Value::as_i64).map(i128::from);
    if let Some(allowed) = node.get("enum").and_then(Value::as_array)
        && !allowed.iter().any(|one| one.as_i64().map(i128::from) == Some(number))
    {
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        return Err(format!("{number} is not one of {}", allowed.join(", ")));
    }
    if let Some(least) = bound("minimum").filter(|least| number < *least) {
        return Err(format!("{number} is less than {least}"));
    }
    if let Some(most) = bound("maximum").filter(|most| number > *most) {
        return Err(format!("{number} is more than {most}"));
    }
    i64::try_from(number).map(Value::from).map_err(|_| format!("{number} is out of all bounds"))
}

/// Checks a number with at most three decimals, and returns it in thousandths.
fn factor(node: &Value, text: &str) -> Result<Value, String> {
    let wrong = || format!("{text} is not a number with at most three decimals");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let whole = whole.strip_prefix('+').unwrap_or(whole);
    if !digits(whole.strip_prefix('-').unwrap_or(whole)) || !digits(fraction) || fraction.len() > 3
    {
        return Err(wrong());
    }
    let thousandths: i128 = format!("{whole}{fraction:0<3}").parse().map_err(|_| wrong())?;
    let bound = |name| node.get(name).and_then(Value::as_i64).map(i128::from);
    if let Some(least) = bound("minimum").filter(|least| thousandths < least * 1000) {
        return Err(format!("{text} is less than {least}"));
    }
    if let Some(most) = bound("maximum").filter(|most| thousandths > most * 1000) {
        return Err(format!("{text} is more than {most}"));
    }
    i64::try_from(thousandths).map(Value::from).map_err(|_| wrong())
}

fn number_text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.to_string(), |number| number.to_string()),
        DeValue::Float(number) => number.as_str().to_string(),
        _ => String::new(),
    }
}

fn wrong_type(node: &Value, value: &DeValue<'_>) -> String {
    let is = match value {
        DeValue::String(text) => format!("{} is a text", format::quoted(text)),
        DeValue::Integer(number) => format!("{number} is an integer"),
        DeValue::Float(number) => format!("{} is a number", number.as_str()),
        DeValue::Boolean(flag) => format!("{flag} is a truth value"),
        DeValue::Datetime(_) => "is a date".to_string(),
        DeValue::Array(_) => "is an array".to_string(),
        DeValue::Table(_) => "is a table".to_string(),
    };
    let wanted = match node.get("format").and_then(Value::as_str) {
        Some(format) => format!("{}, in quotes", format::wanted(format)),
        None if accepts(node, "object") => "a table".to_string(),
        None if accepts(node, "array") => "an array".to_string(),
        None if accepts(node, "integer") => "an integer".to_string(),
        None if accepts(node, "number") => "a number".to_string(),
        None if accepts(node, "boolean") => "true or false".to_string(),
        None => format!("one of {}", choices(node).join(", ")),
    };
    format!("{is}, must be {wanted}")
}

/// Unknown keys that get a suggestion; ten times as many as problems are shown.
const UNKNOWN_MAX: usize = 1000;
