// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts the output of a bench to a result file.
//!
//! Lines come from standard input. `{"series": "hfsc/1024/refill", "unit": "s", "samples":
//! [1e-7]}` is a series; a series with `"at_most"` or `"at_least"` is also a case on the median of
//! its samples. Other lines are passed through.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;
use weir_platform::machine;
use weir_result::{Bound, Claim, Origin, ResultFile, Rule, Series, spread};

/// A line of a bench.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptLine {
    series: String,
    unit: String,
    samples: Vec<f64>,
    at_most: Option<f64>,
    at_least: Option<f64>,
}

/// Writes the result file `out`; `origin` is command line, commit and time of the start. Returns
/// exit status 3 if a case does not hold.
///
/// # Errors
/// A line is malformed, or the file cannot be written.
pub(crate) fn collect(
    out: &str,
    origin: [&str; 3],
    seconds: &str,
) -> Result<ExitCode, Box<dyn Error>> {
    let [command, commit, start] = origin.map(str::to_owned);
    let (machine, kernel) = (machine::machine(), machine::kernel());
    let mut result = ResultFile::new(Origin { command, machine, kernel, commit, start });
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.starts_with('{') {
            add(&mut result, serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?)?;
        } else {
            println!("{line}");
        }
    }
    result.set_duration_s(seconds.parse()?);
    if let Some(folder) = Path::new(out).parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(out, result.to_json())?;
    if !result.cases().is_empty() {
        print!("{result}");
    }
    println!("{out}");
    // A bench without a bound is only a measurement, so it succeeds.
    let fine = result.cases().is_empty() || result.holds();
    Ok(ExitCode::from(if fine { 0 } else { 3 }))
}

fn add(result: &mut ResultFile, line: KeptLine) -> Result<(), Box<dyn Error>> {
    let KeptLine { series, unit, samples, at_most, at_least } = line;
    let of = |rule: Rule| rule.apply(&[&samples]);
    let figures = [of(Rule::Median)?, of(Rule::Min)?, of(Rule::Max)?];
    println!("{series:<40} {}", spread(figures, &unit));
    result.add_series(&series, Series::unordered(unit, samples))?;
    let bounds = [at_most.map(Bound::at_most), at_least.map(Bound::at_least)];
    if let Some(bound) = bounds.into_iter().flatten().next() {
        let claim = Claim::new(format!("bench.{series}"), "median", Rule::Median, bound);
        result.judge(claim.of(&[series]))?;
    }
    Ok(())
}
