// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir xtc`: routers that a node holds at a packet rate.

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir_api_types::xtc::{
    ControlPhase, ControlState, DecisionView, PolicingView, PunishmentGrade, RouterView, XtcChange,
    XtcView,
};
use weir_client::{Method, escaped};
use weir_platform::output;
use weir_units::{CpuShare, Nanos, PacketRate};

use crate::live::AnswerArgs;
use weir_platform::failure::Failure;

/// Routers that a running node holds at a packet rate.
#[derive(Debug, Subcommand)]
pub(crate) enum XtcCommand {
    /// Show rate, set-point, cap, limit and trouble of each
    Status {
        /// A router's name; without it, all
        router: Option<String>,
        #[command(flatten)]
        view: AnswerArgs,
    },
    /// Change how a router is held, from its next sample on
    Set {
        /// The router
        router: String,
        #[command(flatten)]
        change: XtcSettings,
        #[command(flatten)]
        view: AnswerArgs,
    },
    /// Hold a router that is off
    Activate {
        /// The router
        router: String,
        /// The rate; without it, the one that it was held at last
        #[arg(long)]
        set_point: Option<PacketRate>,
        #[command(flatten)]
        view: AnswerArgs,
    },
    /// Leave cap and limit of a router as they are
    Pause(Verb),
    /// Go on with a router that was paused
    Resume(Verb),
    /// Take cap and limit of a router away
    Deactivate(Verb),
    /// The latest decisions on a router: sample, error, action, reason
    Log {
        /// The router
        router: String,
        /// Decisions that are printed, at most
        #[arg(long, default_value_t = 100)]
        newest: u32,
        #[command(flatten)]
        view: AnswerArgs,
    },
}

/// Settings to change; options that are left out stay as they are.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct XtcSettings {
    /// The rate, such as 40kpps
    #[arg(long)]
    set_point: Option<PacketRate>,
    /// combined, feed-forward, pi, dead-beat, self-tuning or fixed
    #[arg(long)]
    controller: Option<String>,
    /// From one sample to the next, such as 100ms
    #[arg(long)]
    period: Option<Nanos>,
    /// The least cap, such as 3%
    #[arg(long)]
    cap_min: Option<CpuShare>,
    /// The largest cap, such as 80%
    #[arg(long)]
    cap_max: Option<CpuShare>,
}

/// A command on one router.
#[derive(Debug, Args)]
pub(crate) struct Verb {
    /// The router
    router: String,
    #[command(flatten)]
    view: AnswerArgs,
}

impl XtcCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Status { router, view } => status(router.as_deref(), &view),
            Self::Set { router, change, view } => {
                let XtcSettings { set_point, controller, period, cap_min, cap_max } = change;
                let change = XtcChange {
                    set_point_pps: set_point.map(PacketRate::as_pps),
                    state: None,
                    controller,
                    period_ns: period.map(Nanos::as_nanos),
                    cap_min_ppm: cap_min.map(CpuShare::as_ppm),
                    cap_max_ppm: cap_max.map(CpuShare::as_ppm),
                };
                view.change(Method::PATCH, &path(&router), &change)
            }
            Self::Activate { router, set_point, view } => {
                let set_point_pps = set_point.map(PacketRate::as_pps);
                let change = XtcChange { set_point_pps, ..to("active") };
                view.change(Method::PATCH, &path(&router), &change)
            }
            Self::Pause(verb) => verb.ask(ControlState::Active, ControlState::Paused),
            Self::Resume(verb) => verb.ask(ControlState::Paused, ControlState::Active),
            Self::Deactivate(Verb { router, view }) => {
                view.change(Method::PATCH, &path(&router), &to("off"))
            }
            Self::Log { router, newest, view } => log(&router, newest, &view),
        }
    }
}

impl Verb {
    /// Asks for a router's change from one state to another; fails if it is not in the former.
    fn ask(&self, from: ControlState, into: ControlState) -> Result<ExitCode, Failure> {
        let path = path(&self.router);
        let RouterView { state, lease, .. } = self.view.client()?.get(&path)?;
        if state != from {
            let router = &self.router;
            let lease = lease.map_or_else(String::new, |lease| {
                let by = lease.by;
                format!(": a controller's lease ({by}) holds it, which weir xtc activate ends")
            });
            let why = format!("router {router} is {state}, which cannot become {into}{lease}");
            return Err(why.into());
        }
        self.view.change(Method::PATCH, &path, &to(&into.to_string()))
    }
}

