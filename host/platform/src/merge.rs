// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many commands as few processes.
//!
//! Starting a process takes some milliseconds, so a command for each of 128 devices takes a second.
//! Commands of the same kind that follow each other become one: lines of `ip -batch` and `tc
//! -batch`, more arguments of `sysctl`, lines for a loop of the shell around `ethtool`, which has
//! no batches. Their order stays, and the first that fails ends them all.

use std::time::Duration;

use crate::run::{Command, LIMIT};

/// Merges neighbours of the same kind, at least [`COMMANDS_LEAST`] into one. Returns each resulting
/// command with the number of given commands that it stands for.
pub(crate) fn merge<'a>(commands: impl IntoIterator<Item = &'a Command>) -> Vec<(Command, usize)> {
    let mut merged: Vec<(Command, usize)> = Vec::new();
    let mut group: Vec<&Command> = Vec::new();
    for command in commands {
        let same = group.first().is_some_and(|first| same_batch(first, command));
        if !same || group.len() == COMMANDS_MAX {
            close(&mut group, &mut merged);
        }
        group.push(command);
    }
    close(&mut group, &mut merged);
    merged
}

fn close(group: &mut Vec<&Command>, merged: &mut Vec<(Command, usize)>) {
    match group.len() {
        few if few < COMMANDS_LEAST => {
            merged.extend(group.iter().map(|command| ((*command).clone(), 1)));
        }
        count => merged.push((batch(group), count)),
    }
    group.clear();
}

/// The way in which a command becomes a part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchKind {
    /// A line of `-batch`.
    Line,
    /// So many arguments of its own after the common ones.
    Arguments { common: usize },
    /// A line for a loop of the shell.
    Loop,
}

fn kind(command: &Command) -> Option<BatchKind> {
    let args = command.args();
    if command.input_lines().next().is_some() || !args.iter().all(|arg| is_plain(arg)) {
        return None;
    }
    let first = args.first()?.as_str();
    match command.program() {
        "ip" | "tc" if !first.starts_with('-') => Some(BatchKind::Line),
        "sysctl" if args.len() > 1 => {
            let common = args.len() - 1;
            let writes = args[..common].iter().all(|arg| arg.starts_with('-'));
            writes.then_some(BatchKind::Arguments { common })
        }
        "ethtool" if first == "-K" => Some(BatchKind::Loop),
        _ => None,
    }
}

/// Returns true if a batch's lines and a shell's `read -r` take the word as it is.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:/=@%+,".contains(c))
}

fn same_batch(first: &Command, next: &Command) -> bool {
    let Some(how) = kind(first) else { return false };
    let same = first.program() == next.program() && first.namespace() == next.namespace();
    let common = |command: &Command| match how {
        BatchKind::Arguments { common } => command.args().get(..common).map(<[_]>::to_vec),
        BatchKind::Line | BatchKind::Loop => None,
    };
    same && kind(next) == Some(how) && common(first) == common(next)
}

/// Makes one command for a group of the same kind, which is not empty.
fn batch(group: &[&Command]) -> Command {
    let Some(first) = group.first() else { return Command::batch("ip", [""; 0]) };
    let lines = group.iter().map(|command| command.args().join(" "));
    let merged = match kind(first) {
        Some(BatchKind::Arguments { common }) => {
            let own = group.iter().flat_map(|command| &command.args()[common..]);
            Command::new(first.program(), first.args()[..common].iter().chain(own))
        }
        Some(BatchKind::Loop) => Command::new("sh", ["-c", LOOP])
            .reading(lines.map(|line| format!("{line}\n")).collect()),
        Some(BatchKind::Line) | None => Command::batch(first.program(), lines),
    };
    let more = u32::try_from(group.len()).unwrap_or(u32::MAX);
    merged.maybe_in_namespace(first.namespace()).limit(LIMIT + EACH.saturating_mul(more))
}

/// Runs `ethtool` with the words of each line; the first failure names its line and ends it.
const LOOP: &str =
    r#"while read -r words; do ethtool $words || { echo "ethtool $words" >&2; exit 1; }; done"#;

/// Fewer commands are run one by one, as they are printed.
const COMMANDS_LEAST: usize = 8;

/// The most in one batch: their arguments are far below what the kernel lets a process have.
const COMMANDS_MAX: usize = 1024;

/// The time that each of a batch adds to its limit: a device that goes down waits for the kernel.
const EACH: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[String]) -> Vec<(String, usize)> {
        let commands: Vec<Command> = lines.iter().map(|line| Command::line(line)).collect();
        let merged = merge(&commands).into_iter();
        merged.map(|(command, count)| (command.to_string(), count)).collect()
    }

    #[test]
    fn neighbours_of_a_kind_become_one_command_in_the_same_order() {
        let mut lines: Vec<String> = (0..8).map(|n| format!("ip link set dev v{n} up")).collect();
        lines.extend((0..8).map(|n| format!("sysctl -q -w net/v{n}/x=1")));
        lines.extend((0..8).map(|n| format!("ethtool -K v{n} gro off")));
        let merged = texts(&lines);
        assert_eq!(merged.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [8, 8, 8]);
        assert!(
            merged[0].0.starts_with("ip -batch - <<'END'\nlink set dev v0 up\nlink set dev v1")
        );
        assert!(merged[1].0.starts_with("sysctl -q -w net/v0/x=1 net/v1/x=1 net/v2"));
        assert!(merged[2].0.ends_with("-K v6 gro off\n-K v7 gro off\nEND"), "{}", merged[2].0);
    }

    #[test]
    fn few_commands_and_those_of_several_kinds_stay_as_they_are() {
        let few: Vec<String> = (0..7).map(|n| format!("ip link set dev v{n} up")).collect();
        assert_eq!(texts(&few), few.iter().map(|line| (line.clone(), 1)).collect::<Vec<_>>());
        let mixed: Vec<String> = (0..20)
            .map(|n| match n % 4 {
                0 => "sysctl -q -w a=1".to_owned(),
                1 => "sysctl -q -e -w a=1".to_owned(),
                2 => "ip -6 route flush dev v".to_owned(),
                _ => "mkdir /x".to_owned(),
            })
            .collect();
        assert_eq!(texts(&mixed).len(), 20);
        let spaces: Vec<Command> = (0..9).map(|_| Command::new("ip", ["link", "a b"])).collect();
        assert_eq!(merge(&spaces).len(), 9);
    }
}
