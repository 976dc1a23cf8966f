// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir set | show | diff | undo`: a running node's policy, read and changed live.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;
use weir_api_types::change::{
    Aqm, ChangeView, EditView, GroupChange, LimitShaper, NewSlice, NewVif, QueueChange,
    RouterChange, ShareChange, UndoRequest, VifChange, VifQueueKind, VifShareChange,
};
use weir_api_types::error::ErrorCode;
use weir_api_types::packet_match::PacketMatch;
use weir_client::{Client, ClientError, Method, escaped};
use weir_platform::output;
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

use crate::node::NodeName;
use crate::realtime::RealtimeArgs;
use weir_platform::failure::{Failure, UsageError};

/// Change a running node: between two packets, on record, for good until it is taken back.
#[derive(Debug, Subcommand)]
pub(crate) enum Set {
    /// A vif
    Vif {
        /// Its name
        name: String,
        #[command(flatten)]
        share: ShareArgs,
        /// Bound on the queueing delay of what it sends within its guarantee; 0ns: none
        #[arg(long)]
        delay: Option<Nanos>,
        #[command(flatten)]
        shaper: ShaperArgs,
        #[command(flatten)]
        queue: QueueArgs,
    },
    /// A slice
    Slice {
        /// Its name
        name: String,
        #[command(flatten)]
        share: ShareArgs,
        /// Its phase of the cycle of each port that has one, such as 130us; 0ns: none
        #[arg(long)]
        phase: Option<Nanos>,
    },
    /// A router
    Router {
        /// Its name
        name: String,
        #[command(flatten)]
        share: ShareArgs,
        #[command(flatten)]
        class: RealtimeArgs,
    },
}

/// Add a vif or slice to a running node: no other vif loses a packet.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one for each command that is run")]
pub(crate) enum Add {
    /// A vif
    Vif {
        /// Its name
        name: String,
        /// The slice that it belongs to
        #[arg(long)]
        slice: String,
        /// Port to attach to [default: the only one]
        #[arg(long)]
        port: Option<String>,
        /// The router that it belongs to
        #[arg(long)]
        router: Option<String>,
        /// Linux device [default: the vif's name]; may appear later
        #[arg(long)]
        device: Option<String>,
        /// Driver of the device: auto, xdp, packet, tap
        #[arg(long)]
        kind: Option<String>,
        /// A source address that it may use; may be repeated; without any, all
        #[arg(long)]
        mac: Vec<String>,
        /// An IP address that it may use; may be repeated; without any, all
        #[arg(long)]
        address: Vec<String>,
        #[command(flatten)]
        share: ShareArgs,
        #[command(flatten)]
        shaper: ShaperArgs,
        #[command(flatten)]
        queue: QueueArgs,
    },
    /// A slice, without vifs at first
    Slice {
        /// Its name
        name: String,
        /// VLAN that its frames carry on every port
        #[arg(long)]
        vlan: Option<u16>,
        /// Number of the parallel internet that it is
        #[arg(long)]
        pih: Option<u8>,
        /// Packets without a header that are its own, such as protocol=udp,dst=10.0.0.0/8; also
        /// `src`, `src_port` and `dst_port`, and more than once
        #[arg(long = "match", value_name = "CONDITIONS")]
        matches: Vec<PacketMatch>,
        /// Its phase of the cycle of each port that has one, such as 130us
        #[arg(long)]
        phase: Option<Nanos>,
        #[command(flatten)]
        share: ShareArgs,
    },
}

/// Take something out of a running node: what it had queued is lost, and counted.
#[derive(Debug, Subcommand)]
pub(crate) enum Remove {
    /// A vif
    Vif {
        /// Its name
        name: String,
        #[command(flatten)]
        view: AnswerArgs,
    },
    /// A slice; its vifs go first
    Slice {
        /// Its name
        name: String,
        #[command(flatten)]
        view: AnswerArgs,
    },
}

/// Change of one direction; options that are left out stay as they are.
#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// Change what it receives; without this option, what it sends
    #[arg(long)]
    receive: bool,
    /// Share of what is left beyond the guarantees
    #[arg(long)]
    priority: Option<u32>,
    /// Guaranteed rate, such as 30Mbit
    #[arg(long)]
    min_rate: Option<BitRate>,
    /// Upper limit, such as 100Mbit; 0bit: none
    #[arg(long)]
    rate: Option<BitRate>,
    /// Guaranteed packets a second, such as 20kpps
    #[arg(long)]
    min_pps: Option<PacketRate>,
    /// Upper limit of packets a second; 0pps: none
    #[arg(long)]
    max_pps: Option<PacketRate>,
    /// Bytes by which the limit may be exceeded at once, such as 64KiB; 0B: derive them from it
    #[arg(long)]
    burst: Option<ByteCount>,
    /// Packets by which their limit may be exceeded at once; 0: derive them from it
    #[arg(long)]
    burst_packets: Option<u32>,
    #[command(flatten)]
    view: AnswerArgs,
}

