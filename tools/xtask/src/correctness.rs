// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of `weir-lab verify` that judges correctness, not speed, as continuous integration runs
//! it.
//!
//! Its rows need a processor now and then. If the machine's host takes the processors for a part of
//! the time, traffic under a limit or a guarantee arrives too late. The cases that fail are then
//! reported as *not shown*, as `weir-lab conformance` does it. A single pause can break a case,
//! too: if the host took little, the rows of the failed cases run once more, which is reported.
//! Claims that something is exact are judged in any case (docs/verify.md).

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::command::run;
use crate::stolen::{DISTURBED, Stolen};
use crate::tools::tested_programs;

/// Runs these rows with the programs that the tests built: a release build takes seven minutes and
/// has no assertions. `Some` says which cases were not shown, and why.
pub(crate) fn check() -> Result<Option<String>, String> {
    let stolen = Stolen::since_now();
    let Err(error) = verify(&[]) else { return Ok(None) };
    let lost = stolen.part();
    if !error.ends_with(CLAIMS_BROKEN) {
        return Err(error);
    }
    let text = std::fs::read_to_string(RESULT).map_err(|error| format!("{RESULT}: {error}"))?;
    let result = serde_json::from_str(&text).map_err(|error| format!("{RESULT}: {error}"))?;
    let late = late(&result).ok_or(error)?;
    let names = late.join(", ");
    if lost < DISTURBED {
        verify(&rows_of(&late)).map_err(|error| format!("{names}, and once more: {error}"))?;
        return Ok(Some(format!("{names}: not shown at first, only when the row ran once more")));
    }
    Ok(Some(format!(
        "the machine's host took {:.0} % of a processor's time; not shown: {names}",
        100.0 * lost
    )))
}

/// Runs these rows; all if there are none.
fn verify(rows: &[String]) -> Result<(), String> {
    let mut lab = Command::new(tested_programs().join("weir-lab"));
    lab.args(["verify", "first-light", "--correctness"]);
    run(lab.args(rows.iter().flat_map(|row| ["--row", row])))
}

/// Returns the numbers of the rows of these cases: 12 for `first-light.12/frames/loop`.
fn rows_of(cases: &[String]) -> Vec<String> {
    let row = |case: &String| Some(case.split_once('/')?.0.rsplit_once('.')?.1.to_owned());
    cases.iter().filter_map(row).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the names of the cases that do not hold, if lateness can explain all of them.
fn late(result: &Value) -> Option<Vec<String>> {
    let mut late = Vec::new();
    for case in result["cases"].as_array()?.iter().filter(|case| case["holds"] != true) {
        let id = case["id"].as_str()?;
        // A row holds if its parts do.
        let Some((_, part)) = id.rsplit_once('/') else { continue };
        let exact = case["bound"]["op"] == "=" && !LATE.contains(&part);
        if exact || NEVER_LATE.contains(&part) {
            return None;
        }
        late.push(id.to_owned());
    }
    (!late.is_empty()).then_some(late)
}

/// The status of `weir-lab verify` if a case does not hold.
const CLAIMS_BROKEN: &str = "exit status: 3";

const RESULT: &str = "out/verify/first-light/result.json";

/// Exact claims that lateness can break: a ring that nobody empties overflows.
const LATE: [&str; 1] = ["lost"];

/// Claims with a margin that lateness cannot break: that enough was changed, that a kill left
/// something, that a storm was limited, that there was traffic at all, and that a limit was not
/// exceeded.
const NEVER_LATE: [&str; 7] =
    ["changes", "before", "dropped", "around", "arrived", "flows", "limit"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(id: &str, op: &str, holds: bool) -> Value {
        json!({ "id": id, "bound": { "op": op, "value": 1 }, "holds": holds })
    }

    #[test]
    fn what_is_exact_is_never_late() {
        let row = case("first-light.10", "=", false);
        let below = case("first-light.10/vlan/utilization", ">=", false);
        let lost = case("first-light.10/vlan/lost", "=", false);
        let order = case("first-light.10/vlan/order", "=", false);
        let holds = case("first-light.10/vlan/named", "=", true);
        let of = |cases: &[&Value]| late(&json!({ "cases": cases }));
        let late_ones = of(&[&row, &below, &lost, &holds]).unwrap();
        assert_eq!((late_ones.len(), rows_of(&late_ones)), (2, vec!["10".to_owned()]));
        assert_eq!(of(&[&row, &below, &order]), None);
        let dropped = case("first-light.12/frames/loop/dropped", ">=", false);
        assert_eq!(of(&[&row, &below, &dropped]), None);
        assert_eq!(of(&[&row]), None, "a row whose parts all hold");
        assert_eq!(late(&json!({})), None);
    }
}
