// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points over two axes: what was seen at each setting, or what was said beside what was seen.

use plotters::element::{Circle, PathElement};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use crate::style::{
    AXIS, Axes, LABEL, MARGIN, colour, error_bar, head, headroom, letters, magnitude, on_paper,
    plain, refused, wide_enough, width, write,
};
use crate::svg::{PlotError, Svg};

/// A chart of points over two linear axes from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// A title of one line.
    pub title: String,
    /// The quantity on the horizontal axis, and its unit.
    pub x: (String, String),
    /// The quantity on the vertical axis, and its unit.
    pub y: (String, String),
    /// Draws a grey line where both quantities are equal.
    pub diagonal: bool,
    /// One for each thing compared.
    pub sets: Vec<PointSet>,
}

/// The points of one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct PointSet {
    /// Its name, written above the points in their colour.
    pub name: String,
    /// The points; no coordinate is below 0.
    pub points: Vec<(f64, f64)>,
    /// Half the length of each point's error bar; empty: no bars.
    pub halves: Vec<f64>,
    /// Joins the points by a line, in their order.
    pub joined: bool,
}

impl PointSet {
    /// Makes a set of points that a line joins.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, halves: Vec::new(), joined: true }
    }

    /// Makes a set of points without a line.
    pub fn scatter(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { joined: false, ..Self::line(name, points) }
    }

    /// Gives each point an error bar. The bar of point k reaches `halves[k]` up and down.
    #[must_use]
    pub fn within(self, halves: Vec<f64>) -> Self {
        Self { halves, ..self }
    }
}

impl Points {
    /// Draws the chart.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        let (right, top) = self.ends()?;
        let ((x_divisor, x_unit), (y_divisor, y_unit)) =
            (magnitude(right, &self.x.1), magnitude(top, &self.y.1));
        on_paper((wide_enough(WIDTH, &self.title), HEIGHT), |paper| {
            head(paper, &self.title, "")?;
            let mut left = MARGIN;
            for (index, set) in self.sets.iter().enumerate() {
                let style = letters(LABEL, colour(index));
                write(paper, &set.name, (left, 40), &style, (HPos::Left, VPos::Top))?;
                left += width(&set.name, LABEL) + 24;
            }
            let (x, y) = (described(&self.x.0, &x_unit), described(&self.y.0, &y_unit));
            let axes = Axes {
                top: 72,
                right: MARGIN,
                left: 64,
                labels: [8, 6],
                names: [&x, &y],
                formats: [&plain, &plain],
                upright: true,
            };
            let mut chart = axes.draw(paper, 0.0..right / x_divisor, 0.0..top / y_divisor)?;
            if self.diagonal {
                let end = right.min(top);
                let line = vec![(0.0, 0.0), (end / x_divisor, end / y_divisor)];
                chart.draw_series([PathElement::new(line, AXIS)]).map_err(refused)?;
            }
            for (index, set) in self.sets.iter().enumerate() {
                let ink = colour(index);
                let at = |(x, y): &(f64, f64)| (x / x_divisor, y / y_divisor);
                let points: Vec<_> = set.points.iter().map(at).collect();
                if set.joined {
                    let line = PathElement::new(points.clone(), ink.stroke_width(2));
                    chart.draw_series([line]).map_err(refused)?;
                }
                let bars = points.iter().zip(&set.halves);
                let bars = bars.map(|(point, half)| {
                    PathElement::new(error_bar(*point, half / y_divisor), ink)
                });
                chart.draw_series(bars).map_err(refused)?;
                let dots = points.iter().map(|point| Circle::new(*point, RADIUS, ink.filled()));
                chart.draw_series(dots).map_err(refused)?;
            }
            Ok(())
        })
    }

    /// Returns the ends of both axes, a little beyond the farthest points.
    fn ends(&self) -> Result<(f64, f64), PlotError> {
        let (mut right, mut top) = (0.0_f64, 0.0_f64);
        for set in &self.sets {
            let halves = set.halves.iter().chain(std::iter::repeat(&0.0));
            for ((x, y), half) in set.points.iter().zip(halves) {
                if ![x, y, half].into_iter().all(|value| value.is_finite()) {
                    return Err(PlotError::NotFinite(set.name.clone()));
                }
                (right, top) = (right.max(*x), top.max(y + half));
            }
        }
        if self.sets.iter().all(|set| set.points.is_empty()) {
            return Err(PlotError::Empty("no set has a point"));
        }
        Ok((headroom(right), headroom(top)))
    }
}

fn described(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name} ({unit})") }
}

const WIDTH: u32 = 760;
const HEIGHT: u32 = 440;
const RADIUS: i32 = 3;