/// How the upper limit of one direction is held; what is left out stays.
#[derive(Debug, Args)]
pub(crate) struct ShaperArgs {
    /// bucket: a token bucket; smooth: a window of delay that keeps the delay even
    #[arg(long, value_parser = shaper_kind)]
    shaper: Option<LimitShaper>,
    /// Time by which packets may leave ahead of the rate through a smooth window
    #[arg(long)]
    credit: Option<Nanos>,
    /// Width of a smooth window
    #[arg(long)]
    width: Option<Nanos>,
    /// Time after which a smooth window may move
    #[arg(long)]
    interval: Option<Nanos>,
    /// Largest delay at which a smooth window may begin
    #[arg(long)]
    delay_max: Option<Nanos>,
}

/// How the packets of one direction wait; what is left out stays.
#[derive(Debug, Default, Args)]
pub(crate) struct QueueArgs {
    /// flows: a queue for each flow; fifo: one in order of arrival; default: what the policy gives
    #[arg(long, value_parser = queue_kind)]
    queue: Option<DefaultOr<VifQueueKind>>,
    /// Active queue management: none, codel, lan (for peers that are near), or default
    #[arg(long, value_parser = aqm)]
    aqm: Option<DefaultOr<Aqm>>,
    /// Standing delay that CoDel tolerates; 0ns: the default
    #[arg(long)]
    target: Option<Nanos>,
    /// Time within which the delay must fall below the target once; 0ns: the default
    #[arg(long)]
    aqm_interval: Option<Nanos>,
    /// Mark packets that can carry ECN instead of dropping them
    #[arg(long)]
    ecn: Option<bool>,
    /// With flows: delay above which packets of L4S senders are marked; 0ns: never
    #[arg(long)]
    l4s: Option<Nanos>,
    /// Bound of the queue in packets; 0: the default
    #[arg(long)]
    queue_packets: Option<u32>,
    /// Bound of the queue in bytes; 0B: the default
    #[arg(long)]
    queue_bytes: Option<ByteCount>,
}

/// A value, or the default of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultOr<T> {
    Default,
    Value(T),
}

/// The node that is asked, and the form of its answer.
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    node: NodeName,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the policy in force, with its live edits, or one vif.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A vif's name
    vif: Option<String>,
    #[command(flatten)]
    view: AnswerArgs,
}

/// Print the live edits on top of the policy file.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    view: AnswerArgs,
}

/// Take a change back.
#[derive(Debug, Args)]
pub(crate) struct UndoCommand {
    /// Its number; without it, the newest that was not taken back
    id: Option<u64>,
    #[command(flatten)]
    view: AnswerArgs,
}

impl Set {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Vif { name, share, delay, shaper, queue } => {
                let (send, receive) = share.sides(share.of_vif(&shaper, &queue)?);
                let delay_ns = delay.map(|delay| or_none(delay.as_nanos()));
                let change = VifChange { send, receive, delay_ns, ..VifChange::default() };
                share.view.change(Method::PATCH, &format!("/v1/vifs/{}", escaped(&name)), &change)
            }
            Self::Slice { name, share, phase } => {
                let (send, receive) = share.sides(share.values());
                let path = format!("/v1/slices/{}", escaped(&name));
                let phase_ns = phase.map(|phase| or_none(phase.as_nanos()));
                share.view.change(Method::PATCH, &path, &GroupChange { send, receive, phase_ns })
            }
            Self::Router { name, share, class } => {
                let (send, receive) = share.sides(share.values());
                let path = format!("/v1/routers/{}", escaped(&name));
                let realtime = class.change();
                let change = RouterChange { send, receive, realtime, ..RouterChange::default() };
                share.view.change(Method::PATCH, &path, &change)
            }
        }
    }
}

impl Add {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Vif {
                name,
                slice,
                port,
                router,
                device,
                kind,
                mac,
                address: addresses,
                share,
                shaper,
                queue,
            } => {
                let of = share.of_vif(&shaper, &queue)?;
                let (send, receive) = share.given_sides(of);
                let new = NewVif {
                    name,
                    slice,
                    port,
                    router,
                    device,
                    kind,
                    mac,
                    addresses,
                    send,
                    receive,
                };
                share.view.change(Method::POST, "/v1/vifs", &new)
            }
            Self::Slice { name, vlan, pih, matches, phase, share } => {
                let (send, receive) = share.given_sides(share.values());
                let phase_ns = phase.map(Nanos::as_nanos);
                let new = NewSlice { name, vlan, pih, matches, phase_ns, send, receive };
                share.view.change(Method::POST, "/v1/slices", &new)
            }
        }
    }
}

