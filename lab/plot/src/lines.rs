// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Charts of quantities over time, in panels. In a chart with one row, all panels share their axes,
//! so that heights can be compared. With several rows, the panels of a column share their axes, and
//! each column may show another quantity.

use plotters::element::{DashedPathElement, PathElement};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use crate::style::{
    Axes, INK, LABEL, Paper, SMALL, SOFT, bold, colour, error_bar, head, headroom, letters,
    magnitude, on_paper, plain, refused, spread, wide_enough, width, write,
};
use crate::svg::{PlotError, Svg};

/// A chart of quantities over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// A title of one line.
    pub title: String,
    /// Unit of all samples, as in a series: `bit/s`.
    pub unit: String,
    /// Seconds that each sample covers. A sample is drawn in the middle of its time.
    pub interval_s: f64,
    /// The panels, row by row, each from left to right.
    pub panels: Vec<Panel>,
}

/// One of the panels of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// A title that distinguishes the panel from others; it may be empty.
    pub title: String,
    /// The lines. The k-th line has the same colour in every panel.
    pub lines: Vec<PlotLine>,
}

/// One quantity over time.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotLine {
    name: String,
    samples: Vec<f64>,
    halves: Vec<f64>,
    guarantee: Option<f64>,
}

impl PlotLine {
    /// Makes a line. Its name is written at its end.
    pub fn new(name: impl Into<String>, samples: Vec<f64>) -> Self {
        Self { name: name.into(), samples, halves: Vec::new(), guarantee: None }
    }

    /// Adds error bars. The bar of sample k reaches `halves[k]` up and down.
    pub fn within(mut self, halves: Vec<f64>) -> Self {
        self.halves = halves;
        self
    }

    /// Adds a dashed line at the guarantee.
    pub const fn guaranteed(mut self, guarantee: f64) -> Self {
        self.guarantee = Some(guarantee);
        self
    }
}

impl Lines {
    /// Draws the chart.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        self.draw_rows(1)
    }

    /// Draws the chart with its panels in this many rows of equal length. In one row, all panels
    /// share their axes; in more, those of each column do.
    pub fn draw_rows(&self, rows: usize) -> Result<Svg, PlotError> {
        let rows = rows.clamp(1, ROWS_MAX);
        let columns = self.panels.len().div_ceil(rows).max(1);
        let shared = if rows == 1 { 1 } else { columns };
        let frames: Result<Vec<Frame>, PlotError> =
            (0..shared).map(|first| self.frame(first, shared)).collect();
        let frames = frames?;
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let height = (HEIGHT - HEAD.unsigned_abs()) * count(rows) + HEAD.unsigned_abs();
        let wide = PANEL_WIDTH.saturating_mul(count(columns)).min(WIDTH_MAX);
        let size = (wide_enough(wide, &self.title), height);
        on_paper(size, |paper| {
            let guaranteed = self.lines().any(|line| line.guarantee.is_some());
            head(paper, &self.title, if guaranteed { "dashed: guaranteed" } else { "" })?;
            let body = paper.margin(HEAD, 0, 0, 0);
            let parts = body.split_evenly((rows, columns));
            for ((panel, part), frame) in self.panels.iter().zip(&parts).zip(frames.iter().cycle())
            {
                panel.draw(paper, part, frame)?;
            }
            Ok(())
        })
    }

    fn lines(&self) -> impl Iterator<Item = &PlotLine> {
        self.panels.iter().flat_map(|panel| &panel.lines)
    }

    /// Computes the frame that every `step`-th panel shares, from panel `first` on.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 samples")]
    fn frame(&self, first: usize, step: usize) -> Result<Frame, PlotError> {
        let mut greatest = 0.0_f64;
        let mut longest = 0;
        let panels = self.panels.iter().skip(first).step_by(step);
        for line in panels.flat_map(|panel| &panel.lines) {
            let ends = line.samples.iter().zip(&line.halves).map(|(sample, half)| sample + half);
            let values = line.samples.iter().copied().chain(line.guarantee).chain(ends);
            for value in values {
                if !value.is_finite() {
                    return Err(PlotError::NotFinite(line.name.clone()));
                }
                greatest = greatest.max(value);
            }
            longest = longest.max(line.samples.len());
        }
        if longest == 0 {
            return Err(PlotError::Empty("no line has a sample"));
        }
        if !self.interval_s.is_finite() || self.interval_s <= 0.0 {
            return Err(PlotError::NotFinite("interval_s".to_string()));
        }
        let (divisor, unit) = magnitude(greatest, &self.unit);
        let names = self.lines().map(|line| width(&line.name, LABEL)).max().unwrap_or(0);
        Ok(Frame {
            divisor,
            unit,
            interval_s: self.interval_s,
            seconds: longest as f64 * self.interval_s,
            top: headroom(greatest / divisor),
            names: names + 14,
        })
    }
}

