// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Charts of results: rates over time, bars beside each other, distributions of delay, points over
//! two axes.
//!
//! A chart is data ([`Lines`], [`Bars`], [`Distribution`], [`Points`]). Drawing it returns an
//! [`Svg`], which can be converted to a PNG. Nothing here reads or writes a file. Colour-blind
//! people can tell the colours apart (Okabe and Ito 2008), every curve has its name beside it, and
//! the background is white, so that a chart looks the same on a light and on a dark page.
//!
//! ```
//! use weir_plot::{Lines, Panel, PlotLine};
//!
//! let gold = PlotLine::new("gold", vec![30e6, 29e6, 31e6]).guaranteed(30e6);
//! let chart = Lines {
//!     title: "Under Weir".into(),
//!     unit: "bit/s".into(),
//!     interval_s: 1.0,
//!     panels: vec![Panel { title: String::new(), lines: vec![gold] }],
//! };
//! let svg = chart.draw()?;
//! assert!(svg.as_str().contains("gold"));
//! assert!(svg.to_png(2.0)?.starts_with(b"\x89PNG"));
//! # Ok::<(), weir_plot::PlotError>(())
//! ```

mod bars;
mod distribution;
mod lines;
mod points;
mod style;
mod svg;

pub use bars::{Bar, BarGroup, Bars};
pub use distribution::{Curve, Distribution};
pub use lines::{Lines, Panel, PlotLine};
pub use points::{PointSet, Points};
pub use svg::{PlotError, Svg};
