// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Delay on a link: by netem if the kernel has it. Otherwise the link is cut in two, and a delay
//! line of ours, a process in a namespace of the lab, joins the halves.
//!
//! The process needs no undo of its own: it ends when its namespace is deleted.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use weir_units::Nanos;

use super::delay_line::{DelayedPair, MTU_MAX, READY};
use super::topology::{End, Topology, TopologyLink, TopologyNode};
use weir_platform::doctor;
use weir_platform::error::HostError;
use weir_platform::netns::{self, Namespace};
use weir_platform::process;

/// The means of delaying links on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DelayPlan {
    /// True if netem delays all of them.
    pub(super) netem: bool,
    /// The devices that our delay lines join.
    pub(super) pairs: Vec<DelayedPair>,
}

/// Returns the topology as it is built on this host, and how its links are delayed.
pub(super) fn expand(topology: &Topology) -> (Topology, DelayPlan) {
    let is_delayed = |link: &TopologyLink| link.ends.iter().any(|end| end.delay > Nanos::ZERO);
    if !topology.links.iter().any(is_delayed) {
        return (topology.clone(), DelayPlan::default());
    }
    if doctor::offers_qdisc("netem") {
        return (topology.clone(), DelayPlan { netem: true, pairs: Vec::new() });
    }
    cut(topology, is_delayed)
}

/// Cuts the delayed links in two.
fn cut(topology: &Topology, is_delayed: impl Fn(&TopologyLink) -> bool) -> (Topology, DelayPlan) {
    let mut built = topology.clone();
    let node = built.nodes.len();
    built.nodes.push(TopologyNode {
        name: NODE.to_owned(),
        sysctls: Vec::new(),
        routes: Vec::new(),
    });
    let (delayed, mut links): (Vec<TopologyLink>, Vec<TopologyLink>) =
        built.links.into_iter().partition(is_delayed);
    let mut pairs = Vec::new();
    for (number, TopologyLink { ends: [a, b], mtu, queues }) in delayed.into_iter().enumerate() {
        let devices = ["a", "b"].map(|side| format!("l{number}{side}"));
        pairs.push(DelayedPair { devices: devices.clone(), delays: [a.delay, b.delay] });
        let [inner_a, inner_b] = devices.map(|device| inner(node, device, &a, &b));
        links.push(TopologyLink { ends: [a, inner_a], mtu, queues });
        links.push(TopologyLink { ends: [inner_b, b], mtu, queues });
    }
    built.links = links;
    (built, DelayPlan { netem: false, pairs })
}

/// Makes the end of a half-link at the delay line. Its queue is the longer of the two ends' queues.
fn inner(node: usize, device: String, a: &End, b: &End) -> End {
    End {
        node,
        device,
        mac: None,
        addresses: Vec::new(),
        neighbours: Vec::new(),
        rate: None,
        burst: None,
        queue: a.queue.max(b.queue),
        delay: Nanos::ZERO,
        offloads: a.offloads && b.offloads,
    }
}

/// Starts the delay lines, unless they run already. `program` is `weir-lab lab delay-line` or what
/// stands in its place; the pairs follow as its arguments.
pub(super) fn start(
    topology: &Topology,
    delays: &DelayPlan,
    program: &[OsString],
) -> Result<Option<Child>, HostError> {
    if delays.pairs.is_empty() || is_running(topology, delays) {
        return Ok(None);
    }
    let name = namespace(topology);
    let node = topology.nodes.len() - 1;
    if let Some((link, _)) = topology.ends_of(node).find(|(link, _)| link.mtu > MTU_MAX) {
        let what = format!("a delayed link's mtu is {}; without netem at most {MTU_MAX}", link.mtu);
        return Err(HostError::Refused(what));
    }
    // Lines of another topology, or what is left of a start that was killed.
    process::end_all(&netns::processes_inside(&name)?, PATIENCE)?;
    let inside = Namespace::open(&name)?;
    let (executable, arguments) = program
        .split_first()
        .ok_or_else(|| HostError::Refused("delay line: no program given".to_owned()))?;
    let mut command = std::process::Command::new(executable);
    command.args(arguments).args(delays.pairs.iter().map(DelayedPair::to_string));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
    // It has a process group of its own: an interrupt at the terminal is not meant for it.
    command.process_group(0);
    let mut child = inside.spawn_detached(command)?;
    match is_ready(&mut child) {
        true => Ok(Some(child)),
        false => {
            // It may have ended by itself, so failures here do not matter.
            let _ = child.kill();
            let _ = child.wait();
            let executable = executable.to_string_lossy();
            Err(HostError::Refused(format!("delay line: `{executable}` did not get ready")))
        }
    }
}

/// Returns whether a process with these lines is in their namespace.
pub(super) fn is_running(topology: &Topology, delays: &DelayPlan) -> bool {
    let inside = netns::processes_inside(&namespace(topology)).unwrap_or_default();
    let pairs: Vec<String> = delays.pairs.iter().map(DelayedPair::to_string).collect();
    inside.iter().any(|process| {
        let text = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let words: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
        process.is_alive() && words.ends_with(&pairs.iter().map(String::as_str).collect::<Vec<_>>())
    })
}

/// Reads what the child says until it is ready; false if it ends or takes too long.
fn is_ready(child: &mut Child) -> bool {
    let Some(output) = child.stdout.take() else { return false };
    let (said, heard) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        // The program may print other lines before that one.
        let _ = said.send(lines.take(LINES_MAX).any(|line| line.trim_end().ends_with(READY)));
    });
    heard.recv_timeout(PATIENCE).unwrap_or(false)
}

fn namespace(topology: &Topology) -> String {
    format!("{}-{NODE}", topology.name)
}

/// The node of the delay lines. No node of a topology may have a dot in its name.
const NODE: &str = "delay.line";

/// The time that a line may take to open its devices, and to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most lines that are read before the program is ready.
const LINES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_link_is_cut_in_two_and_the_others_stay() {
        let topology = Topology::parse(
            r#"
            name = "t"
            node = [{ name = "a" }, { name = "b" }]
            [[link]]
            a = { at = "a:eth0", rate = "1Mbit" }
            b = { at = "b:eth0", delay = "3ms" }
            delay = "5ms"
            [[link]]
            a = "a:eth1"
            b = "b:eth1"
            "#,
        )
        .unwrap();
        let is_delayed = |link: &TopologyLink| link.ends[0].delay > Nanos::ZERO;
        let (built, delays) = cut(&topology, is_delayed);
        assert_eq!(delays.pairs[0].to_string(), "l0a,l0b,5ms,3ms");
        let ends = |link: &TopologyLink| {
            let end = |end: &End| format!("{}:{}", built.nodes[end.node].name, end.device);
            format!("{} {}", end(&link.ends[0]), end(&link.ends[1]))
        };
        let links: Vec<String> = built.links.iter().map(ends).collect();
        let expected = ["a:eth1 b:eth1", "a:eth0 delay.line:l0a", "delay.line:l0b b:eth0"];
        assert_eq!(links, expected);
        assert!(built.links[1].ends[0].rate.is_some() && built.links[1].ends[1].rate.is_none());
        assert_eq!(built.nodes.len(), 3);
    }
}
