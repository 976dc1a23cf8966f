// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions a packet, counted under callgrind: a guard that a shared machine does not disturb.
//!
//! Each pure bench runs twice, once short and once long; the difference divided by the additional
//! packets of the long run is the count. It depends on the compiler, so the counts are kept with
//! its version (`bench/instructions.txt`), and nothing is compared under another version.

use std::fmt::Write;
use std::process::Command;

use crate::command::{cargo, output, show};

/// One counted bench.
struct Case {
    name: String,
    package: &'static str,
    bench: &'static str,
    arguments: Vec<String>,
    /// The option that sets the length of a run, and the lengths of the short and the long one.
    length: (&'static str, [u64; 2]),
    /// The packets of the long run less those of the short one.
    packets: u64,
}

/// Counts that were kept, and the compiler they belong to.
#[derive(Debug, Default, PartialEq)]
struct Kept {
    compiler: String,
    counts: Vec<(String, f64)>,
}

/// Runs `./x bench instructions [--keep]`.
///
/// # Errors
/// A count is above its bound (the error names it), an argument is wrong, or a command failed.
pub(crate) fn call(words: &[String]) -> Result<(), String> {
    match words {
        [] => check().map(|skipped| {
            skipped.into_iter().for_each(|reason| println!("SKIPPED instructions: {reason}"));
        }),
        [word] if word == "--keep" => {
            let kept = Kept { compiler: compiler()?, counts: count_all()? };
            std::fs::write(KEPT, kept.text()).map_err(|error| format!("{KEPT}: {error}"))?;
            print!("{}", kept.text());
            Ok(())
        }
        _ => Err("bench: instructions takes --keep or nothing".to_owned()),
    }
}

/// Counts and compares. `Some` says why nothing was counted.
///
/// # Errors
/// A count is above its bound, or a command failed.
pub(crate) fn check() -> Result<Option<String>, String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(Some("no valgrind on this machine".to_owned()));
    }
    let text = std::fs::read_to_string(KEPT).map_err(|error| format!("{KEPT}: {error}"))?;
    let kept = Kept::parse(&text)?;
    let compiler = compiler()?;
    if compiler != kept.compiler {
        let why = format!("{KEPT} was counted with {}, this is {compiler}", kept.compiler);
        return Ok(Some(why));
    }
    let (table, failed) = kept.judge(&count_all()?);
    print!("{table}");
    if failed.is_empty() { Ok(None) } else { Err(failed.join("; ")) }
}

impl Kept {
    fn parse(text: &str) -> Result<Self, String> {
        let mut kept = Self::default();
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        for line in lines {
            let wrong = || format!("{KEPT}: '{line}' is no 'NAME COUNT'");
            let (name, value) = line.split_once(' ').ok_or_else(wrong)?;
            if name == COMPILER {
                value.clone_into(&mut kept.compiler);
            } else {
                kept.counts.push((name.to_owned(), value.parse().map_err(|_| wrong())?));
            }
        }
        Ok(kept)
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}{COMPILER} {}\n", self.compiler);
        for (name, count) in &self.counts {
            let _ = writeln!(text, "{name} {count:.1}");
        }
        text
    }

    /// Returns a table of all counts, and a message for each that is above its bound or not kept.
    fn judge(&self, counts: &[(String, f64)]) -> (String, Vec<String>) {
        let mut table =
            format!("{:<26} {:>8} {:>8} {:>7}\n", "instructions a packet", "now", "kept", "");
        let mut failed = Vec::new();
        for (name, now) in counts {
            let Some((_, kept)) = self.counts.iter().find(|(known, _)| known == name) else {
                failed.push(format!("{name}: no count is kept; {ACCEPT}"));
                continue;
            };
            let percent = (now / kept - 1.0) * 100.0;
            let _ = writeln!(table, "{name:<26} {now:>8.1} {kept:>8.1} {percent:>+6.1}%");
            let bound = kept * (1.0 + TOLERANCE);
            if *now > bound {
                failed.push(format!("{name} takes {now:.1}, at most {bound:.1}; {ACCEPT}"));
            } else if *now < kept * (1.0 - TOLERANCE) {
                let _ = writeln!(table, "  fewer than kept: {ACCEPT}");
            }
        }
        (table, failed)
    }
}

fn count_all() -> Result<Vec<(String, f64)>, String> {
    let cases = cases();
    let mut programs: Vec<(&str, String)> = Vec::new();
    for case in &cases {
        if !programs.iter().any(|(bench, _)| *bench == case.bench) {
            programs.push((case.bench, build(case.package, case.bench)?));
        }
    }
    let count = |case: &Case| {
        let program = programs.iter().find(|(bench, _)| *bench == case.bench);
        let program = program.map_or("", |(_, program)| program.as_str());
        let [short, long] = case.length.1;
        let (short, long) = (executed(program, case, short)?, executed(program, case, long)?);
        #[expect(clippy::cast_precision_loss, reason = "shown to a tenth")]
        let each = long.saturating_sub(short) as f64 / case.packets as f64;
        Ok((case.name.clone(), each))
    };
    cases.iter().map(count).collect()
}

