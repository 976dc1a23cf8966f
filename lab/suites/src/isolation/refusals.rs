// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mistakes of an operator, made with the program itself: each is refused with a text that names
//! the thing, the value and the bound, and the host stays unchanged.

use std::fs;
use std::path::PathBuf;

use weir_experiment::prelude::*;
use weir_experiment::weir_program::WeirProgram;
use weir_platform::run::Command;

use super::broken_policies::POLICIES;
use super::leftovers::HostBefore;

/// Shows the part, in the switch node of a lab.
pub(super) fn show(rec: &mut Recording<'_>, rig: &Testbed) -> Result {
    // More than the 1504 that a frame of the pool has room for.
    rig.ask("sw", Command::line("ip link set dev t1 mtu 1600"))?;
    let program = WeirProgram::new(rig.namespace("sw")?, rig.folder())?;
    let before = HostBefore::of(&program, &rig.star().name)?;
    policies(rec, &program)?;
    devices(rec, &program)?;
    commands(rec, &program)?;
    let left = before.left()?;
    left.iter().for_each(|line| rec.say(&format!("changed: {line}")));
    rec.none("nothing", "changes of the host by what was refused", left.len() as u64)
}

/// Policies that do not stand.
fn policies(rec: &mut Recording<'_>, program: &WeirProgram) -> Result {
    let mut verdicts = Vec::new();
    for (name, text, says) in POLICIES {
        verdicts.extend(policy(rec, program, name, text, says)?);
    }
    judge(rec, "policies", verdicts)
}

/// Sound policies for devices that cannot be taken, or a port that is not there. A vif's device
/// that is not there is waited for.
fn devices(rec: &mut Recording<'_>, program: &WeirProgram) -> Result {
    let cases: [(&str, &str, &str, &[&str]); 3] = [
        ("no-port", "nothere", "t0", &["device nothere", "none"]),
        ("too-large", "up0", "t1", &["device t1", "mtu 1600", "1504"]),
        ("loopback", "up0", "lo", &["device lo"]),
    ];
    let mut verdicts = Vec::new();
    for (name, port, vif, says) in cases {
        let text = format!(
            "version = 1\n[node]\nname = \"refused\"\n[[port]]\nname = \"{port}\"\n\
             rate = \"100Mbit\"\n[[slice]]\nname = \"s\"\n\
             [[vif]]\nname = \"{vif}\"\nslice = \"s\"\n"
        );
        verdicts.extend(policy(rec, program, name, &text, says)?);
    }
    judge(rec, "devices", verdicts)
}

/// Runs a node with a policy that is to be refused, and the same as a dry run.
fn policy(
    rec: &mut Recording<'_>,
    program: &WeirProgram,
    name: &str,
    text: &str,
    says: &[&str],
) -> Result<[f64; 2]> {
    let path = write(program, &format!("{name}.toml"), text.as_bytes())?;
    let words = ["node", "run", "--config", &path.to_string_lossy(), "--dry-run"];
    Ok([verdict(rec, program, &words[..4], says)?, verdict(rec, program, &words, says)?])
}

