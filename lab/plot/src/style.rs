// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The style of all charts: paper, ink, colours, letters, magnitudes.

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Text;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontFamily, FontStyle, IntoFont, RGBColor, TRANSPARENT, TextStyle, WHITE};

use crate::svg::{PlotError, Svg};

/// A white sheet. Pixels are those of the SVG.
pub(crate) type Paper<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(crate) const SOFT: RGBColor = RGBColor(0x5f, 0x5f, 0x5f);
pub(crate) const GRID: RGBColor = RGBColor(0xe3, 0xe3, 0xe3);
pub(crate) const AXIS: RGBColor = RGBColor(0x8a, 0x8a, 0x8a);

/// Sizes of letters in units of `plotters`, of which [`SIZE_A_PIXEL`] are a pixel of the SVG.
pub(crate) const TITLE: f64 = 21.0;
pub(crate) const LABEL: f64 = 16.0;
pub(crate) const SMALL: f64 = 14.0;

/// Returns the colour of the k-th line. Colour-blind people can tell these colours apart. Yellow,
/// which is hard to read on white, is not among them.
pub(crate) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Calls a function that draws on a white sheet of that size, and returns the chart.
pub(crate) fn on_paper(
    size: (u32, u32),
    draw: impl FnOnce(&Paper<'_>) -> Result<(), PlotError>,
) -> Result<Svg, PlotError> {
    let mut text = String::new();
    {
        let paper = SVGBackend::with_string(&mut text, size).into_drawing_area();
        paper.fill(&WHITE).map_err(refused)?;
        draw(&paper)?;
        paper.present().map_err(refused)?;
    }
    Ok(Svg(text))
}

/// Returns the style of letters of that size and colour.
pub(crate) fn letters(size: f64, colour: RGBColor) -> TextStyle<'static> {
    (FontFamily::Name(FAMILIES), size).into_font().color(&colour)
}

/// Returns the style of bold letters of that size and colour.
pub(crate) fn bold(size: f64, colour: RGBColor) -> TextStyle<'static> {
    (FontFamily::Name(FAMILIES), size, FontStyle::Bold).into_font().color(&colour)
}

/// Writes `text` so that the named point of its box lies at `at`.
pub(crate) fn write(
    paper: &Paper<'_>,
    text: &str,
    at: (i32, i32),
    style: &TextStyle<'_>,
    anchor: (HPos, VPos),
) -> Result<(), PlotError> {
    let style = style.pos(Pos::new(anchor.0, anchor.1));
    paper.draw(&Text::new(text.to_string(), at, style)).map_err(refused)
}

/// Writes the title and, below it, a line that explains how to read the chart.
pub(crate) fn head(paper: &Paper<'_>, title: &str, key: &str) -> Result<(), PlotError> {
    let corner = (HPos::Left, VPos::Top);
    write(paper, title, (MARGIN, 12), &bold(TITLE, INK), corner)?;
    write(paper, key, (MARGIN, 38), &letters(SMALL, SOFT), corner)
}

type Chart<'p, X, Y> = ChartContext<'p, SVGBackend<'p>, Cartesian2d<X, Y>>;

/// The axes of a chart, with their position and their labels.
pub(crate) struct Axes<'a> {
    /// Pixels above the drawing, to its right, and to its left for labels.
    pub(crate) top: i32,
    pub(crate) right: i32,
    pub(crate) left: i32,
    /// The approximate number of labels on each axis.
    pub(crate) labels: [usize; 2],
    pub(crate) names: [&'a str; 2],
    pub(crate) formats: [&'a dyn Fn(&f64) -> String; 2],
    /// True if the grid has vertical lines, too.
    pub(crate) upright: bool,
}

impl Axes<'_> {
    /// Draws the axes over these ranges, and returns the chart to draw in.
    pub(crate) fn draw<'p, X, Y>(
        &self,
        paper: &Paper<'p>,
        x: X,
        y: Y,
    ) -> Result<Chart<'p, X::CoordDescType, Y::CoordDescType>, PlotError>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    {
        let mut chart = ChartBuilder::on(paper)
            .margin_top(self.top)
            .margin_left(MARGIN - 8)
            .margin_right(self.right)
            .set_label_area_size(LabelAreaPosition::Left, self.left)
            .set_label_area_size(LabelAreaPosition::Bottom, 48)
            .build_cartesian_2d(x, y)
            .map_err(refused)?;
        let mut mesh = chart.configure_mesh();
        if !self.upright {
            mesh.disable_x_mesh();
        }
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .x_labels(self.labels[0])
            .y_labels(self.labels[1])
            .x_label_formatter(&self.formats[0])
            .y_label_formatter(&self.formats[1])
            .label_style(letters(SMALL, SOFT))
            .x_desc(self.names[0])
            .y_desc(self.names[1])
            .axis_desc_style(letters(SMALL, SOFT))
            .draw()
            .map_err(refused)?;
        Ok(chart)
    }
}

