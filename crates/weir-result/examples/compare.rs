// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares results of two programs, series by series: `compare BASE.. -- HEAD..`.
//!
//! Each side is any number of files of repeated runs; samples of one name are taken together.
//! Printed is the median of each side and head ÷ base. Says nothing about good or bad: whether more
//! is better depends on the unit.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use weir_result::{ResultFile, Rule, quantity};

/// Unit and samples by name.
type Samples = BTreeMap<String, (String, Vec<f64>)>;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(middle) = arguments.iter().position(|argument| argument == "--") else {
        eprintln!("usage: compare BASE.. -- HEAD..");
        return Ok(ExitCode::from(2));
    };
    let (base, head) = (read(&arguments[..middle])?, read(&arguments[middle + 1..])?);
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

fn read(paths: &[String]) -> Result<Samples, Box<dyn Error>> {
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
