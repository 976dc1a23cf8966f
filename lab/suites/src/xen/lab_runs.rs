// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row that boots the lab with a real Xen, and takes over what its domain 0 found.

use std::path::Path;

use weir_experiment::prelude::*;
use weir_platform::run::{Command, Host, Platform};
use weir_result::ResultFile;

/// Boots the lab under these schedulers, by `cargo xtask xen-lab` with `words`, and takes over what
/// was found under each.
pub(crate) fn take_over(
    rec: &mut Recording<'_>,
    schedulers: &[&str],
    words: &[&str],
) -> Result<(), ExperimentError> {
    weir_traffic::stop_on_signals()?;
    for scheduler in schedulers {
        // What an earlier run left is not what this one shows.
        let _none = std::fs::remove_dir_all(Path::new(OUT).join(scheduler));
    }
    let quick = rec.quick.then_some("--quick");
    let lab = ["xtask", "xen-lab", "--out", OUT].into_iter();
    let command = Command::new("cargo", lab.chain(words.iter().copied()).chain(quick));
    let command = command.limit(LIMIT);
    rec.say(&format!("{}: {command}", rec.id()));
    // What was measured before something failed is worth more than the failure.
    let outcome = Host::unless(weir_traffic::is_stopped).run(&command);
    let before = rec.result.cases().len();
    for scheduler in schedulers {
        let path = Path::new(OUT).join(scheduler).join("result.json");
        let missing =
            |why: String| ExperimentError::Missing { what: rec.name(scheduler), needs: why };
        let text = std::fs::read_to_string(&path).map_err(|error| match &outcome {
            Ok(_) => ExperimentError::io(&path, error),
            Err(failed) => missing(failed.to_string()),
        })?;
        let seen = ResultFile::from_json(&text)?;
        rec.result.absorb(scheduler, &seen)?;
        for case in seen.cases() {
            let verdict = if case.holds() { "holds" } else { "DOES NOT HOLD" };
            rec.say(&format!("{} {}: {verdict}", case.id(), case.name()));
        }
    }
    let cases = rec.result.cases().get(before..).unwrap_or_default();
    match outcome {
        // What does not hold is a result, and no reason to have none.
        Err(_) if cases.iter().any(|case| !case.holds()) => Ok(()),
        other => other.map(drop).map_err(ExperimentError::from),
    }
}

/// The folder of `cargo xtask xen-lab`.
const OUT: &str = "out/xen";

/// Two machines, with what they are built from.
const LIMIT: Duration = Duration::from_secs(1800);
