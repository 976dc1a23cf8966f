// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work added to each packet of a router whose forwarding runs in the kernel: a list of nftables
//! rules that it looks through and of which no packet meets any.
//!
//! A packet is looked at by the thread that forwards it, so that the work is done under the
//! router's cap, and each rule costs the same few nanoseconds. A chain changes as a whole between
//! two packets; policy routing (`ip rule`), which would do without `nft`, changes rule by rule:
//! hundreds of changes in the midst of what is measured.

use std::fmt::Write as _;

use weir_experiment::prelude::*;
use weir_platform::run::{Command, CommandFailure, Host, Platform};

/// The rules of a namespace, which are gone with it.
#[derive(Clone, Debug)]
pub(crate) struct RuleList {
    namespace: String,
}

impl RuleList {
    /// Makes it, without a rule: what a list costs that is there at all is in each packet from now
    /// on.
    pub(crate) fn empty(namespace: &str) -> Result<Self, ExperimentError> {
        let list = Self { namespace: namespace.to_owned() };
        list.set(0)?;
        Ok(list)
    }

    /// Has so many rules, up to [`RULES_MAX`], from one packet to the next.
    pub(crate) fn set(&self, rules: u32) -> Result<(), ExperimentError> {
        let command = Command::new("nft", ["-f", "-"]).reading(script(rules));
        let ran = Host::default().run(&command.in_namespace(&self.namespace));
        ran.map(drop).map_err(|error| {
            let why = match error.failure {
                // The whole list is in the error's text.
                CommandFailure::Status { stderr, .. } => {
                    stderr.lines().next().unwrap_or("").to_owned()
                }
                CommandFailure::Start(why) => why,
                other => format!("{other:?}"),
            };
            ExperimentError::Missing {
                what: format!("{rules} rules in {}", self.namespace),
                needs: format!("nftables (nft, Debian's package nftables): {why}"),
            }
        })
    }
}

/// Returns the script for `nft`: the chain, made where it is missing, with these rules alone.
fn script(rules: u32) -> String {
    let mut text = format!(
        "table ip {TABLE} {{ chain forward {{ type filter hook forward priority 0; }}; }}\n\
         flush chain ip {TABLE} forward\n"
    );
    for number in 0..rules.min(RULES_MAX) {
        // Set aside for documentation (RFC 5737): nobody in the lab has such an address.
        let host = number % 256;
        let _ = writeln!(text, "add rule ip {TABLE} forward ip saddr 203.0.113.{host} drop");
    }
    text
}

const TABLE: &str = "disturbance";

/// Some tens of microseconds a packet.
pub(crate) const RULES_MAX: u32 = 5000;

#[cfg(test)]
mod tests {
    use weir_platform::process;

    use super::*;

    #[test]
    fn a_script_has_as_many_rules_as_were_asked_for_and_none_before() {
        for rules in [0, 1, 300] {
            let text = script(rules);
            assert_eq!(text.matches("add rule").count(), rules as usize);
            assert_eq!(text.lines().position(|line| line.starts_with("flush")), Some(1));
        }
        assert_eq!(script(u32::MAX).matches("add rule").count(), RULES_MAX as usize);
    }

    /// Goal: the kernel takes the list, longer, shorter, and none.
    #[test]
    fn the_kernel_takes_a_list() {
        const TEST: &str = "the_kernel_takes_a_list";
        if !process::is_root() {
            return println!("SKIPPED {TEST}: needs root");
        }
        let run = |command: Command| Host::default().run(&command);
        if run(Command::new("nft", ["--version"])).is_err() {
            return println!("SKIPPED {TEST}: no nft (Debian's package nftables)");
        }
        let name = format!("weir-rules-{}", std::process::id());
        run(Command::new("ip", ["netns", "add", &name])).unwrap();
        let counted = RuleList::empty(&name).and_then(|list| {
            let count = |rules| {
                list.set(rules)?;
                let listed = Command::line("nft list ruleset").in_namespace(&name);
                Ok::<_, ExperimentError>(run(listed)?.matches(" drop").count())
            };
            [3, 200, 0].into_iter().map(count).collect::<Result<Vec<usize>, _>>()
        });
        run(Command::new("ip", ["netns", "del", &name])).unwrap();
        assert_eq!(counted.unwrap(), [3, 200, 0]);
    }
}