fn status(router: Option<&str>, view: &AnswerArgs) -> Result<ExitCode, Failure> {
    let client = view.client()?;
    match router {
        Some(router) => {
            let one: RouterView = client.get(&path(router))?;
            if view.json { output::print_json(&one)? } else { output::print(&table(&[one]))? }
        }
        None => {
            let all: XtcView = client.get("/v1/xtc")?;
            if view.json {
                output::print_json(&all)?;
            } else {
                output::print(&table(&all.routers))?;
                output::print(&all.policing.as_ref().map_or_else(String::new, contention))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn log(router: &str, newest: u32, view: &AnswerArgs) -> Result<ExitCode, Failure> {
    let path = format!("{}/log?newest={newest}", path(router));
    let decisions: Vec<DecisionView> = view.client()?.get(&path)?;
    if view.json {
        output::print_json(&decisions)?;
    } else {
        let line = |one: &DecisionView| format!("{} {}\n", time(one.at_unix_ms), one.text);
        output::print(&decisions.iter().map(line).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a line for each router, and one more for what is wrong with it.
fn table(routers: &[RouterView]) -> String {
    let mut rows = vec![
        ["router", "state", "rate", "set-point", "offered", "limit", "cap", "used", "controller"]
            .map(str::to_owned),
    ];
    let rate =
        |pps: Option<u64>| pps.map_or_else(dash, |pps| PacketRate::from_pps(pps).to_string());
    let share = |ppm: Option<u32>| ppm.map_or_else(dash, |ppm| CpuShare::from_ppm(ppm).to_string());
    for one in routers {
        let state = match (&one.lease, one.state, one.phase) {
            (Some(lease), _, Some(ControlPhase::Active)) => format!("leased by {}", lease.by),
            (_, state @ ControlState::Off, _)
            | (_, state @ ControlState::Active, Some(ControlPhase::Active))
            | (_, state @ ControlState::Paused, Some(ControlPhase::Paused)) => state.to_string(),
            (_, state, Some(phase)) => format!("{state}, {phase}"),
            (_, state, None) => format!("{state}, missing"),
        };
        let state = match &one.police {
            Some(police) if !police.held && one.state == ControlState::Active => {
                "not contended".to_owned()
            }
            Some(police) if police.grade != PunishmentGrade::Free => {
                format!("{state}, {}", police.grade)
            }
            _ => state,
        };
        let state = if one.dry_run { format!("{state}, dry run") } else { state };
        let cap = match one.cap_held_ppm {
            Some(held) => format!("{} of {}", share(Some(held)), share(one.cap_ppm)),
            None => share(one.cap_ppm),
        };
        rows.push([
            one.router.clone(),
            state,
            rate(one.rate_pps),
            rate(one.set_point_pps),
            rate(one.offered_pps),
            rate(one.limit_pps),
            cap,
            share(one.used_ppm),
            format!("{} over {}", one.controller, one.actuator),
        ]);
    }
    let mut widths = [0; 9];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut page = String::new();
    let troubles = std::iter::once(None).chain(routers.iter().map(|one| one.trouble.as_deref()));
    for (row, trouble) in rows.iter().zip(troubles) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _written = write!(line, "{cell:<width$}  ");
        }
        let _written = writeln!(page, "{}", line.trim_end());
        if let Some(trouble) = trouble {
            let _written = writeln!(page, "  {trouble}");
        }
    }
    page
}

/// Returns a line that says whether routers contend for the node.
fn contention(of: &PolicingView) -> String {
    let [demand, capacity] =
        [of.demand_pps, of.capacity_pps].map(|pps| PacketRate::from_pps(pps).to_string());
    let what = if of.contended { "contended" } else { "not contended" };
    format!("{what}: {demand} asked for of {capacity}, {} changes so far\n", of.changes)
}

fn to(state: &str) -> XtcChange {
    XtcChange { state: Some(state.to_owned()), ..XtcChange::default() }
}

fn path(router: &str) -> String {
    format!("/v1/xtc/{}", escaped(router))
}

fn dash() -> String {
    "-".to_owned()
}

/// Returns the time of day, UTC, to a millisecond: a log is read within a day.
fn time(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000 % 86_400, unix_ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api_types::xtc::PolicedView;

    #[test]
    fn the_table_says_what_is_wrong_below_its_router() {
        let one: RouterView = serde_json::from_value(serde_json::json!({
            "router": "vr1", "slice": "gold", "state": "active", "phase": "released",
            "controller": "combined", "actuator": "cgroup", "period_ns": 100_000_000,
            "set_point_pps": 40_000, "dry_run": false, "rate_pps": 39_998, "cap_ppm": 125_000,
            "trouble": "process 17: not there", "owes_release": false, "samples": 1, "faults": 2,
            "commands": 3, "failures": 4, "late": 0, "late_worst_ns": 0, "lost": 1
        }))
        .unwrap();
        let page = table(std::slice::from_ref(&one));
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines.len(), 3, "{page}");
        assert!(lines[1].starts_with("vr1     active, released  39998pps  40kpps"), "{page}");
        assert!(lines[1].ends_with("12.5%  -     combined over cgroup"), "{page}");
        assert_eq!(lines[2], "  process 17: not there");
        let police = |held: bool, grade| {
            let mut one = one.clone();
            one.police = Some(PolicedView { held, allowed_pps: 40_000, grade, judged: 0 });
            table(&[one])
        };
        assert!(police(false, PunishmentGrade::Free).contains("vr1     not contended  "));
        assert!(
            police(true, PunishmentGrade::EarlyDrop).contains("active, released, early drop  ")
        );
        let (capacity_pps, demand_pps) = (100_000, 97_500);
        let policing =
            PolicingView { capacity_pps, demand_pps, contended: true, changes: 3, judged: 0 };
        let line = "contended: 97500pps asked for of 100kpps, 3 changes so far\n";
        assert_eq!(contention(&policing), line);
        assert_eq!(time(86_400_000 + 3_723_004), "01:02:03.004");
    }
}
