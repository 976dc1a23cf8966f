// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each guest did, sample by sample, and how it is drawn.

use weir_control::Sample;
use weir_control::control_loop::LoopStatus;
use weir_experiment::prelude::*;
use weir_plot::{Lines, Panel, PlotError, PlotLine, Svg};

use super::bench::PERIOD;

/// One guest's samples.
#[derive(Clone, Debug, Default)]
pub(super) struct GuestCourse {
    name: String,
    /// Packets forwarded a second.
    pub(super) rates: Vec<f64>,
    /// Packets offered a second.
    pub(super) offered: Vec<f64>,
    /// The cap that was in force, as a share of a processor.
    pub(super) caps: Vec<f64>,
    set_points: Vec<f64>,
}

impl GuestCourse {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a sample of a period in which `status` held.
    pub(super) fn push(&mut self, sample: &Sample, status: &LoopStatus) {
        let cap = status.settings.map_or(1.0, |settings| f64::from(settings.cap.as_ppm()) / 1e6);
        self.rates.push(float(sample.rate().as_pps()));
        self.offered.push(float(sample.offered_rate().map_or(0, |rate| rate.as_pps())));
        self.caps.push(cap);
        self.set_points.push(float(status.set_point.as_pps()));
    }

    /// The last so many samples.
    pub(super) fn tail(&self, count: usize) -> Self {
        let last = |list: &[f64]| list[list.len().saturating_sub(count)..].to_vec();
        Self {
            name: self.name.clone(),
            rates: last(&self.rates),
            offered: last(&self.offered),
            caps: last(&self.caps),
            set_points: last(&self.set_points),
        }
    }
}

/// Rates beside set-points, a panel for each guest.
pub(super) fn draw(id: &str, courses: &[GuestCourse]) -> Result<Svg, PlotError> {
    let panel = |course: &GuestCourse| Panel {
        title: course.name.clone(),
        lines: vec![
            PlotLine::new("offered", course.offered.clone()),
            PlotLine::new("forwarded", course.rates.clone()),
            PlotLine::new("set-point", course.set_points.clone()),
        ],
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
    use weir_units::{CpuShare, Instant, Nanos, PacketRate};

    use super::*;

    #[test]
    fn a_course_keeps_what_was_in_force_during_the_sample() {
        let mut course = GuestCourse::new("fc1");
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
        course.push(&sample, &LoopStatus { settings: None, ..status });
        course.push(&sample, &status);
        let tail = course.tail(1);
        assert_eq!((tail.rates, tail.offered, tail.caps), (vec![90.0], vec![300.0], vec![0.25]));
        assert!(draw("x", &[course]).unwrap().as_str().contains("set-point"));
        assert!(draw("x", &[GuestCourse::new("fc2")]).is_err());
    }
}
