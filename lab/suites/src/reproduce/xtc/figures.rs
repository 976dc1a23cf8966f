// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text's figures and tables: the experiment behind each, and the text's words about it.

use weir_experiment::prelude::*;

use super::flow::FigureFlow;
use super::shares::{ShareSetting, SharedRouters};
use super::sweep::{Metric, SetPointSweep};
use super::training::CapCurve;
use crate::routers::{Contender, LeastCap, RouterLoad};

/// A figure or table of the text.
#[derive(Debug)]
pub struct Figure {
    /// The name in `weir-lab reproduce xtc NAME`.
    pub name: &'static str,
    /// The title.
    pub title: &'static str,
    /// The text's words about it, with its numbers.
    pub text: &'static str,
    /// The reason why the result here differs, if it does.
    pub differs: &'static str,
    pub(super) made: FigureKind,
}

impl Figure {
    /// Returns the name of the file of one of its pictures.
    pub(super) fn picture(&self, part: &str) -> String {
        let dash = if part.is_empty() { "" } else { "-" };
        format!("{}{dash}{part}", self.name)
    }
}

/// The experiment behind a figure.
#[derive(Debug)]
pub(super) enum FigureKind {
    Curve(CapCurve),
    Residuals,
    Sweep(SetPointSweep),
    Shares(SharedRouters),
    Chain,
}

/// Returns the figure of that name.
pub fn figure(name: &str) -> Result<&'static Figure, ExperimentError> {
    FIGURES.iter().find(|figure| figure.name == name).ok_or_else(|| {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        let what = format!("there are {}", names.join(", "));
        ExperimentError::Scenario { name: name.to_owned(), what }
    })
}

const PI: Contender = Contender::Pi(LeastCap::DEFAULT);
const PI_3: Contender = Contender::Pi(LeastCap::CHOSEN);
const DEAD_BEAT: Contender = Contender::DeadBeat(LeastCap::DEFAULT);
const DEAD_BEAT_3: Contender = Contender::DeadBeat(LeastCap::CHOSEN);
const FLOW: FigureFlow = FigureFlow::Udp(100);

/// Set-points over the whole range, and where the text's controllers end.
const WHOLE: &[u64] = &[10, 20, 30, 40, 50, 60, 70, 80, 90];
const LOW: &[u64] = &[4, 6, 8, 10, 15, 20, 25, 30];

/// Returns a sweep of low set-points: Figs 9 to 14 differ in flow and contenders only.
const fn range(flows: &'static [FigureFlow], contenders: &'static [Contender]) -> FigureKind {
    FigureKind::Sweep(SetPointSweep {
        flows,
        contenders,
        percents: LOW,
        quick_percents: &[5, 10, 25],
        shows: &[Metric::Achieved, Metric::Deviation],
        disturbed: false,
    })
}

/// Returns a sweep for RTT and loss of a probe, Figs 7 and 8.
const fn probed(flows: &'static [FigureFlow]) -> FigureKind {
    FigureKind::Sweep(SetPointSweep {
        flows,
        contenders: &[PI, Contender::FeedForward, Contender::Combined],
        percents: WHOLE,
        quick_percents: &[20, 50, 80],
        shows: &[Metric::RoundTrip, Metric::Lost],
        disturbed: false,
    })
}

/// Six TCP routers in the text's two configurations, Figs 15 and 16, Table 2.
const SIX: ShareSetting = ShareSetting {
    key: "six",
    loads: &[RouterLoad::Tcp(1); 6],
    configurations: &[("A", &[10, 10, 10, 10, 10, 28]), ("B", &[22, 18, 14, 8, 8, 8])],
};

const fn flows(key: &'static str, loads: &'static [RouterLoad]) -> ShareSetting {
    ShareSetting { key, loads, configurations: &[("equal", &[50, 50])] }
}