/// Returns the ends of a vertical error bar, which reaches `half` up and down, but not below the
/// axis.
pub(crate) fn error_bar((x, y): (f64, f64), half: f64) -> [(f64, f64); 2] {
    [(x, (y - half).max(0.0)), (x, y + half)]
}

/// Returns a divisor for a whole axis, and the unit with its prefix: 100e6 bit/s are 100 `Mbit/s`.
pub(crate) fn magnitude(greatest: f64, unit: &str) -> (f64, String) {
    if unit == "1" || greatest <= 0.0 {
        return (1.0, if unit == "1" { String::new() } else { unit.to_string() });
    }
    let prefixes: &[(f64, &str)] = if unit == "s" {
        &[(1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")]
    } else {
        &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]
    };
    let fits = prefixes.iter().find(|(divisor, _)| greatest >= *divisor);
    let (divisor, prefix) = fits.copied().unwrap_or((1.0, ""));
    (divisor, format!("{prefix}{unit}"))
}

/// Returns the end of an axis from 0: a little above `greatest`.
pub(crate) fn headroom(greatest: f64) -> f64 {
    if greatest > 0.0 { greatest * 1.06 } else { 1.0 }
}

/// Moves labels apart that would overlap, and keeps their order. Heights count downwards. A first
/// pass, from the top, pushes each label at least `distance` below the label before. A second pass,
/// from the bottom, pushes labels back up that left the paper. If there are too many labels, some
/// end above `top`.
pub(crate) fn spread(heights: &[i32], distance: i32, top: i32, bottom: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by_key(|index| (heights[*index], *index));
    let mut placed = heights.to_vec();
    let mut floor = top;
    for index in &order {
        placed[*index] = placed[*index].max(floor);
        floor = placed[*index] + distance;
    }
    let mut ceiling = bottom;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(ceiling);
        ceiling = placed[*index] - distance;
    }
    placed
}

/// Formats a number with up to three decimals, without zeros at the end.
pub(crate) fn plain(value: &f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Converts an error of the drawing library.
pub(crate) fn refused<E: std::error::Error + Send + Sync>(
    error: DrawingAreaErrorKind<E>,
) -> PlotError {
    PlotError::Draw(error.to_string())
}

/// Rounds a length to pixels.
#[expect(clippy::cast_possible_truncation, reason = "paper is some hundred pixels wide")]
pub(crate) fn pixels(length: f64) -> i32 {
    length.round().clamp(-1e6, 1e6) as i32
}

/// Estimates the width in pixels of a text of that size.
#[expect(clippy::cast_precision_loss, reason = "a label is short")]
pub(crate) fn width(text: &str, size: f64) -> i32 {
    pixels(text.chars().count() as f64 * size / SIZE_A_PIXEL * WIDTH_OF_HEIGHT)
}

/// Returns the width of a sheet that has room for `wide` pixels and for the title.
pub(crate) fn wide_enough(wide: u32, title: &str) -> u32 {
    wide.max((width(title, TITLE) + 2 * MARGIN).unsigned_abs())
}

/// Pixels at the left edge of the paper.
pub(crate) const MARGIN: i32 = 20;

/// Units of letter size of `plotters` in a pixel of the SVG.
const SIZE_A_PIXEL: f64 = 1.24;

/// The mean width of a letter, as a part of its height.
const WIDTH_OF_HEIGHT: f64 = 0.62;

const FAMILIES: &str = "DejaVu Sans, Verdana, Helvetica, sans-serif";

/// Colours of Okabe and Ito (2008), darker ones first.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xb8, 0x86, 0x00),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_moved_apart_in_order() {
        assert_eq!(spread(&[100, 102, 20], 15, 0, 200), [100, 115, 20]);
        assert_eq!(spread(&[198, 199], 15, 0, 200), [185, 200]);
        assert_eq!(spread(&[50], 15, 0, 200), [50]);
    }

    #[test]
    fn an_axis_has_one_prefix() {
        assert_eq!(magnitude(1e8, "bit/s"), (1e6, "Mbit/s".to_string()));
        assert_eq!(magnitude(0.02, "s"), (1e-3, "ms".to_string()));
        assert_eq!(magnitude(0.0, "bit/s"), (1.0, "bit/s".to_string()));
        assert_eq!(magnitude(1e8, "1"), (1.0, String::new()));
    }
}
