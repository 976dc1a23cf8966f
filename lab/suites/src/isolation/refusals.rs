// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mistakes of an operator, made with the program itself: each is refused with a text that names
//! the thing, the value and the bound, and the host stays unchanged.

use std::fs;
use std::path::Path;

use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_experiment::weir_program::WeirProgram;
use weir_platform::run::{Command, Host, Platform};
use weir_testbed::Lab;

use super::broken_policies::POLICIES;
use super::leftovers::HostBefore;

/// A command line that is wrong, and what must be in the answer.
struct WrongCommand<'a> {
    words: Vec<&'a str>,
    says: Vec<&'a str>,
}

/// Shows the part: in the switch node of `lab`, whose devices are there.
pub(super) fn show(
    rec: &mut Recording<'_>,
    star: &StarTopology,
    lab: &Lab,
    place: &RunFolder,
) -> Result<(), ExperimentError> {
    // More than the 1504 that a frame of the pool has room for.
    let grown = Command::line("ip link set dev t1 mtu 1600").in_namespace(&star.namespace("sw"));
    Host::default().run(&grown)?;
    let program = WeirProgram::new(lab.namespace("sw")?, place.folder())?;
    let before = HostBefore::of(&program, &star.name)?;
    policies(rec, &program)?;
    devices(rec, &program)?;
    commands(rec, &program)?;
    let left = before.left()?;
    for line in &left {
        rec.say(&format!("changed: {line}"));
    }
    let name = "refused/changes";
    rec.keep(name, Series::count("1", left.len() as u64))?;
    let text = "changes of the host by what was refused";
    rec.claim("refused/nothing", text, Rule::Sum, Bound::equal(0.0), &[name])
}

/// Policies that do not stand, run and as a dry run.
fn policies(rec: &mut Recording<'_>, program: &WeirProgram) -> Result<(), ExperimentError> {
    let mut verdicts = Vec::new();
    for (name, text, says) in POLICIES {
        let path = program.folder().join(format!("{name}.toml"));
        write(&path, text.as_bytes())?;
        let file = path.to_string_lossy();
        for more in [&[][..], &["--dry-run"]] {
            let words = [&["node", "run", "--config", &file], more].concat();
            let wrong = WrongCommand { words, says: says.to_vec() };
            verdicts.push(wrong.verdict(rec, program)?);
        }
    }
    judge(rec, "policies", verdicts)
}

/// Sound policies for devices that cannot be taken, or a port that is not there. A vif's device
/// that is not there is waited for.
fn devices(rec: &mut Recording<'_>, program: &WeirProgram) -> Result<(), ExperimentError> {
    let cases: [(&str, &str, &str, &[&str]); 3] = [
        ("no-port", "nothere", "t0", &["device nothere", "none"]),
        ("too-large", "up0", "t1", &["device t1", "mtu 1600", "1504"]),
        ("loopback", "up0", "lo", &["device lo"]),
    ];
    let mut verdicts = Vec::new();
    for (name, port, vif, says) in cases {
        let path = program.folder().join(format!("{name}.toml"));
        let text = format!(
            "version = 1\n[node]\nname = \"refused\"\n[[port]]\nname = \"{port}\"\n\
             rate = \"100Mbit\"\n[[slice]]\nname = \"s\"\n\
             [[vif]]\nname = \"{vif}\"\nslice = \"s\"\n"
        );
        write(&path, text.as_bytes())?;
        let file = path.to_string_lossy();
        for more in [&[][..], &["--dry-run"]] {
            let words = [&["node", "run", "--config", &file], more].concat();
            verdicts.push(WrongCommand { words, says: says.to_vec() }.verdict(rec, program)?);
        }
    }
    judge(rec, "devices", verdicts)
}

/// Command lines and files that are not what they should be.
fn commands(rec: &mut Recording<'_>, program: &WeirProgram) -> Result<(), ExperimentError> {
    let path = |name: &str| program.folder().join(name);
    let topology = path("topology.toml");
    write(&topology, TOPOLOGY.as_bytes())?;
    let huge = path("huge.toml");
    let made = fs::File::create(&huge).and_then(|file| file.set_len(100 << 20));
    made.map_err(|error| ExperimentError::io(&huge, error))?;
    let noise = path("noise.toml");
    write(&noise, &[0x80, 0xff, 0x00, 0x1b])?;
    let texts: Vec<String> = [topology, huge, noise, path("nothere.toml"), path("")]
        .iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let [topology, huge, noise, missing, folder] = &texts[..] else { return Ok(()) };
    let mut cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec!["lab", "up", topology], vec![topology, "line 2", "\"1 Gigabit\"", "nods"]),
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
        verdicts.push(WrongCommand { words, says }.verdict(rec, program)?);
    }
    judge(rec, "commands", verdicts)
}

impl WrongCommand<'_> {
    /// 0 if it was refused as it should be, else 1, and says why.
    fn verdict(
        &self,
        rec: &mut Recording<'_>,
        program: &WeirProgram,
    ) -> Result<f64, ExperimentError> {
        let ended = program.run(&self.words, LIMIT)?;
        let missing = self.says.iter().find(|text| !ended.said.contains(**text));
        if ended.is_refusal() && missing.is_none() {
            return Ok(0.0);
        }
        let words = self.words.join(" ");
        let said: String = ended.said.chars().take(SHOWN_CHARS_MAX).collect();
        rec.say(&format!("weir {words}: {:?}, without {missing:?}: {said}", ended.status));
        Ok(1.0)
    }
}

fn judge(rec: &mut Recording<'_>, part: &str, verdicts: Vec<f64>) -> Result<(), ExperimentError> {
    let name = format!("refused/{part}/each");
    let text = format!("{} {part}, not refused as they should be", verdicts.len());
    rec.keep(&name, Series::unordered("1", verdicts))?;
    let id = format!("refused/{part}");
    rec.claim(id, text, Rule::Sum, Bound::equal(0.0), &[name])
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ExperimentError> {
    fs::write(path, bytes).map_err(|error| ExperimentError::io(path, error))
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
