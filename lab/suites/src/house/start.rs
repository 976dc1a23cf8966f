// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of a node with many vifs: seconds until it answers, and memory a vif.
//!
//! All tenants' ends are in one namespace, since what is measured is the node.

use std::fmt::Write as _;
use std::time::Instant;

use weir_experiment::build_lab;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;

use crate::node::hostile::memory;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for vifs in VIFS {
        let (mut seconds, mut resident) = (Vec::new(), Vec::new());
        let place = RunFolder::take(LAB, &StateDir::from_env())?;
        let policy = weir_policy::parse(&policy(vifs))
            .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
        let lab = build_lab(&topology(vifs), &place)?;
        for _ in 0..if rec.quick { 1 } else { STARTS } {
            let begun = Instant::now();
            let node = NodeProcess::start(lab.namespace("sw")?, &policy, &place)?;
            seconds.push(begun.elapsed().as_secs_f64());
            resident.push(float(memory(node.pid())?.now));
            node.stop()?;
        }
        lab.down()?;
        for (what, unit, samples) in [("seconds", "s", seconds), ("memory", "byte", resident)] {
            let each = samples.iter().map(|sample| sample / float(vifs)).collect();
            rec.keep(&format!("{vifs}/{what}-a-vif"), Series::unordered(unit, each))?;
            rec.keep(&format!("{vifs}/{what}"), Series::unordered(unit, samples))?;
        }
    }
    let text = "seconds a vif with 512 vifs, by those with 128";
    let rule = Rule::RatioOfMedians;
    let series = ["512/seconds-a-vif", "128/seconds-a-vif"];
    rec.claim("linear", text, rule, Bound::at_most(LINEAR), &series)?;
    let text = "seconds until a node with 128 vifs answers, median";
    rec.claim("128", text, Rule::Median, Bound::at_most(SECONDS_MAX), &["128/seconds"])?;
    let text = "resident memory a vif with 512 vifs, median";
    rec.claim("memory", text, Rule::Median, Bound::at_most(MEMORY_MAX), &["512/memory-a-vif"])
}

fn topology(vifs: u64) -> String {
    let mut text = format!(
        "name = \"{LAB}\"\nnode = [{{ name = \"sw\" }}, {{ name = \"far\" }}]\n\
         [[link]]\na = \"sw:up0\"\nb = \"far:up0\"\n"
    );
    for vif in 0..vifs {
        // Writing to a string does not fail.
        let _ = write!(text, "[[link]]\na = \"sw:v{vif}\"\nb = \"far:v{vif}\"\n");
    }
    text
}

fn policy(vifs: u64) -> String {
    let mut text = format!(
        "version = 1\n[node]\nname = \"{LAB}\"\n[[port]]\nname = \"up0\"\nrate = \"10Gbit\"\n\
         [[slice]]\nname = \"s\"\n"
    );
    for vif in 0..vifs {
        let _ = write!(
            text,
            "[[vif]]\nname = \"v{vif}\"\nslice = \"s\"\nsend = {{ min_rate = \"1Mbit\" }}\n"
        );
    }
    text
}

const LAB: &str = "house-start";

const VIFS: [u64; 3] = [16, 128, 512];

const STARTS: usize = 3;

/// Time a vif may grow by half from 128 to 512 vifs.
const LINEAR: f64 = 1.5;

const SECONDS_MAX: f64 = 2.0;

const MEMORY_MAX: f64 = 2.0 * 1024.0 * 1024.0;