/// All that the text shows; Figs 1, 2 and 19 are drawings.
pub const FIGURES: [Figure; 19] = [
    Figure {
        name: "fig3",
        title: "Rate by cap, for three offered rates",
        text: "The rate grows with the logarithm of the cap; from a cap threshold on (60 % for \
               100 kp/s) it varies by less than 1 kp/s. The higher the offered rate, the higher \
               the threshold.",
        differs: "A packet of a process router costs nearly the same under any cap, so that the \
                  rate is proportional to the cap up to the threshold, where the text's guests \
                  bend earlier: their driver domain's work is not under the cap.",
        made: FigureKind::Curve(CapCurve {
            flows: &[30, 60, 100],
            caps: &[5, 10, 20, 30, 40, 50, 60, 70, 80, 100],
        }),
    },
    Figure {
        name: "table1",
        title: "The map of Fixed Cap",
        text: "Caps of 5, 10 ... 50 % gave 16, 32, 50, 65, 77, 85, 91, 94, 96, 98 kp/s of the \
               100 kp/s offered.",
        differs: "Proportional up to the threshold, as in Figure 3.",
        made: FigureKind::Curve(CapCurve {
            flows: &[100],
            caps: &[5, 10, 15, 20, 25, 30, 35, 40, 45, 50],
        }),
    },
    Figure {
        name: "fig4",
        title: "What the model says beside what was measured",
        text: "y(k + 1) = 0.0915 y(k) + 63.0051 u(k) around 78.14 kp/s and u = 1.39; R² = 0.9899 \
               on the data that it was fitted to.",
        differs: "A line over the logarithm of the cap fits a rate that is proportional to the \
                  cap worse than the text's: what is below the line at both ends is that.",
        made: FigureKind::Residuals,
    },
    Figure {
        name: "fig5",
        title: "Rate and oscillation by set-point",
        text: "PI holds set-points of 20 kp/s and above of 100; below, it does not. The relative \
               RMSE grows as the set-point falls below what is offered.",
        differs: "PI has a dead zone of a tenth of the set-point: a mean within it is what it \
                  promises. A cap in units of the quota's grain follows the rate more finely than \
                  Xen's whole percents.",
        made: FigureKind::Sweep(SetPointSweep {
            flows: &[FLOW, FigureFlow::Udp(60), FigureFlow::Tcp],
            contenders: &[PI, Contender::FeedForward, Contender::Combined],
            percents: WHOLE,
            quick_percents: &[10, 30, 60, 90],
            shows: &[Metric::Achieved, Metric::Deviation],
            disturbed: false,
        }),
    },
    Figure {
        name: "fig6",
        title: "Fixed Cap and feedback, without and with a disturbance",
        text: "Most of the oscillation is the cap's, not the loop's. A process that takes 15 % of \
               the assigned CPU leaves Fixed Cap below its set-points; XTC holds them.",
        differs: "Weir's limit at ingress holds the rate while the ceiling has room for the \
                  process; the cap is raised where it has not.",
        made: FigureKind::Sweep(SetPointSweep {
            flows: &[FLOW],
            contenders: &[PI, Contender::Fixed, Contender::FeedForward, Contender::Combined],
            percents: &[20, 40, 60, 80],
            quick_percents: &[30, 60],
            shows: &[Metric::Deviation, Metric::Achieved, Metric::Disturbed],
            disturbed: true,
        }),
    },
    Figure {
        name: "fig7",
        title: "A probe beside UDP: loss and round-trip time",
        text: "Loss is in proportion to how far the set-point is below what is offered; the mean \
               round-trip time is about 55 ms at 20 kp/s of 100.",
        differs: "By the cap alone the router's queue is full, here as there. Weir's limit drops \
                  what is beyond the set-point before the router, and the probe is not part of \
                  that flow: its queue stays empty.",
        made: probed(&[FLOW, FigureFlow::Udp(60)]),
    },
    Figure {
        name: "fig8",
        title: "A probe beside TCP: loss and round-trip time",
        text: "Nearly no loss; the round-trip time is lower than beside UDP.",
        differs: "",
        made: probed(&[FigureFlow::Tcp]),
    },
    Figure {
        name: "fig9",
        title: "PI and dead-beat, UDP: the operating range",
        text: "PI holds down to 20 kp/s of 100, dead-beat down to 15.",
        differs: "",
        made: range(&[FLOW], &[PI, DEAD_BEAT, Contender::Combined]),
    },
    Figure {
        name: "fig10",
        title: "PI and dead-beat, TCP: the operating range",
        text: "PI holds down to 20 kp/s of 60, dead-beat down to 15.",
        differs: "",
        made: range(&[FigureFlow::Tcp], &[PI, DEAD_BEAT, Contender::Combined]),
    },
    Figure {
        name: "fig11",
        title: "PI with a least cap, UDP",
        text: "With a least cap of 3 % PI holds down to 10 kp/s of 100; a higher one gives more \
               than the set-point.",
        differs: "",
        made: range(&[FLOW], &[PI, PI_3, Contender::Pi(LeastCap(5)), Contender::Combined]),
    },
    Figure {
        name: "fig12",
        title: "PI with a least cap, TCP",
        text: "With a least cap of 3 % PI holds down to 6 kp/s of 60.",
        differs: "",
        made: range(
            &[FigureFlow::Tcp],
            &[PI, PI_3, Contender::Pi(LeastCap(5)), Contender::Combined],
        ),
    },
    Figure {
        name: "fig13",
        title: "PI and dead-beat with a least cap of 3 %, UDP",
        text: "Both hold alike.",
        differs: "",
        made: range(&[FLOW], &[PI_3, DEAD_BEAT_3, Contender::Combined]),
    },
    Figure {
        name: "fig14",
        title: "PI and dead-beat with a least cap of 3 %, TCP",
        text: "Dead-beat follows the set-point more linearly.",
        differs: "",
        made: range(&[FigureFlow::Tcp], &[PI_3, DEAD_BEAT_3, Contender::Combined]),
    },
    Figure {
        name: "fig15",
        title: "Six TCP routers in two configurations",
        text: "Without XTC each forwards 13 kp/s. A: five at 10 and one at 28 kp/s; B: 22, 18, 14 \
               and three at 8. The higher the set-point, the more a router stays below it.",
        differs: "",
        made: FigureKind::Shares(SharedRouters { settings: &[SIX], probed: false }),
    },
    Figure {
        name: "table2",
        title: "What six TCP routers forward together",
        text: "77.97 ± 0.07 kp/s without XTC, 74.96 ± 1.06 with A, 75.49 ± 0.85 with B: up to 5 % \
               are lost.",
        differs: "",
        made: FigureKind::Shares(SharedRouters { settings: &[SIX], probed: false }),
    },
    Figure {
        name: "fig16",
        title: "Round-trip times through six TCP routers",
        text: "The smaller the set-point, the longer: about 70 ms at worst.",
        differs: "",
        made: FigureKind::Shares(SharedRouters { settings: &[SIX], probed: true }),
    },
    Figure {
        name: "fig17",
        title: "UDP beside TCP",
        text: "Without XTC about 100 kp/s together, most of it UDP. Held at 20 and 80 kp/s, UDP \
               falls by 49, TCP gains 16, and together they forward 68: the driver domain still \
               carries the whole flood to the router.",
        differs: "What is beyond the limit is dropped where it enters, so that it costs the \
                  routers' processor nothing.",
        made: FigureKind::Shares(SharedRouters {
            settings: &[ShareSetting {
                key: "two",
                loads: &[RouterLoad::Udp(None), RouterLoad::Tcp(32)],
                configurations: &[("20:80", &[20, 80])],
            }],
            probed: false,
        }),
    },
    Figure {
        name: "fig18",
        title: "Fairness by the number of flows",
        text: "Without XTC the lesser by the greater router falls as one has more flows; with it \
               both get the same, and a little less together.",
        differs: "",
        made: FigureKind::Shares(SharedRouters {
            settings: &[
                flows("1-flow", &[RouterLoad::Tcp(1), RouterLoad::Tcp(1)]),
                flows("2-flows", &[RouterLoad::Tcp(2), RouterLoad::Tcp(1)]),
                flows("5-flows", &[RouterLoad::Tcp(5), RouterLoad::Tcp(1)]),
                flows("10-flows", &[RouterLoad::Tcp(10), RouterLoad::Tcp(1)]),
            ],
            probed: false,
        }),
    },
    Figure {
        name: "fig20",
        title: "A probe through three routers, one behind the other",
        text: "90 kp/s of UDP, nearly all that the chain forwards. Loss is the same at the second \
               hop as at the third, and more the lower the set-point; the mean round-trip time \
               rises from the first router to the second and settles around 14 ms.",
        differs: "What is offered is seven tenths of what the chain forwards of a flood. A probe \
                  is answered behind a router, not by it. One that comes with the flow waits with \
                  it at the first node; by an interface of its own it waits at the second alone, \
                  where the flow comes at the very rate that is let through.",
        made: FigureKind::Chain,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_its_name_and_a_wrong_one_told_the_right() {
        for known in &FIGURES {
            assert_eq!(figure(known.name).unwrap().title, known.title);
        }
        let error = figure("fig19").unwrap_err().to_string();
        assert!(error.contains("fig19") && error.contains("table2"), "{error}");
    }

    /// Goal: a quick run of any figure takes seven minutes at most.
    #[test]
    fn every_figure_is_quick_when_asked() {
        for figure in &FIGURES {
            let seconds = super::super::length(figure, true).as_secs();
            assert!((10..=420).contains(&seconds), "{}: {seconds} s", figure.name);
        }
    }
}
