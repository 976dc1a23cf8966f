// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab verify`: a table of requirements, row by row.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use weir_experiment::{ExperimentError, Recording, Requirement, RequirementTable, product};
use weir_platform::output;
use weir_suites::TABLES;

use crate::output::Output;
use crate::run_on::RunOn;
use crate::sim_options::{NO_FRAMES, NO_SEED, SimOptions};
use weir_platform::failure::{Failure, UsageError};

/// Show a table of requirements row by row.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The table; without one, all are listed
    #[arg(value_parser = PossibleValuesParser::new(TABLES.iter().map(|table| table.name)))]
    table: Option<String>,
    /// Only this row; may be repeated
    #[arg(long, value_name = "NUMBER")]
    row: Vec<u32>,
    /// Only rows that judge correctness, not speed
    #[arg(long)]
    correctness: bool,
    /// Place of the runs; sim: in virtual time, without root, the rows that can
    #[arg(long, value_name = "PLACE", default_value = "lab")]
    on: RunOn,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
}

impl Verify {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        self.sim.check(self.on)?;
        let Some(name) = &self.table else {
            self.list()?;
            return Ok(ExitCode::SUCCESS);
        };
        let unknown = || UsageError(format!("no table '{name}'"));
        let table = TABLES.iter().find(|table| table.name == *name).ok_or_else(unknown)?;
        let rows = self.rows(table)?;
        if rows.is_empty() {
            // A run that judges nothing must not look like a success.
            return Err(
                UsageError(format!("{name}: none of these rows judges correctness alone")).into()
            );
        }
        if self.on == RunOn::Lab {
            product::path()?;
        }
        let folder = self.on.folder(&format!("verify/{name}"));
        let (result, broken) = self.output.measure(|rec| {
            if self.on == RunOn::Sim {
                rec.set_sim(self.sim.arm(&self.output, &folder));
            }
            run(&rows, self.on, rec)
        })?;
        if !self.output.json {
            println!("{result}");
        }
        let status = self.output.finish(&folder, &result)?;
        match broken.first() {
            None => Ok(status),
            Some(first) => Err(not_made(broken.len(), first).into()),
        }
    }

    fn rows<'a>(&self, table: &'a RequirementTable) -> Result<Vec<&'a Requirement>, Failure> {
        for number in &self.row {
            if !table.rows.iter().any(|row| row.number == *number) {
                let rows: Vec<_> = table.rows.iter().map(|row| row.number.to_string()).collect();
                let (table, rows) = (table.name, rows.join(", "));
                return Err(UsageError(format!("no row {number}; {table} has {rows}")).into());
            }
        }
        let chosen = |row: &&Requirement| self.row.is_empty() || self.row.contains(&row.number);
        // A row that was asked for is never left out silently.
        let left_out = |row: &'a Requirement| Some((row, self.leaves_out(row)?));
        let strange = table.rows.iter().filter(chosen).filter_map(left_out);
        // Prefer a row that has virtual time: its reason says more about the options.
        let strange = strange.min_by_key(|(row, _)| !row.is_simulated());
        let any = table.rows.iter().any(|row| self.leaves_out(row).is_none());
        if let Some((row, why)) = strange.filter(|_| !any || !self.row.is_empty()) {
            let what = if any { row.id() } else { table.name.to_owned() };
            return Err(UsageError(format!("{what}: {why} {}", self.known())).into());
        }
        let wanted = |row: &&Requirement| {
            let is_here = self.leaves_out(row).is_none();
            chosen(row) && is_here && (!self.correctness || row.correctness)
        };
        Ok(table.rows.iter().filter(wanted).collect())
    }

    /// Returns why a row does not run with these options. A list of rows that do run is to follow.
    fn leaves_out(&self, row: &Requirement) -> Option<&'static str> {
        let SimOptions { seed, pcap } = self.sim;
        match self.on {
            RunOn::Lab => None,
            RunOn::Sim if !row.is_simulated() => Some("not in virtual time, which has"),
            RunOn::Sim if seed.is_some() && !row.seeded => Some(NO_SEED),
            RunOn::Sim if pcap && !row.captured => Some(NO_FRAMES),
            RunOn::Sim => None,
        }
    }

    /// Returns the tables that have rows which run with these options, with these rows.
    fn tables(&self) -> impl Iterator<Item = (&'static str, Vec<&'static Requirement>)> {
        let of = |table: &'static RequirementTable| {
            let rows = table.rows.iter().filter(|row| self.leaves_out(row).is_none());
            (table.name, rows.collect::<Vec<_>>())
        };
        TABLES.iter().map(of).filter(|(_, rows)| !rows.is_empty())
    }

    /// Returns these tables with the numbers of the rows, on one line.
    fn known(&self) -> String {
        let of = |(name, rows): (&str, Vec<&Requirement>)| {
            let rows: Vec<String> = rows.iter().map(|row| row.number.to_string()).collect();
            format!("{name} {}", rows.join(", "))
        };
        self.tables().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Prints these tables and rows.
    fn list(&self) -> std::io::Result<()> {
        if self.output.json {
            let row = |row: &&Requirement| json!({ "number": row.number, "title": row.title });
            let table = |(name, rows): (&str, Vec<&Requirement>)| {
                let rows: Vec<Value> = rows.iter().map(row).collect();
                json!({ "name": name, "rows": rows })
            };
            let tables: Vec<Value> = self.tables().map(table).collect();
            return output::print_own(&json!({ "tables": tables }));
        }
        let mut text = String::new();
        for (name, rows) in self.tables() {
            text += &format!("{name}\n");
            for row in rows {
                text += &format!("  {:>3}  {}\n", row.number, row.title);
            }
        }
        output::print(&text)
    }
}

/// Runs rows, and returns the reasons for which some were not made. A row that cannot be made does
/// not keep the others from running.
fn run(rows: &[&Requirement], on: RunOn, rec: &mut Recording<'_>) -> Result<Vec<String>, Failure> {
    let mut broken = Vec::new();
    for row in rows {
        let made = match on {
            RunOn::Lab => row.run(rec),
            RunOn::Sim => row.run_simulated(rec),
        };
        match made {
            Ok(_) => {}
            Err(ExperimentError::Interrupted) => return Err(ExperimentError::Interrupted.into()),
            Err(error) => {
                let text = format!("{}: not made: {error}", row.id());
                rec.say(&text);
                rec.result.add_note(text.clone());
                broken.push(text);
            }
        }
    }
    Ok(broken)
}

fn not_made(count: usize, first: &str) -> String {
    match count {
        1 => format!("1 row was not made; {first}"),
        _ => format!("{count} rows were not made; {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_was_and_several_were_not_made() {
        assert_eq!(not_made(1, "why"), "1 row was not made; why");
        assert_eq!(not_made(2, "why"), "2 rows were not made; why");
    }
}