/// The axes and the unit that panels of a chart share.
struct Frame {
    divisor: f64,
    unit: String,
    interval_s: f64,
    seconds: f64,
    top: f64,
    /// Pixels that the longest name takes.
    names: i32,
}

impl Panel {
    fn draw(&self, paper: &Paper<'_>, part: &Paper<'_>, frame: &Frame) -> Result<(), PlotError> {
        let axes = Axes {
            top: 46,
            right: frame.names,
            left: 42,
            labels: [7, 6],
            names: ["seconds", ""],
            formats: [&plain, &plain],
            upright: false,
        };
        let mut chart = axes.draw(part, 0.0..frame.seconds, 0.0..frame.top)?;
        for (index, line) in self.lines.iter().enumerate() {
            let ink = colour(index);
            if let Some(guarantee) = line.guarantee {
                let height = guarantee / frame.divisor;
                let path = [(0.0, height), (frame.seconds, height)];
                let dashes = DashedPathElement::new(path, 7, 5, ink.mix(0.75).stroke_width(2));
                chart.draw_series([dashes]).map_err(refused)?;
            }
            // The first line is wider, so that it shows on both sides of a line that covers it.
            let wide = if index == 0 && self.lines.len() > 1 { 7 } else { 3 };
            let path = PathElement::new(line.points(frame), ink.stroke_width(wide));
            chart.draw_series([path]).map_err(refused)?;
            let bars = line.points(frame).into_iter().zip(&line.halves);
            let bars = bars.map(|(point, half)| {
                PathElement::new(error_bar(point, half / frame.divisor), ink.stroke_width(1))
            });
            chart.draw_series(bars).map_err(refused)?;
        }
        let corner = |x: f64, y: f64| chart.backend_coord(&(x, y));
        let (left, top) = corner(0.0, frame.top);
        let (right, bottom) = corner(frame.seconds, 0.0);
        let above = (HPos::Left, VPos::Bottom);
        write(paper, &self.title, (left, top - 22), &bold(LABEL, INK), above)?;
        write(paper, &frame.unit, (left, top - 5), &letters(SMALL, SOFT), above)?;
        let ends = self
            .lines
            .iter()
            .map(|line| line.points(frame).last().map_or(bottom, |(x, y)| corner(*x, *y).1));
        let heights = spread(&ends.collect::<Vec<_>>(), 18, top + 4, bottom - 4);
        for (index, (line, height)) in self.lines.iter().zip(heights).enumerate() {
            let style = letters(LABEL, colour(index));
            write(paper, &line.name, (right + 6, height), &style, (HPos::Left, VPos::Center))?;
        }
        Ok(())
    }
}

impl PlotLine {
    /// Returns each sample in the middle of its interval, in units of the axes.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 samples")]
    fn points(&self, frame: &Frame) -> Vec<(f64, f64)> {
        let middle = |index: usize| (index as f64 + 0.5) * frame.interval_s;
        let samples = self.samples.iter().enumerate();
        samples.map(|(index, sample)| (middle(index), sample / frame.divisor)).collect()
    }
}

const PANEL_WIDTH: u32 = 520;
const WIDTH_MAX: u32 = 8000;
const ROWS_MAX: usize = 16;
const HEIGHT: u32 = 420;
/// Pixels of the title and the key.
const HEAD: i32 = 50;
