// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text's node in namespaces: a source and a sink, a switch node between them, three guests.
//!
//! ```text
//!   src ── eth0──in0 ┐            ┌ up0──eth0 ── sink
//!                    │     sw     │
//!    guest ── in──i0 ┴            ┴ o0──out ── guest     (i1, o1; i2, o2)
//! ```
//!
//! In `sw` runs a node with two ports and, for each parallel internet, a slice with a vif towards
//! its guest and one from it. *Native* there is a kernel bridge of `in0` and `up0` instead, and the
//! guests have nothing to do.

use weir_experiment::lab_process::LabProcess;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_experiment::{build_lab, clock, provide_frames, wait_until_forwarding};
use weir_platform::StateDir;
use weir_platform::autogroup::SessionPriority;
use weir_platform::netns::Namespace;
use weir_platform::run::{Command, Host, Platform};
use weir_policy::{Idle, Layer, MacAddr, PortCycle, Reservation, Slice, Vif};
use weir_testbed::Lab;

use super::counts::GuestCounts;
use super::hop::HopKind;
use super::internet::ParallelInternet;
use super::process::NICE;
use super::threads::GuestThreads;

/// The forwarder between source and sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabMiddle {
    /// The kernel's bridge alone.
    Native,
    /// A node and the guests, which hand packets on in this way; with `cycle` the node sends in
    /// phases of 100 µs.
    Node {
        /// The way in which guests hand packets on.
        hop: HopKind,
        /// True if there are phases.
        cycle: bool,
    },
}

/// The lab, up. It is gone with this value.
#[derive(Debug)]
pub(crate) struct GuestLab {
    name: String,
    middle: LabMiddle,
    // In the order in which they go: the node hands its devices back before they go.
    guests: Vec<RunningGuest>,
    node: Option<NodeProcess>,
    lab: Lab,
    _place: RunFolder,
    /// Guests share a processor with the node's worker, whose session has this priority: else they
    /// would wait for it, and forward half as much.
    _priority: Option<SessionPriority>,
}

/// A guest's process.
#[derive(Debug)]
pub(super) struct RunningGuest {
    process: LabProcess,
    pub(super) threads: GuestThreads,
}

/// The ends of the way of a parallel internet's frames.
#[derive(Clone, Copy, Debug)]
pub(super) enum LabEnd {
    Source,
    GuestIn,
    GuestOut,
    Sink,
}

impl GuestLab {
    /// Builds it. Leftovers of an earlier run of the same name are undone first. Call it from a
    /// thread that lives as long as the lab should.
    pub(crate) fn up(name: &str, middle: LabMiddle) -> Result<Self> {
        if !weir_platform::process::is_root() {
            let (what, needs) = (format!("lab {name}"), "root".to_owned());
            return Err(ExperimentError::Missing { what, needs });
        }
        // From here on a signal ends the run, which takes down what was built.
        weir_traffic::stop_on_signals()?;
        let priority = SessionPriority::raise_shared(NICE)
            .map_err(|error| ExperimentError::io("the session's priority", error))?;
        let place = RunFolder::take(name, &StateDir::from_env())?;
        let lab = build_lab(&topology(name, middle), &place)?;
        for (node, device) in receiving() {
            // A veth takes redirected frames where there is GRO behind it.
            let command = Command::new("ethtool", ["-K", device.as_str(), "gro", "on"]);
            Host::default().run(&command.in_namespace(&format!("{name}-{node}")))?;
        }
        let node = match middle {
            LabMiddle::Native => {
                wait_until_forwarding(&format!("{name}-sw"), 2)?;
                None
            }
            LabMiddle::Node { cycle, .. } => {
                let policy = policy(name, cycle);
                Some(NodeProcess::start(lab.namespace("sw")?, &policy, &place)?)
            }
        };
        let name = name.to_owned();
        let guests = Vec::new();
        Ok(Self { name, middle, guests, node, lab, _place: place, _priority: priority })
    }

