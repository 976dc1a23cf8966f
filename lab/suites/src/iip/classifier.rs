// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random and malformed frames from the port of a node with slices of every kind of header.

use weir_experiment::prelude::*;
use weir_sim::audit_headers;

use super::in_kernel;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let frames = if rec.quick { 50_000 } else { 1_000_000 };
    let audit =
        audit_headers(1, frames).map_err(|error| ExperimentError::Node(error.to_string()))?;
    let text = "frames that the switch took for another slice's, or counted under another reason";
    rec.count("switch/different", text, audit.different, Bound::at_most(0.0))?;
    rec.count("switch/frames", "frames from the port", audit.frames, at_least(frames))?;
    let text = "frames of those that a vif got";
    rec.count("switch/delivered", text, audit.delivered, at_least(frames / 5))?;
    let text = "frames that were refused, each counted under the oracle's reason";
    rec.count("switch/refused", text, audit.refused, at_least(frames / 5))?;
    let text = "frames of those with a short or unknown header of a parallel internet";
    rec.count("switch/headers", text, audit.headers_refused, at_least(frames / 20))?;
    let text = "frames of vifs whose headers were pushed and popped again";
    rec.count("switch/sent", text, audit.sent, at_least(frames / 10))
}

/// Shows the part of the row that runs the program in the kernel.
pub(super) fn show_in_kernel(rec: &mut Recording<'_>) -> Result {
    let frames = if rec.quick { 50_000 } else { 1_000_000 };
    let audit = in_kernel::audit(frames)?;
    let text = "frames that the program redirected otherwise than the oracle says";
    rec.count("kernel/different", text, audit.different, Bound::at_most(0.0))?;
    // The kernel runs no program on frames without a whole Ethernet header.
    rec.count("kernel/frames", "frames from the port", audit.frames, at_least(frames / 10 * 9))?;
    let text = "frames of those that it handed to their vif without headers";
    rec.count("kernel/redirected", text, audit.redirected, at_least(frames / 10))?;
    let text = "frames of vifs that left with the headers of their slice";
    rec.count("kernel/pushed", text, audit.pushed, at_least(frames / 100))
}

fn at_least(count: u64) -> Bound {
    Bound::at_least(float(count))
}
