// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of the texts that the simulator makes beside the laboratory: `weir-lab reproduce
//! TEXT FIGURE --on sim`.
//!
//! Each is a part of a row of table `sim`, with the claims of the row: the machine of the text is
//! simulated, and compared with what the text measured on it. The figures of the Netback text are
//! scenarios of their own ([`super::native`]).

use weir_experiment::prelude::*;

use super::{caps, em_network, held, iip_node, routers, stream};

/// A figure or table of a text that the simulator makes.
#[derive(Clone, Copy, Debug)]
pub struct SimFigure {
    /// The text: `weir-lab reproduce TEXT`.
    pub text: &'static str,
    /// The name of it on the command line.
    pub name: &'static str,
    /// A title of one line.
    pub title: &'static str,
    made: SimFigureKind,
}

/// The code that makes a figure.
#[derive(Clone, Copy, Debug)]
enum SimFigureKind {
    Row(fn(&mut Recording<'_>) -> Result),
    /// Virtual routers, by the words that the text's claims begin with.
    Routers(&'static str),
}

impl SimFigure {
    /// Returns the figures of a text, in its order.
    pub fn of(text: &str) -> impl Iterator<Item = &'static Self> {
        FIGURES.iter().filter(move |figure| figure.text == text)
    }

    /// Makes it, and judges it as the row of table `sim` does that it is of.
    ///
    /// # Errors
    /// The simulation cannot go on.
    pub fn record(&self, rec: &mut Recording<'_>) -> Result {
        match self.made {
            SimFigureKind::Row(show) => show(rec),
            SimFigureKind::Routers(label) => routers::show_figure(rec, label),
        }
    }
}

/// Figure 5 of the XTC text: at virtual routers, and by the manager that ships.
fn held_rates(rec: &mut Recording<'_>) -> Result {
    routers::show_figure(rec, "figure 5")?;
    rec.within("held/", held::show)
}

const FIGURES: &[SimFigure] = &[
    jitter("rtp", "a stream beside two busy domains, under credit and with EDF"),
    jitter("shares", "shares of a stream and two busy domains, under credit and with EDF"),
    SimFigure {
        text: "iip",
        name: "all",
        title: "figures 5 to 11, from the same runs",
        made: SimFigureKind::Row(iip_node::show),
    },
    SimFigure {
        text: "em",
        name: "table2",
        title: "seven virtual routers in a line",
        made: SimFigureKind::Row(em_network::table2),
    },
    SimFigure {
        text: "em",
        name: "table3",
        title: "and a tunnel, without and with a limit",
        made: SimFigureKind::Row(em_network::table3),
    },
    SimFigure {
        text: "xtc",
        name: "table1",
        title: "rate by cap: five caps predicted from five others",
        made: SimFigureKind::Row(caps::show),
    },
    SimFigure {
        text: "xtc",
        name: "fig5",
        title: "rate and oscillation by set-point",
        made: SimFigureKind::Row(held_rates),
    },
    xtc("fig6", "figure 6", "caps and feedback, without and with a busy process"),
    xtc("fig7", "figure 7", "a probe beside UDP"),
    xtc("fig8", "figure 8", "a probe beside TCP"),
    xtc("fig9", "figure 9", "PI and dead-beat, UDP"),
    xtc("fig10", "figure 10", "PI and dead-beat, TCP"),
    xtc("fig11", "figure 11", "PI with a least cap, UDP"),
    xtc("fig12", "figure 12", "PI with a least cap, TCP"),
    xtc("fig13", "figure 13", "PI and dead-beat with a least cap of 3 %, UDP"),
    xtc("fig14", "figure 14", "PI and dead-beat with a least cap of 3 %, TCP"),
    xtc("fig15", "figure 15", "six TCP routers in two configurations"),
    xtc("table2", "table 2", "what six TCP routers forward together"),
    xtc("fig16", "figure 16", "delay through six TCP routers"),
    xtc("fig17", "figure 17", "UDP beside TCP"),
    xtc("fig18", "figure 18", "fairness by the number of flows"),
    xtc("fig20", "figure 20", "a probe through three routers in a line"),
];

const fn jitter(name: &'static str, title: &'static str) -> SimFigure {
    SimFigure { text: "jitter", name, title, made: SimFigureKind::Row(stream::show) }
}

const fn xtc(name: &'static str, label: &'static str, title: &'static str) -> SimFigure {
    SimFigure { text: "xtc", name, title, made: SimFigureKind::Routers(label) }
}

#[cfg(test)]
mod tests {
    use super::super::RouterScenario;
    use super::*;

    /// Goal: no name makes nothing. What virtual routers show is found by the words that claims of
    /// the scenario files begin with.
    #[test]
    fn each_figure_of_virtual_routers_has_claims() {
        let files = ["operating-range", "virtual-routers", "router-line"].map(|name| {
            let path = format!("{}/../scenarios/sim/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            RouterScenario::parse(name, &std::fs::read_to_string(path).unwrap()).unwrap()
        });
        let mut claims = 0;
        for figure in FIGURES {
            let SimFigureKind::Routers(label) = figure.made else { continue };
            let parts: Vec<_> = files.iter().filter_map(|file| file.of_figure(label)).collect();
            let own: usize = parts.iter().map(|one| one.orders.len() + one.likenesses.len()).sum();
            assert!(own > 0 && parts.iter().all(|one| !one.cases.is_empty()), "{}", figure.name);
            claims += own;
        }
        let figure5 = files[0].of_figure("figure 5").unwrap().orders.len();
        let all: usize = files.iter().map(|one| one.orders.len() + one.likenesses.len()).sum();
        assert_eq!(claims + figure5, all, "each claim is of a figure that can be asked for");
    }
}