    /// Takes everything down.
    pub(crate) fn down(mut self) -> Result {
        self.stop_guests()?;
        let stopped = self.node.take().map_or(Ok(()), NodeProcess::stop);
        self.lab.down()?;
        stopped
    }

    /// Starts the guests anew.
    pub(crate) fn restart_guests(&mut self) -> Result {
        self.stop_guests()?;
        if let LabMiddle::Node { hop, .. } = self.middle {
            for internet in ParallelInternet::ALL {
                let namespace = self.lab.namespace(internet.key())?;
                self.guests.push(RunningGuest::start(&namespace, internet, hop)?);
            }
        }
        Ok(())
    }

    fn stop_guests(&mut self) -> Result {
        self.guests.drain(..).try_for_each(RunningGuest::stop)
    }

    /// The guests that run, in the order of [`ParallelInternet::ALL`].
    pub(super) fn guests(&self) -> &[RunningGuest] {
        &self.guests
    }

    /// The namespace of a node of the lab.
    pub(super) fn namespace_of(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// The address that the source sends an internet's frames to.
    pub(super) fn target(&self, internet: ParallelInternet) -> MacAddr {
        match self.middle {
            LabMiddle::Native | LabMiddle::Node { hop: HopKind::Bridge, .. } => {
                mac(internet, LabEnd::Sink)
            }
            LabMiddle::Node { .. } => mac(internet, LabEnd::GuestIn),
        }
    }

    /// Sends a frame of each internet from the sink, so that bridges know where it is.
    pub(super) fn announce(&self) -> Result {
        let frame = |internet: ParallelInternet| {
            let mut frame = vec![0xff; 6];
            frame.extend(mac(internet, LabEnd::Sink).0);
            frame.extend([0x88, 0xb5, internet.number()]);
            // The configuration test protocol: nothing acts on it.
            frame.extend([0x90, 0x00]);
            frame.resize(FRAME_MIN, 0);
            frame
        };
        let frames = ParallelInternet::ALL.map(frame);
        weir_traffic::send_raw(&self.namespace_of("dst"), "eth0", &frames)?;
        Ok(())
    }
}

impl RunningGuest {
    fn start(namespace: &Namespace, internet: ParallelInternet, hop: HopKind) -> Result<Self> {
        let [own, next] =
            [LabEnd::GuestOut, LabEnd::Sink].map(|end| mac(internet, end).to_string());
        let arguments = ["--hop", hop.name(), internet.key(), "in", "out", &own, &next];
        let arguments = arguments.map(str::to_owned);
        let mut process = LabProcess::start_piped("guest", arguments, namespace)?;
        let threads = clock::wait_for(PATIENCE, POLL, || {
            let ended = process.has_ended();
            let threads = GuestThreads::of(process.id());
            // A thread that waits has its device.
            let waits = |threads: &GuestThreads| {
                threads.read().is_ok_and(|both| both.iter().all(|thread| thread.wakeups > 0))
            };
            let ready = threads.filter(waits);
            Ok((ended || ready.is_some()).then_some(ready))
        })?;
        let late = || ExperimentError::Node(format!("the guest {} did not start", internet.key()));
        Ok(Self { threads: threads.flatten().ok_or_else(late)?, process })
    }

