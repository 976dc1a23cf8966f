// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From text to policy: parse, hold against the schema, resolve references, check.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::check::check;
use crate::document::Document;
use crate::problem::{Places, Problem, Problems, UnsoundPolicy};
use crate::resolve::resolve;
use crate::walk::{Misfit, Walk, element};
use crate::{Policy, count, schema};

/// Something wrong with a value of the document: which one, and why.
#[derive(Debug)]
pub(crate) struct Finding {
    /// `node`, `port`, `slice`, `router` or `vif`.
    pub(crate) table: &'static str,
    /// Its index; 0 for `node`.
    pub(crate) index: usize,
    /// The key below, segments separated by dots, array indexes as numbers.
    pub(crate) key: String,
    pub(crate) message: String,
}

/// Reads a policy document.
///
/// # Errors
/// [`Problems`]: everything that is wrong with it, each with line, column, key, value and bound.
/// A text that is not TOML is told so alone, since what it means is unknown.
pub fn parse(text: &str) -> Result<Policy, Problems> {
    parse_as_far(text).map_err(|unsound| unsound.problems)
}

/// As [`parse`]; beside the problems, what the document says as far as it is understood, if it is
/// at all.
pub(crate) fn parse_as_far(text: &str) -> Result<Policy, UnsoundPolicy> {
    if text.len() > TEXT_MAX {
        let message = format!("is {} bytes long, at most {TEXT_MAX}", text.len());
        let key = String::new();
        let problem = Problem { line: 1, column: 1, key, message };
        let problems = Problems::new(alloc::vec![problem]);
        return Err(UnsoundPolicy { problems, understood: None });
    }
    count::parsed();
    let (table, errors) = DeTable::parse_recoverable(text);
    let not_toml = errors.iter().any(|error| error.message() != DUPLICATE);
    let mut misfits: Vec<Misfit> = errors.iter().map(syntax).collect();
    let policy = if not_toml { None } else { policy(table.get_ref(), &mut misfits) };
    match policy {
        Some(policy) if misfits.is_empty() => Ok(policy),
        policy => {
            let places = Places::new(text);
            let list = misfits.into_iter().map(|misfit| placed(&places, misfit)).collect();
            let problems = Problems::new(list);
            Err(UnsoundPolicy { problems, understood: policy.map(Box::new) })
        }
    }
}

impl Finding {
    pub(crate) fn new(
        table: &'static str,
        index: usize,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { table, index, key: key.into(), message: message.into() }
    }
}

/// The policy as far as it can be understood, adding to `misfits` what is wrong.
fn policy(table: &DeTable<'_>, misfits: &mut Vec<Misfit>) -> Option<Policy> {
    let schema = schema();
    let mut walk = Walk::new(&schema);
    let value = walk.document(table);
    misfits.append(&mut walk.misfits);
    let document: Document = match serde_json::from_value(value) {
        Ok(document) => document,
        Err(error) => {
            misfits.push(Misfit { span: 0..0, key: String::new(), message: error.to_string() });
            return None;
        }
    };
    let mut findings = Vec::new();
    let policy = resolve(&document, &mut findings);
    check(&policy, &mut findings);
    // What the schema refused was replaced by a default; a finding about that helps nobody.
    let refused: BTreeSet<String> = misfits.iter().map(|misfit| misfit.key.clone()).collect();
    for finding in findings {
        let misfit = locate(table, finding);
        if !refused.contains(&misfit.key) {
            misfits.push(misfit);
        }
    }
    Some(policy)
}

fn syntax(error: &toml::de::Error) -> Misfit {
    let span = error.span().unwrap_or(0..0);
    Misfit { span, key: String::new(), message: format!("not TOML: {}", error.message()) }
}

fn placed(places: &Places<'_>, misfit: Misfit) -> Problem {
    let (line, column) = places.of(misfit.span.start);
    Problem { line, column, key: misfit.key, message: misfit.message }
}

/// The place of the finding: its key's, or that of the nearest table above it.
fn locate(root: &DeTable<'_>, finding: Finding) -> Misfit {
    let mut span: Range<usize> = 0..0;
    let mut key = finding.table.to_string();
    let mut at = root.get(finding.table);
    if let Some(DeValue::Array(items)) = at.map(|value| value.get_ref()) {
        at = items.get(finding.index);
        key = at.map_or(key, |item| element(finding.table, finding.index, item.get_ref()));
    }
    span = at.map_or(span, |value| value.span());
    for segment in finding.key.split('.').filter(|segment| !segment.is_empty()) {
        let index: Option<usize> = segment.parse().ok();
        at = match (at.map(|value| value.get_ref()), index) {
            (Some(DeValue::Table(table)), _) => table.get(segment),
            (Some(DeValue::Array(items)), Some(index)) => items.get(index),
            _ => None,
        };
        span = at.map_or(span, |value| value.span());
        key = match index {
            Some(index) => format!("{key} {}", index + 1),
            None => format!("{key}.{segment}"),
        };
    }
    Misfit { span, key, message: finding.message }
}

/// Largest document: 1 KiB for each of [`crate::VIFS_MAX`] vifs.
const TEXT_MAX: usize = 8 << 20;
/// The one error of the parser after which the rest still means what it says.
const DUPLICATE: &str = "duplicate key";
