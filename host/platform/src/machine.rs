// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine on which something is measured, for the head of every result file.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_result::{Machine, Origin};

use crate::cpu;

/// Returns the origin of measurements from now on. `command` is the command line, `commit` the
/// commit that the program was built from.
pub fn origin(command: &str, commit: &str) -> Origin {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Origin {
        command: command.to_owned(),
        machine: machine(),
        kernel: kernel(),
        commit: commit.to_owned(),
        start: rfc3339(now.as_secs()),
    }
}

/// Returns the command line of this process, as a person would type it.
pub fn command_line() -> String {
    let quoted = std::env::args().map(|word| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns the facts of this machine; `unknown` or 0 if they cannot be read.
pub fn machine() -> Machine {
    let cpu = field("/proc/cpuinfo", "model name").or_else(|| field("/proc/cpuinfo", "Processor"));
    let memory = field("/proc/meminfo", "MemTotal");
    let memory_kib = memory.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    Machine {
        cpu: cpu.unwrap_or_else(|| "unknown".to_owned()),
        cores: cpu::count(),
        memory_mib: memory_kib.unwrap_or(0) / 1024,
    }
}

/// Returns name and release of the kernel, as in `Linux 6.18.5`.
pub fn kernel() -> String {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    format!("{} {}", read("ostype"), read("osrelease")).trim().to_owned()
}

/// Returns the value behind `name :` in the first such line of a file of `/proc`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.filter(|value| !value.is_empty())
}

/// Formats seconds since 1970 as RFC 3339 writes them in UTC. The date is computed by Howard
/// Hinnant's `civil_from_days`: years begin in March, so that the leap day is a year's last.
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_at_the_edges_of_the_calendar() {
        // Each as `date -u -d @SECONDS +%FT%TZ` prints it.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
    }

    #[test]
    fn this_machine_says_what_it_is() {
        let origin = origin("weir-lab demo", "abc");
        assert!(origin.machine.cores > 0 && origin.machine.memory_mib > 0);
        assert!(origin.kernel.starts_with("Linux "), "{}", origin.kernel);
        assert!(origin.start.starts_with("20") && origin.start.ends_with('Z'));
    }
}