    /// Ends it. Fails if it had failed before, and so has no counts.
    fn stop(self) -> Result {
        let counts = serde_json::from_slice::<GuestCounts>(&self.process.stop()?);
        let wrong = |error| ExperimentError::Node(format!("the counts of a guest: {error}"));
        counts.map(drop).map_err(wrong)
    }
}

/// The document that the lab reads.
fn topology(name: &str, middle: LabMiddle) -> String {
    let nodes = ["src", "sw", "dst"].into_iter().chain(ParallelInternet::ALL.map(|one| one.key()));
    let nodes = nodes.map(|node| format!("[[node]]\nname = \"{node}\"\n"));
    let link = |a: String, b: String| {
        format!("[[link]]\noffloads = false\na = {{ at = \"{a}\" }}\nb = {{ at = \"{b}\" }}\n")
    };
    let mut links = vec![
        link("src:eth0".to_owned(), "sw:in0".to_owned()),
        link("sw:up0".to_owned(), "dst:eth0".to_owned()),
    ];
    for internet in ParallelInternet::ALL {
        for (inside, outside) in [("in", 'i'), ("out", 'o')] {
            let at = format!("{}:{inside}", internet.key());
            links.push(link(at, format!("sw:{outside}{}", internet.index())));
        }
    }
    let bridge = match middle {
        LabMiddle::Native => {
            "[[bridge]]\nnode = \"sw\"\nname = \"br0\"\nmembers = [\"in0\", \"up0\"]\n"
        }
        LabMiddle::Node { .. } => "",
    };
    let text = nodes.chain(links).collect::<String>();
    format!("name = \"{name}\"\n{text}{bridge}")
}

/// The devices that frames are redirected towards.
fn receiving() -> Vec<(&'static str, String)> {
    let mut ends = vec![("sw", "in0".to_owned()), ("dst", "eth0".to_owned())];
    for internet in ParallelInternet::ALL {
        ends.push((internet.key(), "in".to_owned()));
        ends.push(("sw", format!("o{}", internet.index())));
    }
    ends
}

/// The node's policy: a slice for each internet, told apart by its header.
fn policy(name: &str, cycle: bool) -> Policy {
    let mut policy = Policy::new(name);
    // Not a real-time thread: it would take from the guests, which share its processor, the time
    // to forward what it brings them, and past saturation hardly a frame would arrive.
    (policy.node.idle, policy.node.reservation) = (Idle::Sleep, Reservation::Pinned);
    let input = policy.add_port(weir_policy::Port::new("in0", LINK));
    let mut port = weir_policy::Port::new("up0", LINK);
    if cycle {
        (port.layer, port.catch_up) = (Layer::L1, PHASE);
        let phases = ParallelInternet::ALL.len() as u64;
        let length = Nanos::new(PHASE.as_nanos() * phases);
        port.cycle = Some(PortCycle { length, borrow: false });
    }
    let output = policy.add_port(port);
    for internet in ParallelInternet::ALL {
        let mut slice = Slice::new(internet.key());
        slice.pih = Some(internet.number());
        slice.phase = cycle.then_some(PHASE);
        let slice = policy.add_slice(slice);
        let ways = [
            ('i', input, [LabEnd::Sink, LabEnd::GuestIn]),
            ('o', output, [LabEnd::Source, LabEnd::GuestOut]),
        ];
        for (letter, port, behind) in ways {
            let mut vif = Vif::new(&format!("{letter}{}", internet.index()), slice, port);
            vif.macs = behind.map(|end| mac(internet, end)).to_vec();
            vif.send_queue.packets = QUEUE_PACKETS;
            vif.receive_queue.packets = QUEUE_PACKETS;
            policy.add_vif(vif);
        }
    }
    provide_frames(&mut policy);
    policy
}

/// The address of an end of an internet's way.
pub(super) const fn mac(internet: ParallelInternet, end: LabEnd) -> MacAddr {
    MacAddr([0x02, 0, 0, 3, internet.number(), end as u8 + 1])
}

/// The node's queues are short, so that a guest beyond its throughput delays little: the text's
/// grew to seconds.
const QUEUE_PACKETS: u32 = 32;
/// The text's link.
const LINK: BitRate = BitRate::from_mbps(1_000);
/// The text's phase.
const PHASE: Nanos = Nanos::from_micros(100);
const FRAME_MIN: usize = 60;
/// The longest wait for a guest.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use weir_testbed::Topology;

    use super::*;

    #[test]
    fn topology_and_policy_are_sound() {
        for cycle in [false, true] {
            let middle = LabMiddle::Node { hop: HopKind::Bridge, cycle };
            assert!(Topology::parse(&topology("guests", middle)).is_ok());
            let text = policy("guests", cycle).to_toml();
            assert!(weir_policy::parse(&text).is_ok(), "{text}");
        }
        assert!(Topology::parse(&topology("guests", LabMiddle::Native)).is_ok());
    }
}
