// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the rules of ports among each other, and the guarantees of all vifs that they may make.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::bounds::RULE_DEVICES_MAX;
use crate::finding::Finding;
use crate::fit;
use crate::format::quoted;
use crate::model::{Policy, Port};

/// Adds the problems of rules that contradict each other or ask for too much.
pub(crate) fn check(policy: &Policy, findings: &mut Vec<Finding>) {
    let mut devices = 0_u32;
    for (index, port) in policy.ports.iter().enumerate() {
        check_port(index, port, findings);
        for (number, rule) in port.rules.iter().enumerate() {
            let before = devices;
            devices = devices.saturating_add(rule.devices_max);
            if devices > RULE_DEVICES_MAX && before <= RULE_DEVICES_MAX {
                let message = format!(
                    "{} is too much: with it the rules take {devices} devices, at most \
                     {RULE_DEVICES_MAX}",
                    rule.devices_max
                );
                findings.push(of_rule(index, number, "devices_max", message));
            }
        }
    }
}

fn check_port(index: usize, port: &Port, findings: &mut Vec<Finding>) {
    for (number, rule) in port.rules.iter().enumerate() {
        let words = rule.slice_name.words();
        let is_unknown = |word: &&str| !rule.pattern.as_ref().is_some_and(|own| own.has_word(word));
        if let Some(word) = words.into_iter().find(is_unknown) {
            let message = format!("{{{word}}} is no word of the rule's match");
            findings.push(of_rule(index, number, "slice", message));
        }
        let Some(pattern) = &rule.pattern else {
            if number + 1 < port.rules.len() {
                let message = "is missing: a rule that takes every device must be the last";
                findings.push(of_rule(index, number, "match", message));
            }
            continue;
        };
        let before = port.rules.iter().take(number);
        if before.into_iter().any(|other| other.pattern.as_ref() == Some(pattern)) {
            let message = format!("{} is that of a rule before", quoted(&pattern.to_string()));
            findings.push(of_rule(index, number, "match", message));
        }
    }
}

/// Adds guarantees that do not fit, if each rule has as many devices as it takes.
pub(crate) fn check_sums(policy: &Policy, findings: &mut Vec<Finding>) {
    let rules = policy.ports.iter().flat_map(|port| &port.rules);
    let devices = rules.fold(0_u32, |sum, rule| sum.saturating_add(rule.devices_max));
    // More were reported already.
    if devices == 0 || devices > RULE_DEVICES_MAX {
        fit::check_sums(policy, findings);
        return;
    }
    let mut found = Vec::new();
    fit::check_sums(&policy.at_most(), &mut found);
    // A slice that a rule makes lacks what the rule does not give; all of them lack the same.
    let slices = policy.slices.len();
    let mut made = Vec::new();
    for (index, port) in policy.ports.iter().enumerate() {
        for (number, rule) in port.rules.iter().enumerate() {
            let count =
                if rule.vif.slice == crate::VifRule::NO_SLICE { rule.devices_max } else { 0 };
            made.extend((0..count).map(|_| (index, number)));
        }
    }
    let mut told = Vec::new();
    for finding in found {
        let Some(at) = finding.index.checked_sub(slices).filter(|_| finding.table == "slice")
        else {
            findings.push(finding);
            continue;
        };
        let Some((port, number)) = made.get(at).copied() else { continue };
        let key = format!("slice_{}", finding.key);
        if !told.contains(&(port, number, key.clone())) {
            findings.push(of_rule(port, number, &key, finding.message));
            told.push((port, number, key));
        }
    }
}

/// Returns a problem of a rule.
pub(crate) fn of_rule(
    port: usize,
    number: usize,
    key: &str,
    message: impl Into<alloc::string::String>,
) -> Finding {
    Finding::new("port", port, format!("rule.{number}.{key}"), message)
}
