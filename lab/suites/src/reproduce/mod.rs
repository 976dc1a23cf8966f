// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments of a text, made again: *before* is what the text had, *after* is Weir.
//!
//! A [`scenario`] says what a figure is made of, [`runner`] makes it and keeps its series ([`runs`]
//! has their names), [`judge`] holds it against bounds, [`figure`] draws it as the text did,
//! [`report`] puts text, before and after side by side, from result files alone.

use weir_experiment::prelude::*;

pub mod derive;
mod disk;
pub mod em;
pub mod em_figures;
pub mod figure;
mod generated;
pub mod iip;
pub mod interval;
pub mod jitter;
pub mod judge;
mod problem;
pub mod report;
pub mod runner;
pub mod runs;
pub mod scenario;
pub mod stage;
pub mod xtc;

pub use runner::RunPlace;
pub use scenario::{Scenario, VARIANTS, Variant};

/// The figures of the Netback text, then what it left open; each with its scenario.
pub const NETBACK: [(&str, &str); 11] = [
    ("fig5", include_str!("../../../scenarios/netback/fig5.toml")),
    ("fig6", include_str!("../../../scenarios/netback/fig6.toml")),
    ("fig7", include_str!("../../../scenarios/netback/fig7.toml")),
    ("fig8", include_str!("../../../scenarios/netback/fig8.toml")),
    ("fig9", include_str!("../../../scenarios/netback/fig9.toml")),
    ("fig10", include_str!("../../../scenarios/netback/fig10.toml")),
    ("fig11", include_str!("../../../scenarios/netback/fig11.toml")),
    ("fig12", include_str!("../../../scenarios/netback/fig12.toml")),
    ("tenants", include_str!("../../../scenarios/netback/tenants.toml")),
    ("sizes", include_str!("../../../scenarios/netback/sizes.toml")),
    ("gigabit", include_str!("../../../scenarios/netback/gigabit.toml")),
];

/// The scenario of a figure of the Netback text.
pub fn netback(figure: &str) -> Result<Scenario> {
    let found = NETBACK.iter().find(|(name, _)| *name == figure);
    let (name, text) = found.ok_or_else(|| {
        let names: Vec<&str> = NETBACK.iter().map(|(name, _)| *name).collect();
        let what = format!("there are {}", names.join(", "));
        ExperimentError::Scenario { name: figure.to_owned(), what }
    })?;
    Scenario::parse(name, text)
}