impl Remove {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (table, name, view) = match self {
            Self::Vif { name, view } => ("vifs", name, view),
            Self::Slice { name, view } => ("slices", name, view),
        };
        let path = format!("/v1/{table}/{}", escaped(&name));
        let made: ChangeView = view.node.client()?.ask(Method::DELETE, &path, None::<&()>)?;
        view.print(&made)
    }
}

impl Show {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let client = self.view.node.client()?;
        match (&self.vif, self.view.json) {
            (None, false) => match client.text("/v1/document") {
                Ok(document) => output::print(&document)?,
                // Only the operator may see the file; a tenant sees the policy that holds for it.
                Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::Forbidden => {
                    output::print_json(&client.get::<Value>("/v1/policy")?)?;
                }
                Err(error) => return Err(error.into()),
            },
            (None, true) => output::print_json(&client.get::<Value>("/v1/policy")?)?,
            (Some(vif), _) => {
                let path = format!("/v1/vifs/{}", escaped(vif));
                output::print_json(&client.get::<Value>(&path)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Diff {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let edits: Vec<EditView> = self.view.node.client()?.get("/v1/overlay")?;
        if self.view.json {
            output::print_json(&edits)?;
        } else {
            output::print(&lines(&edits))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl UndoCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        self.view.change(Method::POST, "/v1/undo", &UndoRequest { id: self.id })
    }
}

impl ShareArgs {
    fn values(&self) -> ShareChange {
        ShareChange {
            priority: self.priority.map(Some),
            min_rate_bps: self.min_rate.map(|rate| Some(rate.as_bps())),
            rate_bps: self.rate.map(|rate| or_none(rate.as_bps())),
            min_pps: self.min_pps.map(|pps| Some(pps.as_pps())),
            max_pps: self.max_pps.map(|pps| or_none(pps.as_pps())),
            burst_bytes: self.burst.map(|burst| or_none(burst.get())),
            burst_packets: self.burst_packets.map(or_none),
        }
    }

    fn of_vif(&self, shaper: &ShaperArgs, queue: &QueueArgs) -> Result<VifShareChange, UsageError> {
        shaper.check()?;
        let values = self.values();
        let time = |time: Option<Nanos>| time.map(|time| Some(time.as_nanos()));
        // Without a smooth window, its keys are removed too.
        let bucket = shaper.shaper == Some(LimitShaper::Bucket);
        let window = |given| if bucket { Some(None) } else { time(given) };
        Ok(VifShareChange {
            priority: values.priority,
            min_rate_bps: values.min_rate_bps,
            rate_bps: values.rate_bps,
            min_pps: values.min_pps,
            max_pps: values.max_pps,
            burst_bytes: values.burst_bytes,
            burst_packets: values.burst_packets,
            shaper: shaper.shaper.map(Some),
            credit_ns: window(shaper.credit),
            width_ns: window(shaper.width),
            interval_ns: window(shaper.interval),
            delay_max_ns: window(shaper.delay_max),
            queue: Some(queue.values()).filter(|queue| *queue != QueueChange::default()),
        })
    }

    /// Puts a change on the side that `receive` selects, unless it changes nothing. Returns the
    /// changes of (send, receive).
    fn given_sides<T: Default + PartialEq>(&self, of: T) -> (Option<T>, Option<T>) {
        let (send, receive) = self.sides(Some(of).filter(|of| *of != T::default()));
        (send.flatten(), receive.flatten())
    }

    /// Puts a change on the side that `receive` selects; the other side has none.
    fn sides<T>(&self, of: T) -> (Option<T>, Option<T>) {
        if self.receive { (None, Some(of)) } else { (Some(of), None) }
    }
}

impl ShaperArgs {
    /// Refuses options of a smooth window together with a token bucket, which would ignore them.
    fn check(&self) -> Result<(), UsageError> {
        let Self { shaper, credit, width, interval, delay_max } = self;
        let window = [
            ("--credit", credit),
            ("--width", width),
            ("--interval", interval),
            ("--delay-max", delay_max),
        ];
        match window.iter().find(|(_, given)| given.is_some()) {
            Some((option, _)) if *shaper == Some(LimitShaper::Bucket) => {
                Err(UsageError(format!("{option} is of --shaper smooth, not of --shaper bucket")))
            }
            _ => Ok(()),
        }
    }
}

impl QueueArgs {
    fn values(&self) -> QueueChange {
        let time = |time: Option<Nanos>| time.map(|time| or_none(time.as_nanos()));
        QueueChange {
            kind: self.queue.map(DefaultOr::given),
            aqm: self.aqm.map(DefaultOr::given),
            target_ns: time(self.target),
            interval_ns: time(self.aqm_interval),
            ecn: self.ecn.map(Some),
            l4s_ns: time(self.l4s),
            packets: self.queue_packets.map(|packets| Some(packets).filter(|count| *count > 0)),
            bytes: self.queue_bytes.map(|bytes| or_none(bytes.get())),
        }
    }
}

impl<T> DefaultOr<T> {
    fn given(self) -> Option<T> {
        match self {
            Self::Default => None,
            Self::Value(value) => Some(value),
        }
    }
}

fn queue_kind(text: &str) -> Result<DefaultOr<VifQueueKind>, String> {
    match text {
        "fifo" => Ok(DefaultOr::Value(VifQueueKind::Fifo)),
        "flows" => Ok(DefaultOr::Value(VifQueueKind::Flows)),
        "default" => Ok(DefaultOr::Default),
        _ => Err("must be fifo, flows or default".to_owned()),
    }
}

fn aqm(text: &str) -> Result<DefaultOr<Aqm>, String> {
    match text {
        "none" => Ok(DefaultOr::Value(Aqm::None)),
        "codel" => Ok(DefaultOr::Value(Aqm::Codel)),
        "lan" => Ok(DefaultOr::Value(Aqm::Lan)),
        "default" => Ok(DefaultOr::Default),
        _ => Err("must be none, codel, lan or default".to_owned()),
    }
}

fn shaper_kind(text: &str) -> Result<LimitShaper, String> {
    match text {
        "bucket" => Ok(LimitShaper::Bucket),
        "smooth" => Ok(LimitShaper::Smooth),
        _ => Err("must be bucket or smooth".to_owned()),
    }
}

impl AnswerArgs {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.node.client()
    }

    pub(crate) fn change(
        &self,
        method: Method,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<ExitCode, Failure> {
        self.print(&self.node.client()?.ask(method, path, Some(body))?)
    }

    fn print(&self, made: &ChangeView) -> Result<ExitCode, Failure> {
        if self.json {
            output::print_json(made)?;
        } else {
            output::print(&format!("change {}\n{}", made.id, lines(&made.edits)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a line for each edit, such as `vif gold.0 send.min_rate: "20Mbit" -> "30Mbit"`.
pub(crate) fn lines(edits: &[EditView]) -> String {
    let shown = |value: &Value| match value {
        Value::Null => "nothing".to_owned(),
        value => value.to_string(),
    };
    let each = edits.iter().map(|edit| {
        let EditView { table, name, key, before, after } = edit;
        let place = [table, name, key].map(String::as_str);
        let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{}: {} -> {}\n", place.join(" "), shown(before), shown(after))
    });
    each.collect()
}

/// Converts a limit of zero to none.
fn or_none<T: Default + PartialOrd>(value: T) -> Option<T> {
    Some(value).filter(|value| *value > T::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_takes_no_option_of_a_window() {
        let given = |shaper, credit| ShaperArgs {
            shaper,
            credit,
            width: None,
            interval: None,
            delay_max: None,
        };
        let credit = Some(Nanos::from_millis(5));
        let refused = given(Some(LimitShaper::Bucket), credit).check().unwrap_err();
        assert_eq!(refused.0, "--credit is of --shaper smooth, not of --shaper bucket");
        assert!(given(Some(LimitShaper::Bucket), None).check().is_ok());
        assert!(given(Some(LimitShaper::Smooth), credit).check().is_ok());
        assert!(given(None, credit).check().is_ok());
    }

    #[test]
    fn an_option_of_a_queue_is_a_value_or_its_default() {
        assert_eq!(QueueArgs::default().values(), QueueChange::default());
        let args = QueueArgs {
            queue: Some(queue_kind("fifo").unwrap()),
            aqm: Some(aqm("default").unwrap()),
            l4s: Some(Nanos::ZERO),
            queue_packets: Some(9),
            ..QueueArgs::default()
        };
        let expected = QueueChange {
            kind: Some(Some(VifQueueKind::Fifo)),
            aqm: Some(None),
            l4s_ns: Some(None),
            packets: Some(Some(9)),
            ..QueueChange::default()
        };
        assert_eq!(args.values(), expected);
        assert!(queue_kind("lifo").is_err() && aqm("red").is_err());
    }
}