/// Command lines and files that are not what they should be.
fn commands(rec: &mut Recording<'_>, program: &WeirProgram) -> Result {
    let topology = write(program, "topology.toml", TOPOLOGY.as_bytes())?;
    let noise = write(program, "noise.toml", &[0x80, 0xff, 0x00, 0x1b])?;
    let huge = program.folder().join("huge.toml");
    let made = fs::File::create(&huge).and_then(|file| file.set_len(100 << 20));
    made.map_err(|error| ExperimentError::io(&huge, error))?;
    let (missing, folder) = (program.folder().join("nothere.toml"), program.folder().join(""));
    let texts = [topology, huge, noise, missing, folder].map(|path| path.display().to_string());
    let [topology, huge, noise, missing, folder] = &texts;
    let mut cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec!["lab", "up", topology], vec![topology, "2:1: nods", "\"1 Gigabit\""]),
        (vec!["verify", "nonsense"], vec!["nonsense", "first-light"]),
        (vec!["verify", "first-light", "--row", "99"], vec!["row 99"]),
        (vec!["nonsense"], vec!["nonsense"]),
        (vec!["demo", "--duration", "1s"], vec!["1 s", "2 s"]),
        (vec!["demo", "--lab", "no/name", "--duration", "3s"], vec!["no/name"]),
        (vec!["node", "status", "--node", "nothere"], vec!["nothere", "no node answers"]),
        (vec!["node", "status"], vec!["no node runs here"]),
        (vec!["capture", "nothere"], vec!["no node runs here"]),
        (vec!["traffic", "send"], vec!["--udp", "--tcp", "--xdp"]),
        (vec!["traffic", "send", "--udp", "nonsense"], vec!["--udp", "nonsense"]),
        (vec!["traffic", "send", "--xdp", "t0"], vec!["--mac"]),
        (vec!["traffic", "send", "--udp", "198.18.0.1:9", "--rate", "5"], vec!["--rate", "5"]),
        (
            vec!["traffic", "send", "--udp", "198.18.0.1:9", "--size", "9"],
            vec!["sizes = 9", "60 to 9230"],
        ),
        (
            vec!["traffic", "send", "--tcp", "198.18.0.1:9", "--count", "9"],
            vec!["--tcp", "--count", "cannot be used with"],
        ),
        (vec!["traffic", "receive"], vec!["--sink"]),
        (vec!["traffic", "receive", "--sink", "nothere"], vec!["nothere"]),
        (vec!["traffic", "receive", "--sink", "t0", "--netns", "nothere"], vec!["nothere"]),
    ];
    let readers: [&[&str]; 4] = [
        &["node", "run", "--config"],
        &["lab", "up"],
        &["traffic", "send", "--spec"],
        &["traffic", "receive", "--spec"],
    ];
    for reader in readers {
        cases.push(([reader, &[missing.as_str()]].concat(), vec![missing, "No such file"]));
        cases.push(([reader, &[folder.as_str()]].concat(), vec![folder, "directory"]));
        cases.push(([reader, &[noise.as_str()]].concat(), vec![noise, "UTF-8"]));
        cases.push(([reader, &[huge.as_str()]].concat(), vec![huge, "16777216"]));
    }
    let mut verdicts = Vec::new();
    for (words, says) in cases {
        verdicts.push(verdict(rec, program, &words, &says)?);
    }
    judge(rec, "commands", verdicts)
}

/// Runs a command that is wrong: 0 if it was refused with these texts, else 1, and says why.
fn verdict(
    rec: &mut Recording<'_>,
    program: &WeirProgram,
    words: &[&str],
    says: &[&str],
) -> Result<f64> {
    let ended = program.run(words, LIMIT)?;
    let missing = says.iter().find(|text| !ended.said.contains(**text));
    if ended.is_refusal() && missing.is_none() {
        return Ok(0.0);
    }
    let said: String = ended.said.chars().take(SHOWN_CHARS_MAX).collect();
    let (words, status) = (words.join(" "), ended.status);
    rec.say(&format!("weir {words}: {status:?}, without {missing:?}: {said}"));
    Ok(1.0)
}

fn judge(rec: &mut Recording<'_>, part: &str, verdicts: Vec<f64>) -> Result {
    let text = format!("{} {part}, not refused as they should be", verdicts.len());
    let verdicts = Series::unordered("1", verdicts);
    rec.claim_samples(part, text, verdicts, Rule::Sum, Bound::equal(0.0))
}

fn write(program: &WeirProgram, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = program.folder().join(name);
    fs::write(&path, bytes).map_err(|error| ExperimentError::io(&path, error))?;
    Ok(path)
}

/// An unknown key, a rate that is none, an end at a node that is not there.
const TOPOLOGY: &str = "name = \"refused\"
nods = 1
[[node]]
name = \"a\"
[[link]]
a = { at = \"a:eth0\", rate = \"1 Gigabit\" }
b = { at = \"b:eth0\" }
";

/// Time limit of a refusal on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);

/// Characters shown of a wrong answer.
const SHOWN_CHARS_MAX: usize = 400;
