// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time class of a router: options that set it, and the advice of `weir explain`.

use std::fmt::Write;

use clap::Args;
use weir_api_types::change::Given;
use weir_api_types::realtime::{AdviceView, RealtimeChange, RealtimeClass, RouterInterface};
use weir_units::{CpuShare, Nanos};

/// Class of a router's threads; options that are left out stay as they are.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RealtimeArgs {
    /// Class of its threads: periodic, aperiodic, normal; none: as they were found
    #[arg(long, value_name = "CLASS", value_parser = class)]
    realtime: Option<ClassOrNone>,
    /// Time from an activation to the end of its work, such as 5ms
    #[arg(long)]
    deadline: Option<Nanos>,
    /// Least time between two activations; 0ns: the deadline
    #[arg(long)]
    period: Option<Nanos>,
    /// Guaranteed share of one processor, such as 20%
    #[arg(long)]
    cpu: Option<CpuShare>,
    /// Exclusive processor of its threads, in a partition of the host; any: those that all share
    #[arg(long, value_name = "NUMBER", value_parser = core)]
    core: Option<CoreOrAny>,
    /// True: a guest of Xen gets no spare time beyond its guarantee
    #[arg(long, value_name = "BOOL")]
    ceiling: Option<bool>,
    /// Weight of a normal class, of which others have 100
    #[arg(long)]
    weight: Option<u32>,
    /// The process that is the router: its id, or the path of a file with its id
    #[arg(long)]
    process: Option<String>,
    /// Path of the router's control group, if somebody else made it
    #[arg(long)]
    group: Option<String>,
    /// Network namespace of its interfaces
    #[arg(long)]
    namespace: Option<String>,
    /// The guest, as Xen knows it
    #[arg(long)]
    domain: Option<String>,
    /// An interface, and the device inside whose thread forwards; may be repeated
    #[arg(long, value_name = "DEVICE[=INSIDE]")]
    interface: Vec<String>,
}

/// A class, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassOrNone {
    Class(RealtimeClass),
    None,
}

/// An exclusive processor; `None`: those that all share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoreOrAny(Option<u32>);

impl RealtimeArgs {
    /// Returns the change that the options ask for; nothing without any.
    pub(crate) fn change(&self) -> Given<RealtimeChange> {
        if self.realtime == Some(ClassOrNone::None) {
            return Some(None);
        }
        let time = |time: Option<Nanos>| time.map(|time| Some(time.as_nanos()));
        let period = |time: Nanos| Some(time.as_nanos()).filter(|time| *time > 0);
        let mut change = RealtimeChange {
            class: None,
            deadline_ns: time(self.deadline),
            period_ns: self.period.map(period),
            cpu_ppm: self.cpu.map(|cpu| Some(cpu.as_ppm())),
            core: self.core.map(|core| core.0),
            ceiling: self.ceiling.map(Some),
            weight: self.weight.map(Some),
            process: self.process.clone().map(Some),
            group: self.group.clone().map(Some),
            namespace: self.namespace.clone().map(Some),
            domain: self.domain.clone().map(Some),
            interface: Some(self.interface.iter().map(|text| interface(text)).collect())
                .filter(|list: &Vec<_>| !list.is_empty())
                .map(Some),
        };
        if let Some(ClassOrNone::Class(class)) = self.realtime {
            change.class = Some(Some(class));
            // The keys of another class go with it.
            if class == RealtimeClass::Normal {
                change.deadline_ns = change.deadline_ns.or(Some(None));
                change.period_ns = change.period_ns.or(Some(None));
                change.cpu_ppm = change.cpu_ppm.or(Some(None));
                change.core = change.core.or(Some(None));
                change.ceiling = change.ceiling.or(Some(None));
            } else {
                change.weight = change.weight.or(Some(None));
            }
        }
        Some(Some(change)).filter(|change| *change != Some(RealtimeChange::default()))
    }
}

/// Returns the advice for a router as a page of text.
pub(crate) fn page(of: &AdviceView) -> String {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| Nanos::new(ns).to_string());
    let AdviceView { router, threads, activations, .. } = of;
    let mut page = format!(
        "router {router}: {threads} threads, {activations} activations in {}\n",
        Nanos::new(of.time_ns)
    );
    let mut line = |text: String| {
        let _fits = writeln!(page, "  {text}");
    };
    if of.gap_median_ns.is_some() {
        let [median, short, long] = [of.gap_median_ns, of.gap_p10_ns, of.gap_p90_ns].map(time);
        line(format!("from one to the next {median}, eight of ten {short} to {long}"));
        line(format!("99 of 100 used at most {}", time(of.work_p99_ns)));
    }
    line(format!("together {} of a processor", CpuShare::from_ppm(of.used_ppm)));
    if of.lost > 0 {
        line(format!(
            "{} switches are missing: the kernel's ring was full; observe again, since gaps \
                      and work may be too long here",
            of.lost
        ));
    }
    line(format!("advice: {}", of.because));
    if let (Some(class), Some(deadline), Some(cpu)) = (of.class, of.deadline_ns, of.cpu_ppm) {
        let (deadline, cpu) = (Nanos::new(deadline), CpuShare::from_ppm(cpu));
        let class = name(class);
        let set = format!("weir set router {router} --realtime {class}");
        // A period that is set already would stay.
        line(format!("to apply: {set} --deadline {deadline} --period {deadline} --cpu {cpu}"));
    }
    page
}

