// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random and malformed frames from the port of a node with slices of every kind of header.

use weir_experiment::prelude::*;
use weir_policy::PihForm;
use weir_sim::audit_headers;

use super::in_kernel;

/// Shows the row, with each form of the number.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for (form, name) in FORMS {
        show_switch(rec, form, name)?;
    }
    Ok(())
}

fn show_switch(rec: &mut Recording<'_>, form: PihForm, name: &str) -> Result {
    let frames = frames_of(rec);
    let audit =
        audit_headers(form, 1, frames).map_err(|error| ExperimentError::Node(error.to_string()))?;
    let mut count = |what: &str, text: &str, count: u64, bound: Bound| {
        rec.count(format!("switch{name}/{what}"), text, count, bound)
    };
    let text = "frames that the switch took for another slice's, or counted under another reason";
    count("different", text, audit.different, Bound::at_most(0.0))?;
    count("frames", "frames from the port", audit.frames, at_least(frames))?;
    count("delivered", "frames of those that a vif got", audit.delivered, at_least(frames / 5))?;
    if form == PihForm::Header {
        let text = "frames of those whose slice was told by five-tuples";
        count("told", text, audit.told, at_least(frames / 50))?;
    }
    let text = "frames that were refused, each counted under the oracle's reason";
    count("refused", text, audit.refused, at_least(frames / 5))?;
    let text = "frames of those with a short or unknown number of a parallel internet";
    count("headers", text, audit.headers_refused, at_least(frames / 20))?;
    let text = "frames of vifs whose headers were pushed and popped again";
    count("sent", text, audit.sent, at_least(frames / 10))
}

/// Shows the part of the row that runs the program in the kernel.
pub(super) fn show_in_kernel(rec: &mut Recording<'_>) -> Result {
    for (form, name) in FORMS {
        let frames = frames_of(rec);
        let audit = in_kernel::audit(form, frames)?;
        let mut count = |what: &str, text: &str, count: u64, bound: Bound| {
            rec.count(format!("kernel{name}/{what}"), text, count, bound)
        };
        let text = "frames that the program redirected otherwise than the oracle says";
        count("different", text, audit.different, Bound::at_most(0.0))?;
        // The kernel runs no program on frames without a whole Ethernet header.
        count("frames", "frames from the port", audit.frames, at_least(frames / 10 * 9))?;
        let text = "frames of those that it handed to their vif without headers";
        count("redirected", text, audit.redirected, at_least(frames / 10))?;
        if form == PihForm::Header {
            let text = "frames of those whose slice was told by five-tuples";
            count("told", text, audit.told, at_least(frames / 100))?;
        }
        let text = "frames of vifs that left with the headers of their slice";
        count("pushed", text, audit.pushed, at_least(frames / 100))?;
    }
    Ok(())
}

/// The frames of each form.
const fn frames_of(rec: &Recording<'_>) -> u64 {
    if rec.quick { 50_000 } else { 1_000_000 }
}

/// The forms, with what their series are called beside those of the header.
const FORMS: [(PihForm, &str); 2] = [(PihForm::Header, ""), (PihForm::Byte, "-byte")];

fn at_least(count: u64) -> Bound {
    Bound::at_least(float(count))
}
