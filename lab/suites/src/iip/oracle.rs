// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MLRsearch 1.2, the reference implementation, as an oracle: it searches the same fake devices,
//! through a pipe to `lab/scenarios/iip/mlrsearch.py`. Where Python or the package is missing, the
//! figures that it gave are read from `mlrsearch.json`; the devices draw from seeds, so that both
//! are the same, and a test holds them to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};
use weir_experiment::{ExperimentError, Result};
use weir_tester::{FakeDut, Goal};
use weir_units::Nanos;

use super::devices::{MAX_PPS, MIN_PPS};

/// The searches of one kind of device, in the order of their seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OracleFigures {
    /// Throughputs found, packets a second.
    pub found: Vec<f64>,
    /// Time that the trials lasted in sum, s.
    pub seconds: Vec<f64>,
}

/// A running oracle. It ends with this value.
pub(crate) struct MlrSearch {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl MlrSearch {
    /// Starts it with the interpreter that `WEIR_PYTHON` names, or `python3`; `None` where that is
    /// missing or does not have the package.
    pub(crate) fn start() -> Option<Self> {
        let python = std::env::var("WEIR_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().ok()?;
        let (to, from) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut oracle = Self { child, to, from };
        (oracle.line().ok()?.trim() == "ready").then_some(oracle)
    }

    /// Searches a device for a goal. Returns what it found and how long the trials lasted.
    pub(crate) fn search(&mut self, goal: &Goal, dut: &mut FakeDut) -> Result<(f64, f64)> {
        let seconds = |time: Nanos| weir_experiment::float(time.as_nanos()) / 1e9;
        let words = [
            goal.loss.as_float(),
            goal.exceed.as_float(),
            goal.width.as_float(),
            seconds(goal.trial),
            seconds(goal.sum),
            weir_experiment::float(MIN_PPS),
            weir_experiment::float(MAX_PPS),
        ]
        .map(|word| word.to_string());
        self.say(&words.join(" "))?;
        let mut spent = 0.0;
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["measure", time, pps] => {
                    let (time, pps) = (number(time)?, number(pps)?);
                    spent += time;
                    let duration = Nanos::new(whole(time * 1e9));
                    let outcome = dut.measure(whole(pps), duration);
                    let outcome = outcome.map_err(|error| told(&error.to_string()))?;
                    self.say(&format!("{} {}", outcome.offered, outcome.forwarded))?;
                }
                ["found", pps] => return Ok((number(pps)?, spent)),
                _ => return Err(told(&format!("MLRsearch said {line:?}"))),
            }
        }
    }

    fn say(&mut self, line: &str) -> Result {
        let sent = writeln!(self.to, "{line}").and_then(|()| self.to.flush());
        sent.map_err(|error| ExperimentError::io(NAME, error))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line);
        match read.map_err(|error| ExperimentError::io(NAME, error))? {
            0 => Err(told("MLRsearch ended early")),
            _ => Ok(line),
        }
    }
}

impl Drop for MlrSearch {
    fn drop(&mut self) {
        // One that has ended already is all the better.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The figures that were recorded, by the name of the device.
pub fn recorded() -> Result<BTreeMap<String, OracleFigures>> {
    let text = include_str!("../../../scenarios/iip/mlrsearch.json");
    serde_json::from_str(text).map_err(|error| told(&format!("mlrsearch.json: {error}")))
}

fn number(word: &str) -> Result<f64> {
    word.parse().map_err(|_| told(&format!("MLRsearch said {word:?} for a number")))
}

/// The nearest whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and times of a search are not negative, and a cast saturates"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

fn told(what: &str) -> ExperimentError {
    ExperimentError::Node(what.to_owned())
}

const SCRIPT: &str = include_str!("../../../scenarios/iip/mlrsearch.py");
const NAME: &str = "the pipe to MLRsearch";