/// Reads an interface and, behind `=`, the device inside.
fn interface(text: &str) -> RouterInterface {
    let (device, inside) = text.split_once('=').unwrap_or((text, ""));
    let inside = Some(inside.to_owned()).filter(|inside| !inside.is_empty());
    RouterInterface { device: device.to_owned(), inside }
}

fn class(text: &str) -> Result<ClassOrNone, String> {
    match text {
        "none" => Ok(ClassOrNone::None),
        "normal" => Ok(ClassOrNone::Class(RealtimeClass::Normal)),
        "periodic" => Ok(ClassOrNone::Class(RealtimeClass::Periodic)),
        "aperiodic" => Ok(ClassOrNone::Class(RealtimeClass::Aperiodic)),
        _ => Err("must be periodic, aperiodic, normal or none".to_owned()),
    }
}

fn core(text: &str) -> Result<CoreOrAny, String> {
    match (text, text.parse()) {
        ("any", _) => Ok(CoreOrAny(None)),
        (_, Ok(number)) => Ok(CoreOrAny(Some(number))),
        _ => Err("must be the number of a processor, or any".to_owned()),
    }
}

/// Returns the name of a class in the policy.
pub(crate) const fn name(class: RealtimeClass) -> &'static str {
    match class {
        RealtimeClass::Normal => "normal",
        RealtimeClass::Periodic => "periodic",
        RealtimeClass::Aperiodic => "aperiodic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_another_class_go_with_it() {
        assert_eq!(RealtimeArgs::default().change(), None);
        let none = RealtimeArgs { realtime: Some(class("none").unwrap()), ..<_>::default() };
        assert_eq!(none.change(), Some(None));
        let normal = RealtimeArgs {
            realtime: Some(class("normal").unwrap()),
            weight: Some(300),
            ..RealtimeArgs::default()
        };
        let change = normal.change().flatten().unwrap();
        assert_eq!((change.weight, change.deadline_ns), (Some(Some(300)), Some(None)));
        let periodic = RealtimeArgs {
            realtime: Some(class("periodic").unwrap()),
            deadline: Some(Nanos::from_millis(5)),
            cpu: Some(CpuShare::from_percent(20)),
            core: Some(core("any").unwrap()),
            interface: vec!["v0=eth0".into(), "v1".into()],
            ..RealtimeArgs::default()
        };
        let change = periodic.change().flatten().unwrap();
        assert_eq!((change.cpu_ppm, change.weight), (Some(Some(200_000)), Some(None)));
        assert_eq!((change.period_ns, change.core), (None, Some(None)));
        assert_eq!(core("3"), Ok(CoreOrAny(Some(3))));
        assert!(core("-1").is_err());
        let interfaces = change.interface.flatten().unwrap();
        assert_eq!((interfaces[0].inside.as_deref(), &interfaces[1].inside), (Some("eth0"), &None));
        assert!(class("fast").is_err());
    }

    #[test]
    fn an_advice_ends_with_the_command_that_applies_it() {
        let mut view = AdviceView {
            router: "voice".into(),
            time_ns: 2_000_000_000,
            threads: 1,
            activations: 200,
            lost: 0,
            gap_median_ns: Some(10_000_000),
            gap_p10_ns: Some(9_900_000),
            gap_p90_ns: Some(10_100_000),
            work_p99_ns: Some(1_000_000),
            used_ppm: 100_000,
            class: Some(RealtimeClass::Periodic),
            deadline_ns: Some(10_000_000),
            cpu_ppm: Some(130_000),
            because: "type = \"periodic\": because".into(),
        };
        let text = page(&view);
        assert!(text.starts_with("router voice: 1 threads, 200 activations in 2s\n"), "{text}");
        let command = "weir set router voice --realtime periodic --deadline 10ms --period 10ms \
                       --cpu 13%\n";
        assert!(text.ends_with(command), "{text}");
        assert!(!text.contains("missing"), "{text}");
        view.lost = 40;
        let unsure = page(&view);
        let line = "40 switches are missing: the kernel's ring was full; observe again, since";
        assert!(unsure.contains(line), "{unsure}");
        (view.class, view.deadline_ns, view.cpu_ppm) = (Some(RealtimeClass::Normal), None, None);
        assert!(!page(&view).contains("to apply"));
    }
}