/// All cases: schedulers at 4096 classes, the switch with 1024 vifs and frames of 64 bytes.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for algorithm in ["drr", "wrr", "wfq", "hfsc-tree-min"] {
        for load in ["refill", "random"] {
            let words = [algorithm, "--classes", "4096", "--load", load, "--count"];
            cases.push(Case {
                name: format!("sched/{algorithm}/{load}"),
                package: "weir-sched",
                bench: "sched",
                arguments: words.map(str::to_owned).to_vec(),
                length: ("--pairs", [64_000, 164_000]),
                packets: 100_000,
            });
        }
    }
    let packets = |name: &str, arguments: &[&str]| Case {
        name: format!("packets/{name}"),
        package: "weir-switch",
        bench: "packets",
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        length: ("--batches", [1000, 3000]),
        // In batches of 32.
        packets: 64_000,
    };
    cases.push(packets("send", &[]));
    cases.push(packets("receive", &["--match", "0"]));
    cases.push(packets("receive-match-1", &["--match", "1"]));
    cases.push(packets("receive-match-64", &["--match", "64"]));
    cases
}

/// Builds a bench and returns the path of its program.
fn build(package: &str, bench: &str) -> Result<String, String> {
    let words = ["bench", "--quiet", "--no-run", "--message-format=json"];
    let mut command = cargo(&words);
    command.args(["--package", package, "--bench", bench]);
    show(&command);
    let told = output(&mut command)?;
    let path = told.rsplit_once("\"executable\":\"").and_then(|(_, rest)| rest.split_once('"'));
    path.map(|(path, _)| path.to_owned()).ok_or_else(|| format!("{bench}: cargo names no program"))
}

/// Returns the number of instructions that a run of that length executes.
fn executed(program: &str, case: &Case, length: u64) -> Result<u64, String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", program]);
    command.args(&case.arguments).args([case.length.0, &length.to_string()]);
    let done = command.output().map_err(|error| format!("valgrind: {error}"))?;
    let told = String::from_utf8_lossy(&done.stderr);
    let digits = |line: &str| line.chars().filter(char::is_ascii_digit).collect::<String>();
    let line = told.lines().find_map(|line| line.split_once("refs:")).map(|(_, rest)| digits(rest));
    match line.and_then(|digits| digits.parse().ok()) {
        Some(count) if done.status.success() => Ok(count),
        _ => Err(format!("{}: valgrind: {}: {}", case.name, done.status, told.trim())),
    }
}

/// Returns the compiler's version and target.
fn compiler() -> Result<String, String> {
    let told = output(Command::new("rustc").args(["--version", "--verbose"]))?;
    let line =
        |key: &str| told.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("unknown");
    Ok(format!("{} for {}", line("rustc "), line("host: ")))
}

const KEPT: &str = "bench/instructions.txt";
const COMPILER: &str = "rustc";
const HEAD: &str = "\
# Instructions a packet, in and out again. Written by `./x bench instructions --keep`; a commit that
# raises one says why.
";
const ACCEPT: &str = "to accept it, `./x bench instructions --keep` and say why in the commit";

/// Tolerated part of a count. Repeated on one machine, counts differ by less than 0.1 %, but the
/// way in which the C library copies depends on the processor.
const TOLERANCE: f64 = 0.03;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, f64)]) -> Vec<(String, f64)> {
        list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let kept = Kept { compiler: "1.2.3 for x".into(), counts: counts(&[("a/b", 50.5)]) };
        assert_eq!(Kept::parse(&kept.text()), Ok(kept));
        let wrong = Kept::parse("rustc 1\na/b many\n").unwrap_err();
        assert!(wrong.contains("'a/b many' is no 'NAME COUNT'"), "{wrong}");
    }

    /// Goal: the guard bites above the tolerance, names value and bound, and lets fewer pass.
    #[test]
    fn more_instructions_than_kept_are_refused() {
        let kept = Kept { compiler: String::new(), counts: counts(&[("a", 100.0), ("b", 100.0)]) };
        let (_, failed) = kept.judge(&counts(&[("a", 102.9), ("b", 50.0)]));
        assert!(failed.is_empty(), "{failed:?}");
        let (table, failed) = kept.judge(&counts(&[("a", 103.1), ("c", 1.0)]));
        assert!(failed[0].starts_with("a takes 103.1, at most 103.0; to accept it"), "{failed:?}");
        assert!(failed[1].starts_with("c: no count is kept"), "{failed:?}");
        assert!(table.contains("+3.1%"), "{table}");
    }
}
