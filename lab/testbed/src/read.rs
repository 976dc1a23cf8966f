// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a TOML table key by key: every problem is noted with its line, none ends the reading.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// All that is wrong with a topology, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyProblems(pub(crate) Vec<TopologyProblem>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyProblem {
    /// The line, from 1.
    pub line: usize,
    /// The key, as in `link[2].a.mac`; empty where the text is no TOML.
    pub key: String,
    /// The value and its bound.
    pub message: String,
}

impl TopologyProblems {
    /// The problems.
    pub fn iter(&self) -> impl Iterator<Item = &TopologyProblem> {
        self.0.iter()
    }
}

impl fmt::Display for TopologyProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, TopologyProblem { line, key, message }) in self.0.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            let colon = if key.is_empty() { "" } else { ": " };
            write!(f, "{newline}line {line}: {key}{colon}{message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TopologyProblems {}

/// The text, and what is wrong with it so far.
pub(super) struct Reader<'t> {
    text: &'t str,
    problems: RefCell<Vec<TopologyProblem>>,
}

/// One table of the text, with the keys that were asked for.
pub(super) struct Table<'r, 't> {
    reader: &'r Reader<'t>,
    path: String,
    entries: &'r DeTable<'t>,
    span: Range<usize>,
    asked: RefCell<Vec<&'static str>>,
}

/// A value with the place where it stands.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) key: String,
    pub(super) span: Range<usize>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: RefCell::default() }
    }

    pub(super) fn note(&self, span: &Range<usize>, key: &str, message: String) {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        self.problems.borrow_mut().push(TopologyProblem { line, key: key.to_owned(), message });
    }

    pub(super) fn refuse<T>(&self, at: &Placed<T>, message: String) {
        self.note(&at.span, &at.key, message);
    }

    /// The value, if nothing is wrong.
    pub(super) fn finish<T>(self, value: T) -> Result<T, TopologyProblems> {
        let mut problems = self.problems.into_inner();
        problems.sort();
        if problems.is_empty() { Ok(value) } else { Err(TopologyProblems(problems)) }
    }

    pub(super) fn table<'r>(
        &'r self,
        path: String,
        table: &'r DeTable<'t>,
        span: Range<usize>,
    ) -> Table<'r, 't> {
        Table { reader: self, path, entries: table, span, asked: RefCell::default() }
    }
}

impl<'r, 't> Table<'r, 't> {
    /// The value of `key` as text.
    pub(super) fn string(&self, key: &'static str) -> Option<Placed<String>> {
        let value = self.value(key)?;
        self.expect(key, value, "a string", value.get_ref().as_str().map(str::to_owned))
    }

    /// The value of `key`, parsed from its text.
    pub(super) fn parsed<T>(&self, key: &'static str, what: &str) -> Option<Placed<T>>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        let text = self.string(key)?;
        match text.value.parse() {
            Ok(value) => Some(Placed { value, key: text.key, span: text.span }),
            Err(error) => {
                self.reader.refuse(&text, format!("{:?} is no {what}: {error}", text.value));
                None
            }
        }
    }

    /// The value of `key` as a whole number in `bounds`.
    pub(super) fn integer(&self, key: &'static str, least: u32, most: u32) -> Option<u32> {
        let value = self.value(key)?;
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|n| i128::from_str_radix(&n.as_str().replace('_', ""), n.radix()).ok());
        let placed = self.expect(key, value, "a whole number", number)?;
        match u32::try_from(placed.value) {
            Ok(number) if (least..=most).contains(&number) => Some(number),
            _ => {
                let message = format!("{} is not in {least} to {most}", placed.value);
                self.reader.refuse(&placed, message);
                None
            }
        }
    }

    /// The value of `key` as true or false.
    pub(super) fn boolean(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        Some(self.expect(key, value, "true or false", value.get_ref().as_bool())?.value)
    }

    /// The strings of the list `key`; empty if there is none.
    pub(super) fn strings(&self, key: &'static str) -> Vec<Placed<String>> {
        let mut strings = Vec::new();
        for (index, value) in self.list(key).into_iter().enumerate() {
            let path = format!("{}[{index}]", self.key(key));
            match value.get_ref().as_str() {
                Some(text) => {
                    let (value, span) = (text.to_owned(), value.span());
                    strings.push(Placed { value, key: path, span });
                }
                None => self.wrong_type(&path, value, "a string"),
            }
        }
        strings
    }

    /// The tables of the list `key`; empty if there is none.
    pub(super) fn tables(&self, key: &'static str) -> Vec<Self> {
        let mut tables = Vec::new();
        for (index, value) in self.list(key).into_iter().enumerate() {
            let path = format!("{}[{index}]", self.key(key));
            match value.get_ref().as_table() {
                Some(table) => tables.push(self.reader.table(path, table, value.span())),
                None => self.wrong_type(&path, value, "a table"),
            }
        }
        tables
    }

    /// The table `key`, or the text that stands in its place.
    pub(super) fn table_or_string(
        &self,
        key: &'static str,
    ) -> Option<Result<Self, Placed<String>>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(table) => {
                Some(Ok(self.reader.table(self.key(key), table, value.span())))
            }
            _ => Some(Err(self.string(key)?)),
        }
    }

    /// The pairs of the table `key`, whose values are strings or whole numbers.
    pub(super) fn pairs(&self, key: &'static str) -> Vec<(String, Placed<String>)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(&self.key(key), value, "a table");
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (name, value) in table.iter() {
            let name = name.get_ref().to_string();
            let path = format!("{}.{name}", self.key(key));
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.as_str().to_owned(),
                _ => {
                    self.wrong_type(&path, value, "a string or a whole number");
                    continue;
                }
            };
            pairs.push((name, Placed { value: text, key: path, span: value.span() }));
        }
        pairs
    }

    /// Notes that a key is missing that must be there.
    pub(super) fn required<T>(&self, key: &'static str, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.entries.contains_key(key) {
            self.note(format!("needs the key `{key}`"));
        }
        value
    }

    /// Notes a problem of the whole table.
    pub(super) fn note(&self, message: String) {
        self.reader.note(&self.span, &self.path, message);
    }

    /// Notes the keys that nobody asked for.
    pub(super) fn end(self) {
        let asked = self.asked.borrow();
        for key in self.entries.keys() {
            if !asked.contains(&key.get_ref().as_ref()) {
                let path = self.key(key.get_ref());
                let known = asked.join(", ");
                self.reader.note(&key.span(), &path, format!("unknown key; known: {known}"));
            }
        }
    }

    fn value(&self, key: &'static str) -> Option<&'r Spanned<DeValue<'t>>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        self.entries.get(key)
    }

    fn list(&self, key: &'static str) -> Vec<&'r Spanned<DeValue<'t>>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => {
                self.wrong_type(&self.key(key), value, "a list");
                Vec::new()
            }
        }
    }

    fn expect<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'t>>,
        wanted: &str,
        found: Option<T>,
    ) -> Option<Placed<T>> {
        let key = self.key(key);
        match found {
            Some(found) => Some(Placed { value: found, key, span: value.span() }),
            None => {
                self.wrong_type(&key, value, wanted);
                None
            }
        }
    }

    fn wrong_type(&self, path: &str, value: &Spanned<DeValue<'t>>, wanted: &str) {
        let found = value.get_ref().type_str();
        self.reader.note(&value.span(), path, format!("must be {wanted}, and is of type {found}"));
    }

    fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}
