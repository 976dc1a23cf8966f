// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cumulative distributions: the share of the samples that are at most as large as each value.

use plotters::coord::combinators::IntoLogRange;
use plotters::element::PathElement;
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};
use weir_result::quantity;

use crate::style::{
    Axes, LABEL, colour, head, letters, on_paper, refused, spread, wide_enough, width, write,
};
use crate::svg::{PlotError, Svg};

/// A chart of cumulative distributions over a logarithmic axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// A title of one line.
    pub title: String,
    /// The name of the measured quantity, for the axis: `queueing delay`.
    pub quantity: String,
    /// Unit of all samples, as in a series: `s`.
    pub unit: String,
    /// One for each thing compared.
    pub curves: Vec<Curve>,
}

/// The samples of one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name, written beside its 99th percentile.
    pub name: String,
    /// The samples, in any order. A logarithmic axis has no zero: samples that are not above zero
    /// are drawn at its left end.
    pub samples: Vec<f64>,
}

impl Distribution {
    /// Draws the chart.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        let (least, greatest) = self.range()?;
        let names = self.curves.iter().map(|curve| width(&curve.label(&self.unit), LABEL)).max();
        let margin = names.unwrap_or(0) + 14;
        on_paper((wide_enough(WIDTH, &self.title), HEIGHT), |paper| {
            let key = format!("share of samples with a {} of at most x", self.quantity);
            head(paper, &self.title, &key)?;
            let axes = Axes {
                top: 76,
                right: margin,
                left: 52,
                labels: [8, 5],
                names: [&self.quantity, ""],
                formats: [&|x| quantity(*x, &self.unit), &|y| format!("{:.0} %", y * 100.0)],
                upright: true,
            };
            let mut chart = axes.draw(paper, (least..greatest).log_scale(), 0.0..1.0)?;
            for (index, curve) in self.curves.iter().enumerate() {
                let path = PathElement::new(curve.points(least), colour(index).stroke_width(3));
                chart.draw_series([path]).map_err(refused)?;
            }
            let (right, top) = chart.backend_coord(&(greatest, 1.0));
            // One below the other in the order of the curves, from the left one to the right one.
            let mut order: Vec<_> = self.curves.iter().enumerate().collect();
            order.sort_by(|a, b| a.1.percentile_99().total_cmp(&b.1.percentile_99()));
            let heights = spread(&vec![top + 8; order.len()], 20, top + 8, HEIGHT_END);
            for ((index, curve), height) in order.into_iter().zip(heights) {
                let (style, anchor) = (letters(LABEL, colour(index)), (HPos::Left, VPos::Center));
                write(paper, &curve.label(&self.unit), (right + 6, height), &style, anchor)?;
            }
            Ok(())
        })
    }

    /// Returns the ends of the axis, which are whole powers of ten.
    fn range(&self) -> Result<(f64, f64), PlotError> {
        let (mut least, mut greatest) = (f64::INFINITY, 0.0_f64);
        for curve in &self.curves {
            for sample in &curve.samples {
                if !sample.is_finite() {
                    return Err(PlotError::NotFinite(curve.name.clone()));
                }
                if *sample > 0.0 {
                    least = least.min(*sample);
                    greatest = greatest.max(*sample);
                }
            }
        }
        if greatest <= 0.0 {
            return Err(PlotError::Empty("no curve has a sample above zero"));
        }
        let (from, to) = (least.log10().floor(), greatest.log10().ceil());
        Ok((10_f64.powf(from), 10_f64.powf(to.max(from + 1.0))))
    }
}

impl Curve {
    fn label(&self, unit: &str) -> String {
        format!("{}: p99 {}", self.name, quantity(rounded(self.percentile_99()), unit))
    }

    fn percentile_99(&self) -> f64 {
        let sorted = self.sorted();
        sorted.get((sorted.len() * 99).div_ceil(100).max(1) - 1).copied().unwrap_or(0.0)
    }

    /// Returns the corners of the staircase: two for each of at most [`POINTS_MAX`] + 1 samples.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 samples")]
    fn points(&self, least: f64) -> Vec<(f64, f64)> {
        let sorted = self.sorted();
        let count = sorted.len();
        let step = count.div_ceil(POINTS_MAX).max(1);
        let kept = (0..count).filter(|index| index % step == 0 || index + 1 == count);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for index in kept {
            let x = sorted[index].max(least);
            let before = points.last().map_or(0.0, |(_, y)| *y);
            points.push((x, before));
            points.push((x, (index + 1) as f64 / count as f64));
        }
        points
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// Rounds a value to three digits: a percentile of a few thousand samples is no better.
fn rounded(value: f64) -> f64 {
    if value <= 0.0 {
        return value;
    }
    let unit = 10_f64.powf(value.log10().floor() - 2.0);
    (value / unit).round() * unit
}

const WIDTH: u32 = 760;
const HEIGHT: u32 = 400;
const HEIGHT_END: i32 = 340;
const POINTS_MAX: usize = 500;
