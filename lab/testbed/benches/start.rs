// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the start of a node with 16, 128 and 512 veths as vifs: the time until it forwards, and
//! the memory that it then has resident. Row 10 of `house` asks for a time that is linear within
//! 1.5 ×, at most 2 s with 128 vifs, and at most 2 MiB for a vif.
//!
//! `WEIR` names the program; by default it is the one beside this bench's folder.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use weir_platform::netns;
use weir_platform::process::{is_root, terminate};
use weir_platform::run::{Command, Host, Platform};

const COUNTS: [usize; 3] = [16, 128, 512];
const REPETITIONS: usize = 3;

fn main() {
    if !is_root() {
        println!("SKIPPED start: needs root for a network namespace");
        return;
    }
    let weir = std::env::var_os("WEIR").map_or_else(beside, PathBuf::from);
    let mut memory = Vec::new();
    for count in COUNTS {
        let starts: Vec<StartMeasurement> = (0..REPETITIONS).map(|_| start(&weir, count)).collect();
        let seconds: Vec<f64> = starts.iter().map(|start| start.ready.as_secs_f64()).collect();
        let at_most = (count == 128).then_some(2.0);
        report(&format!("start: {count} vifs, until it forwards"), "s", &seconds, at_most);
        let resident: Vec<f64> = starts.iter().map(|start| start.resident_mib).collect();
        report(&format!("start: {count} vifs, resident"), "MiB", &resident, None);
        memory.push((count, resident));
    }
    for pair in memory.windows(2) {
        let [(few, least), (many, most)] = pair else { continue };
        let more = u32::try_from(many - few).map_or(f64::NAN, f64::from);
        let each: Vec<f64> = least.iter().zip(most).map(|(a, b)| (b - a) / more).collect();
        let name = format!("start: memory of each vif from {few} to {many}");
        report(&name, "MiB", &each, Some(2.0));
    }
}

/// The time and memory of one start.
struct StartMeasurement {
    ready: Duration,
    resident_mib: f64,
}

/// Starts a node with `count` vifs in a namespace of its own, and ends it.
fn start(weir: &Path, count: usize) -> StartMeasurement {
    let folder = std::env::temp_dir().join(format!("weir-start-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let config = folder.join("policy.toml");
    fs::write(&config, policy(count)).unwrap();
    let measured = netns::in_new(|| {
        let ends = |n: usize| [format!("v{n}"), format!("p{n}")];
        // The last pair is the port's.
        let pairs: Vec<_> = (0..=count).map(ends).collect();
        let make = pairs.iter().map(|[a, b]| format!("link add {a} type veth peer name {b}"));
        let up = pairs.iter().map(|[_, b]| format!("link set {b} up"));
        let batch = Command::batch("ip", make.chain(up)).limit(Duration::from_secs(300));
        Host::default().run(&batch).unwrap();
        let began = Instant::now();
        let mut node = std::process::Command::new(weir)
            .args(["node", "run", "--config"])
            .arg(&config)
            .env("WEIR_STATE", &folder)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(node.stderr.take().unwrap()).lines();
        let forwards = lines.find(|line| line.as_ref().unwrap().contains(" forwards; "));
        let ready = began.elapsed();
        let resident_mib = resident_mib(node.id());
        terminate(&node);
        lines.for_each(drop);
        node.wait().unwrap();
        assert!(forwards.is_some(), "the node did not start");
        StartMeasurement { ready, resident_mib }
    });
    fs::remove_dir_all(&folder).unwrap();
    measured.unwrap()
}

fn policy(count: usize) -> String {
    let vif =
        |n| format!("[[vif]]\nname = \"v{n}\"\ndevice = \"v{n}\"\nport = \"up\"\nslice = \"s\"\n");
    let vifs: String = (0..count).map(vif).collect();
    format!(
        "version = 1\n[node]\nname = \"start\"\nreservation = \"none\"\n[[port]]\nname = \"up\"\n\
         device = \"v{count}\"\nrate = \"10Gbit\"\n[[slice]]\nname = \"s\"\n{vifs}"
    )
}

/// The resident memory of a process. `VmRSS` of `status` may lag behind it by far.
fn resident_mib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

fn beside() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().join("weir")
}

fn report(series: &str, unit: &str, samples: &[f64], at_most: Option<f64>) {
    let line = match at_most {
        Some(at_most) => serde_json::json!({
            "series": series, "unit": unit, "samples": samples, "at_most": at_most
        }),
        None => serde_json::json!({ "series": series, "unit": unit, "samples": samples }),
    };
    println!("{line}");
}
