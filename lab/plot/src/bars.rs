// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of bars, with a mark at each group's guarantee.

use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor};

use crate::style::{
    AXIS, INK, LABEL, MARGIN, Paper, SMALL, SOFT, bold, colour, head, headroom, letters, magnitude,
    on_paper, pixels, refused, wide_enough, width, write,
};
use crate::svg::{PlotError, Svg};

/// A chart of groups of bars: one group a tenant, one bar for each way of running.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// A title of one line.
    pub title: String,
    /// Unit of all values, as in a series: `bit/s`.
    pub unit: String,
    /// From left to right.
    pub groups: Vec<BarGroup>,
}

/// The bars of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// The tenant.
    pub name: String,
    /// The guarantee, drawn as a mark across its bars.
    pub guarantee: Option<f64>,
    /// From left to right: the first, in grey, is what the others are compared with. The k-th has
    /// the same colour in every group.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Written below it.
    pub name: String,
    /// Its height.
    pub value: f64,
}

impl Bars {
    /// Draws the chart.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        let mut greatest = 0.0_f64;
        for group in &self.groups {
            for value in group.bars.iter().map(|bar| bar.value).chain(group.guarantee) {
                if !value.is_finite() || value < 0.0 {
                    return Err(PlotError::NotFinite(group.name.clone()));
                }
                greatest = greatest.max(value);
            }
        }
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        if bars == 0 {
            return Err(PlotError::Empty("no group has a bar"));
        }
        let names = self.groups.iter().flat_map(|group| &group.bars);
        let names = names.map(|bar| width(&bar.name, SMALL)).max().unwrap_or(0);
        let (divisor, unit) = magnitude(greatest, &self.unit);
        let pixels = f64::from(BOTTOM - TOP) / headroom(greatest);
        let scale = Scale { divisor, pixels, step: BAR.max(names) + 8 };
        let steps = i32::try_from(bars).unwrap_or(i32::MAX);
        let gaps = i32::try_from(self.groups.len()).unwrap_or(i32::MAX);
        let inside = steps.saturating_mul(scale.step).saturating_add(gaps.saturating_mul(GAP));
        let wide = inside.saturating_add(2 * MARGIN).clamp(WIDTH_MIN, WIDTH_MAX);
        let wide = wide_enough(wide.unsigned_abs(), &self.title);
        on_paper((wide, HEIGHT), |paper| {
            let guaranteed = self.groups.iter().any(|group| group.guarantee.is_some());
            let mark = if guaranteed { "; black mark: guaranteed" } else { "" };
            head(paper, &self.title, &format!("{unit}{mark}"))?;
            let mut left = MARGIN + GAP / 2;
            for group in &self.groups {
                left = group.draw(paper, left, &scale)? + GAP;
            }
            let end = i32::try_from(wide).unwrap_or(i32::MAX) - MARGIN;
            line(paper, (MARGIN, BOTTOM), (end, BOTTOM), AXIS, 1)
        })
    }
}

/// The scale that converts values to pixels and labels.
struct Scale {
    divisor: f64,
    pixels: f64,
    /// From the left edge of a bar to that of the next one.
    step: i32,
}

impl BarGroup {
    /// Draws the group from `left` on; returns its right end.
    fn draw(&self, paper: &Paper<'_>, left: i32, scale: &Scale) -> Result<i32, PlotError> {
        let height = |value: f64| BOTTOM - pixels(value * scale.pixels);
        let mut at = left;
        for (index, bar) in self.bars.iter().enumerate() {
            let (fill, ink) = match index.checked_sub(1) {
                None => (AXIS, SOFT),
                Some(index) => (colour(index), colour(index)),
            };
            let top = height(bar.value);
            let shape = Rectangle::new([(at, top), (at + BAR, BOTTOM)], fill.filled());
            paper.draw(&shape).map_err(refused)?;
            let middle = at + BAR / 2;
            let value = label(bar.value / scale.divisor);
            // A label above a bar may lie on the mark; it goes above the mark then.
            let mark = self.guarantee.map(height).filter(|mark| (top - 20..=top).contains(mark));
            let above = mark.unwrap_or(top) - 5;
            let centred = (HPos::Center, VPos::Bottom);
            write(paper, &value, (middle, above), &letters(LABEL, INK), centred)?;
            let below = (HPos::Center, VPos::Top);
            write(paper, &bar.name, (middle, BOTTOM + 6), &letters(SMALL, ink), below)?;
            at += scale.step;
        }
        let right = at - scale.step + BAR;
        if let Some(guarantee) = self.guarantee {
            let mark = height(guarantee);
            line(paper, (left - 8, mark), (right + 8, mark), INK, 3)?;
        }
        let below = (HPos::Center, VPos::Top);
        let middle = i32::midpoint(left, right);
        write(paper, &self.name, (middle, BOTTOM + 28), &bold(LABEL, INK), below)?;
        Ok(right)
    }
}

fn line(
    paper: &Paper<'_>,
    from: (i32, i32),
    to: (i32, i32),
    ink: RGBColor,
    wide: u32,
) -> Result<(), PlotError> {
    paper.draw(&PathElement::new([from, to], ink.stroke_width(wide))).map_err(refused)
}

/// Formats a value with three digits, as many as an eye reads from a bar.
fn label(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

const HEIGHT: u32 = 400;
const TOP: i32 = 80;
const BOTTOM: i32 = 340;
const BAR: i32 = 56;
const GAP: i32 = 56;
const WIDTH_MIN: i32 = 480;
const WIDTH_MAX: i32 = 8000;
