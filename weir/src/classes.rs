// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir realtime`: the real-time classes of a running node's routers.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use weir_api_types::realtime::{ClassStatusView, RealtimeView};
use weir_platform::failure::Failure;
use weir_platform::output;
use weir_units::{CpuShare, Nanos};

use crate::live::AnswerArgs;
use crate::realtime::name;

/// Show the real-time classes of routers: what each may use, how soon, and what is wrong.
#[derive(Debug, Args)]
pub(crate) struct RealtimeCommand {
    /// A router's name; without it, all that have a class
    router: Option<String>,
    #[command(flatten)]
    view: AnswerArgs,
}

impl RealtimeCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut all: RealtimeView = self.view.client()?.get("/v1/realtime")?;
        if let Some(router) = &self.router {
            all.routers.retain(|one| one.router == *router);
            if all.routers.is_empty() {
                return Err(format!("router {router:?} has no class").into());
            }
        }
        if self.view.json {
            output::print_json(&all)?;
        } else {
            output::print(&all.routers.iter().map(line).collect::<String>())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the class of a router in a line, and below it what is wrong.
fn line(of: &ClassStatusView) -> String {
    let share = |ppm: u32| CpuShare::from_ppm(ppm).to_string();
    let asked = &of.class;
    let mut text = format!("{}: {}", of.router, name(asked.class));
    if let (Some(cpu), Some(deadline), Some(period)) =
        (asked.cpu_ppm, asked.deadline_ns, asked.period_ns)
    {
        let (deadline, period) = (Nanos::new(deadline), Nanos::new(period));
        let _fits = write!(text, ", {} of each {period} within {deadline}", share(cpu));
    }
    if let Some(core) = asked.core {
        let _fits = write!(text, " on processor {core} alone");
    }
    if let Some(weight) = asked.weight {
        let _fits = write!(text, ", weight {weight}");
    }
    if of.in_force || of.budget_ppm.is_some() {
        let budget = of.budget_ppm.map(|ppm| format!(", budget {}", share(ppm)));
        let used = of.used_ppm.map(|ppm| format!(", used {}", share(ppm)));
        let threads = if of.threads == 1 { "thread" } else { "threads" };
        let _fits = write!(text, ": {} {threads}", of.threads);
        text += &[budget, used].into_iter().flatten().collect::<String>();
    }
    if of.exhausted > 0 {
        let _fits = write!(text, ", used up at {} looks", of.exhausted);
    }
    text.push('\n');
    if let Some(trouble) = &of.trouble {
        let what =
            if of.budget_ppm.is_some() { "not in force as it is set" } else { "not in force" };
        let _fits = writeln!(text, "  {what}: {trouble}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_line_and_its_trouble_another() {
        let one =
            |json: serde_json::Value| -> String { line(&serde_json::from_value(json).unwrap()) };
        let mut periodic = serde_json::json!({
            "router": "vr1", "slice": "gold", "in_force": true, "budget_ppm": 250_000,
            "class": {
                "type": "periodic", "deadline_ns": 5_000_000, "period_ns": 10_000_000,
                "cpu_ppm": 200_000
            },
            "threads": 2, "used_ppm": 100_000, "applications": 1, "refusals": 0, "exhausted": 3
        });
        assert_eq!(
            one(periodic.clone()),
            "vr1: periodic, 20% of each 10ms within 5ms: 2 threads, budget 25%, used 10%, used up \
             at 3 looks\n"
        );
        periodic["in_force"] = false.into();
        periodic["trouble"] = "process 17: not there".into();
        let text = one(periodic.clone());
        let (first, second) = text.split_once('\n').unwrap();
        assert!(first.contains("budget 25%"), "what its threads still have: {text}");
        assert_eq!(second, "  not in force as it is set: process 17: not there\n");
        periodic.as_object_mut().unwrap().remove("budget_ppm");
        let text = one(periodic);
        assert!(text.ends_with("\n  not in force: process 17: not there\n"), "{text}");
    }
}
