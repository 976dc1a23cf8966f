// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPLS label paths of the kernel's: static labels that a shell at each router is told.
//!
//! A path is a label on the link behind the entry, another on the one before the exit, and at the
//! entry a route of the destination into the first: what LDP would install of a prefix. The shells
//! are open before and are in the routers' namespaces, without SSH between: whatever manages
//! routers from afar needs longer. Each router is read back.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio};
use std::time::Instant;

use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_experiment::{build_lab, clock};
use weir_platform::StateDir;
use weir_platform::netns::Namespace;
use weir_platform::run::Command;
use weir_traffic::Mac;

use super::measure::{
    AskedPath, ByPort, ChangeOrder, MiddleNode, NODES, PathSetter, limit_links, set_ups, skipped,
    take_frames, use_paths,
};
use crate::em::broker_lab::{EndedChild, NAME, TOPOLOGY, run_at};
use crate::em::tables::entry_mac;

/// Measures it.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    weir_traffic::stop_on_signals()?;
    let place = RunFolder::take(NAME, &StateDir::from_env())?;
    let lab = build_lab(TOPOLOGY, &place)?;
    if run_at("b1", Command::new("sh", ["-ec", PROBE])).is_err() {
        skipped(rec, "MPLS", "this kernel has no mpls_router or no mpls_iptunnel");
        lab.down()?;
        return Ok(());
    }
    for router in NODES {
        run_at(router, Command::new("sh", ["-ec", TAKE_LABELS]))?;
    }
    take_frames()?;
    limit_links(rec)?;
    let [b1, b2, b3, b4] = NODES.map(|router| KeptShell::open(&lab.namespace(router)?));
    let mut setter =
        LabelSetter { entry: b1?, middle: [b2?, b3?], exit: b4?, set_up: ByPort::new() };
    set_ups(rec, &mut setter)?;
    use_paths(rec, &mut setter)?;
    drop(setter);
    lab.down()?;
    Ok(())
}

/// Label paths, each for one port's sake. They are told by destination alone.
struct LabelSetter {
    entry: KeptShell,
    middle: [KeptShell; 2],
    exit: KeptShell,
    set_up: ByPort<MiddleNode>,
}

impl LabelSetter {
    fn over(&self, port: u16) -> Result<MiddleNode> {
        let none = || ExperimentError::Node(format!("no label path of port {port}"));
        self.set_up.get(&port).copied().ok_or_else(none)
    }

    /// Has the labels of a path put at its middle and its exit, at both at the same time.
    fn put_labels(&mut self, port: u16, over: MiddleNode) -> Result {
        let [first, last] = labels(port, over);
        let (b4, number) = match over {
            MiddleNode::B2 => ("fd10:24::2", 0),
            MiddleNode::B3 => ("fd10:34::2", 1),
        };
        let middle = format!("ip -f mpls route replace {first} as {last} via inet6 {b4} dev b4");
        self.middle[number].tell(&read_back(&middle, first))?;
        let exit = format!("ip -f mpls route replace {last} via inet6 fd10:2::2 dev bh2");
        self.exit.tell(&read_back(&exit, last))?;
        self.middle[number].answer()?;
        self.exit.answer()
    }

    fn remove_labels(&mut self, port: u16, over: MiddleNode) -> Result {
        let [first, last] = labels(port, over);
        let number = usize::from(over == MiddleNode::B3);
        self.middle[number].tell(&format!("ip -f mpls route del {first}"))?;
        self.exit.tell(&format!("ip -f mpls route del {last}"))?;
        self.middle[number].answer()?;
        self.exit.answer()
    }

    fn put_entry(&mut self, port: u16, over: MiddleNode) -> Result {
        let [first, _] = labels(port, over);
        let (next, device) = match over {
            MiddleNode::B2 => ("fd10:12::2", "b2"),
            MiddleNode::B3 => ("fd10:13::2", "b3"),
        };
        self.entry.tell(&format!(
            "ip -6 route replace {DESTINATION} encap mpls {first} via inet6 {next} dev {device} && \
             ip -6 route show {DESTINATION} | grep -q 'mpls *{first} '"
        ))?;
        self.entry.answer()
    }
}

