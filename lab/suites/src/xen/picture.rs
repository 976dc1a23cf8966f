// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of each guest, and how they are drawn.

use weir_control::Sample;
use weir_control::control_loop::LoopStatus;
use weir_experiment::prelude::*;
use weir_plot::{Lines, Panel, PlotError, PlotLine, Svg};

use super::bench::PERIOD;

/// The samples of one guest.
#[derive(Clone, Debug)]
pub(super) struct GuestCourse {
    pub(super) name: String,
    pub(super) samples: Vec<GuestSample>,
}

/// A sample of a guest, with what was in force during it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GuestSample {
    /// Packets forwarded a second.
    pub(super) rate: f64,
    /// Packets offered a second.
    pub(super) offered: f64,
    /// The cap, as a share of a processor.
    pub(super) cap: f64,
    set_point: f64,
}

impl GuestSample {
    /// Makes it of a sample of a period in which `status` held.
    pub(super) fn new(sample: &Sample, status: &LoopStatus) -> Self {
        let cap = status.settings.map_or(1.0, |settings| f64::from(settings.cap.as_ppm()) / 1e6);
        let offered = float(sample.offered_rate().map_or(0, |rate| rate.as_pps()));
        let [rate, set_point] = [sample.rate(), status.set_point].map(|rate| float(rate.as_pps()));
        Self { rate, offered, cap, set_point }
    }
}

/// Draws rates beside set-points, a panel for each guest.
pub(super) fn draw(id: &str, courses: &[GuestCourse]) -> Result<Svg, PlotError> {
    let panel = |course: &GuestCourse| {
        let line = |name: &str, value: fn(&GuestSample) -> f64| {
            PlotLine::new(name, course.samples.iter().map(value).collect())
        };
        let offered = line("offered", |sample| sample.offered);
        let forwarded = line("forwarded", |sample| sample.rate);
        let lines = vec![offered, forwarded, line("set-point", |sample| sample.set_point)];
        Panel { title: course.name.clone(), lines }
    };
    let title = format!("{id}: packets a second under a cap alone");
    let interval_s = float(PERIOD.as_nanos()) / 1e9;
    let panels = courses.iter().map(panel).collect();
    Lines { title, unit: "pps".to_owned(), interval_s, panels }.draw()
}

#[cfg(test)]
mod tests {
    use weir_control::Settings;
    use weir_control::control_loop::LoopPhase;
    use weir_units::{CpuShare, Instant};

    use super::*;

    #[test]
    fn a_course_keeps_what_was_in_force_during_the_sample() {
        let sample =
            Sample { span: Nanos::from_secs(1), packets: 90, offered: Some(300), cpu: None };
        let status = LoopStatus {
            phase: LoopPhase::Active,
            controller: "pi",
            set_point: PacketRate::from_pps(100),
            settings: Some(Settings::capped(CpuShare::from_percent(25))),
            release_pending: false,
            lost: false,
            sample: None,
            estimate: None,
            samples: 0,
            faults: 0,
            commands: 0,
            failures: 0,
            due: Instant::ZERO,
        };
        let free = GuestSample::new(&sample, &LoopStatus { settings: None, ..status });
        let capped = GuestSample::new(&sample, &status);
        let expected = GuestSample { rate: 90.0, offered: 300.0, cap: 0.25, set_point: 100.0 };
        assert_eq!(capped, expected);
        assert_eq!(free, GuestSample { cap: 1.0, ..expected });
        let course = |samples| GuestCourse { name: "fc1".to_owned(), samples };
        assert!(draw("x", &[course(vec![free, capped])]).unwrap().as_str().contains("set-point"));
        assert!(draw("x", &[course(vec![])]).is_err());
    }
}
