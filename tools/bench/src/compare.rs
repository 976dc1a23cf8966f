// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares results of two programs, series by series.
//!
//! Each side is any number of files of repeated runs; samples of one name are taken together. It
//! prints the median of each side and the ratio head ÷ base, and does not judge: whether more is
//! better depends on the unit.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use weir_result::{ResultFile, Rule, quantity};

/// Unit and samples by name.
type Samples = BTreeMap<String, (String, Vec<f64>)>;

/// Prints a line for each series of `BASE.. -- HEAD..`, which are result files.
///
/// # Errors
/// A file cannot be read, or is no result file.
pub(crate) fn compare(sides: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    let mut sides = sides.splitn(2, |word| *word == "--");
    let mut side = || read(sides.next().unwrap_or_default());
    let (base, head) = (side()?, side()?);
    println!("{:<40} {:>16} {:>16} {:>8}", "series", "base", "head", "ratio");
    for (name, (unit, samples)) in &head {
        let Some((_, before)) = base.get(name) else {
            println!("{name:<40} {:>16}", "new");
            continue;
        };
        let (b, h) = (Rule::Median.apply(&[before])?, Rule::Median.apply(&[samples])?);
        println!("{name:<40} {:>16} {:>16} {:>8.3}", quantity(b, unit), quantity(h, unit), h / b);
    }
    for name in base.keys().filter(|name| !head.contains_key(*name)) {
        println!("{name:<40} {:>16}", "gone");
    }
    Ok(ExitCode::SUCCESS)
}

fn read(paths: &[&str]) -> Result<Samples, Box<dyn Error>> {
    let mut all = Samples::new();
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let file = ResultFile::from_json(&text).map_err(|error| format!("{path}: {error}"))?;
        for (name, series) in file.series() {
            let entry = all.entry(name.clone()).or_default();
            entry.0.clone_from(&series.unit);
            entry.1.extend(&series.samples);
        }
    }
    Ok(all)
}
