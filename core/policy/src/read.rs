// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a document in four steps: parse the TOML, compare it with the schema of its type, resolve
//! references, check the values against each other. Each step reports its problems and goes on with
//! the rest, so that a reader learns of all of them at once.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Range;

use toml::de::{DeTable, DeValue};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::check::check;
use crate::document::Document;
use crate::finding::{Finding, FindingList};
use crate::problem::{Places, Problem, ProblemPlace, Problems, UnsoundPolicy};
use crate::resolve::resolve;
use crate::schema::{schema, schema_of};
use crate::walk::{Misfit, Walk, name_of};
use crate::{Policy, count};

/// Reads a policy document.
///
/// # Errors
/// [`Problems`]: all problems, each with line, column, key, value and bound. For a text that is not
/// TOML they are the syntax errors only, since the meaning of the rest is unknown.
pub fn parse(text: &str) -> Result<Policy, Problems> {
    parse_as_far(text).map_err(|unsound| unsound.problems)
}

/// Reads a document of any type that has a schema. `meaning` returns what the document says, and
/// reports what the schema cannot tell; it is called where the form as a whole is right.
///
/// # Errors
/// [`Problems`], as of [`parse`].
pub fn read_document<T: DeserializeOwned + JsonSchema, M>(
    text: &str,
    meaning: impl FnOnce(T, &mut FindingList) -> M,
) -> Result<M, Problems> {
    let meaning = |document, findings: &mut Vec<Finding>| {
        let mut list = FindingList::default();
        let meaning = meaning(document, &mut list);
        findings.append(&mut list.0);
        meaning
    };
    read(text, &schema_of::<T>(), meaning).map_err(|(problems, _)| problems)
}

/// Reads a policy document as [`parse`] does, and returns beside the problems the policy as far as
/// it is understood.
pub(crate) fn parse_as_far(text: &str) -> Result<Policy, UnsoundPolicy> {
    count::parsed();
    let policy = |document: Document, findings: &mut Vec<Finding>| {
        let policy = resolve(&document, findings);
        check(&policy, findings);
        policy
    };
    read(text, &schema(), policy).map_err(|(problems, policy)| {
        let understood = policy.map(Box::new);
        UnsoundPolicy { problems, understood }
    })
}

/// Returns the meaning of a document, or its problems and its meaning as far as it is understood.
fn read<T: DeserializeOwned, M>(
    text: &str,
    schema: &Value,
    meaning: impl FnOnce(T, &mut Vec<Finding>) -> M,
) -> Result<M, (Problems, Option<M>)> {
    if text.len() > TEXT_MAX {
        let message = format!("is {} bytes long, at most {TEXT_MAX}", text.len());
        let place = ProblemPlace::default();
        let problem = Problem { line: 1, column: 1, place, message };
        return Err((Problems::new(alloc::vec![problem]), None));
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    let not_toml = errors.iter().any(|error| error.message() != DUPLICATE);
    let mut misfits: Vec<Misfit> = errors.iter().map(syntax).collect();
    let understood = match not_toml {
        true => None,
        false => understand(table.get_ref(), schema, meaning, &mut misfits),
    };
    match understood {
        Some(meaning) if misfits.is_empty() => Ok(meaning),
        understood => {
            let places = Places::new(text);
            let list = misfits.into_iter().map(|misfit| placed(&places, misfit)).collect();
            Err((Problems::new(list), understood))
        }
    }
}

/// Returns the meaning of a document as far as it can be understood, and adds the problems to
/// `misfits`.
fn understand<T: DeserializeOwned, M>(
    table: &DeTable<'_>,
    schema: &Value,
    meaning: impl FnOnce(T, &mut Vec<Finding>) -> M,
    misfits: &mut Vec<Misfit>,
) -> Option<M> {
    let mut walk = Walk::new(schema);
    let value = walk.document(table);
    misfits.append(&mut walk.misfits);
    let document: T = match serde_json::from_value(value) {
        Ok(document) => document,
        Err(error) => {
            // A type may not do without a value that the schema refused, which is known already.
            if misfits.is_empty() {
                let (span, place) = (0..0, ProblemPlace::default());
                misfits.push(Misfit { span, place, message: error.to_string() });
            }
            return None;
        }
    };
    let mut findings = Vec::new();
    let meaning = meaning(document, &mut findings);
    // A value that the schema refused was replaced by a default; a finding about that default would
    // only confuse.
    let refused: BTreeSet<ProblemPlace> =
        misfits.iter().map(|misfit| misfit.place.clone()).collect();
    for finding in findings {
        let misfit = locate(table, finding);
        if !refused.contains(&misfit.place) {
            misfits.push(misfit);
        }
    }
    Some(meaning)
}

fn syntax(error: &toml::de::Error) -> Misfit {
    let span = error.span().unwrap_or(0..0);
    let message = format!("not TOML: {}", error.message());
    Misfit { span, place: ProblemPlace::default(), message }
}

fn placed(places: &Places<'_>, misfit: Misfit) -> Problem {
    let (line, column) = places.of(misfit.span.start);
    Problem { line, column, place: misfit.place, message: misfit.message }
}

/// Finds the place of a finding: that of its key, or of the nearest table above it.
fn locate(root: &DeTable<'_>, finding: Finding) -> Misfit {
    let mut span: Range<usize> = 0..0;
    let mut place = ProblemPlace::default();
    place.enter(finding.table);
    let mut at = root.get(finding.table);
    if let Some(DeValue::Array(items)) = at.map(|value| value.get_ref()) {
        at = items.get(finding.index);
        if let Some(item) = at {
            place.enter_element(finding.index, name_of(item.get_ref()));
        }
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
        match index {
            Some(index) => place.enter_element(index, None),
            None => place.enter(segment),
        }
    }
    Misfit { span, place, message: finding.message }
}

/// Largest document: 1 KiB for each of [`crate::VIFS_MAX`] vifs.
const TEXT_MAX: usize = 8 << 20;
/// The one syntax error after which the rest of the text keeps its meaning.
const DUPLICATE: &str = "duplicate key";