impl PathSetter for LabelSetter {
    /// A label path has no rate.
    fn set_up(&mut self, AskedPath { port, over, .. }: AskedPath) -> Result<f64> {
        let begun = Instant::now();
        self.put_labels(port, over)?;
        self.put_entry(port, over)?;
        let took = begun.elapsed().as_secs_f64();
        self.set_up.insert(port, over);
        Ok(took)
    }

    fn move_over(&mut self, port: u16, over: MiddleNode, order: ChangeOrder) -> Result {
        let old = self.over(port)?;
        match order {
            ChangeOrder::MadeFirst => {
                self.put_labels(port, over)?;
                self.put_entry(port, over)?;
                clock::sleep(DRAIN)?;
            }
            ChangeOrder::AllAtOnce => {
                self.put_entry(port, over)?;
                self.put_labels(port, over)?;
            }
        }
        self.set_up.insert(port, over);
        self.remove_labels(port, old)
    }

    fn remove(&mut self, port: u16) -> Result {
        let Some(over) = self.set_up.remove(&port) else { return Ok(()) };
        if self.set_up.is_empty() {
            self.entry.tell(&format!("ip -6 route del {DESTINATION}"))?;
            self.entry.answer()?;
        }
        self.remove_labels(port, over)
    }

    fn left(&self) -> Result<u64> {
        let mut left = run_at("b1", Command::line(&format!("ip -6 route show {DESTINATION}")))?;
        for router in NODES {
            left += &run_at(router, Command::line("ip -f mpls route show"))?;
        }
        Ok(left.lines().count() as u64)
    }

    /// The flood goes where the destination's route goes.
    fn pass(&mut self, _port: u16, _limit: Option<BitRate>) -> Result {
        Ok(())
    }

    /// It limits nothing.
    fn limited(&self, _port: u16) -> Result<u64> {
        Ok(0)
    }

    fn destination_mac(&self) -> Result<Mac> {
        entry_mac()
    }
}

/// Returns the labels behind the entry and before the exit: different ones for each path, so that
/// an old one stays while a new one is made.
fn labels(port: u16, over: MiddleNode) -> [u32; 2] {
    let first = u32::from(port) * 4 + 2 * u32::from(over == MiddleNode::B3);
    [first, first + 1]
}

/// Adds that the route of a label is read, and has to be there.
fn read_back(line: &str, label: u32) -> String {
    format!("{line} && ip -f mpls route show {label} | grep -q '^{label} '")
}

/// A shell in a namespace that stays open.
struct KeptShell {
    _child: EndedChild,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl KeptShell {
    fn open(namespace: &Namespace) -> Result<Self> {
        let mut command = Process::new("sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child: Child = namespace.spawn_service(command)?;
        let none = || ExperimentError::Node("a shell has no input or no output".to_owned());
        let input = child.stdin.take().ok_or_else(none)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(none)?);
        Ok(Self { _child: EndedChild(child), input, output })
    }

    /// Tells it what to run, and does not wait.
    fn tell(&mut self, line: &str) -> Result {
        let written = writeln!(self.input, "{line}; echo $?").and_then(|()| self.input.flush());
        written.map_err(|error| ExperimentError::io("shell", error))
    }

    /// Waits until that has been done.
    fn answer(&mut self) -> Result {
        let mut status = String::new();
        self.output.read_line(&mut status).map_err(|error| ExperimentError::io("shell", error))?;
        match status.trim() {
            "0" => Ok(()),
            other => Err(ExperimentError::Node(format!("a router's shell: status {other}"))),
        }
    }
}

const DESTINATION: &str = "fd10:2::2";

/// Takes a label, and sends into one.
const PROBE: &str = "sysctl -q -w net.mpls.platform_labels=1000
ip -f mpls route add 100 via inet6 fd10:12::2 dev b2
ip -f mpls route del 100
ip -6 route add fd77::1 encap mpls 100 via inet6 fd10:12::2 dev b2
ip -6 route del fd77::1";

const TAKE_LABELS: &str = "sysctl -q -w net.mpls.platform_labels=65536
for conf in /proc/sys/net/mpls/conf/*/input; do echo 1 >$conf; done";

/// Packets under way on the old path still find its labels there.
const DRAIN: Duration = Duration::from_millis(50);
