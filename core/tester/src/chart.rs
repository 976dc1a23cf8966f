// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Charts as inline SVG: lines over a linear x axis, on a linear or logarithmic y axis.
//!
//! A chart is 360 units wide, as wide as a telephone's screen, with text of 11 units: it is
//! readable there without zooming, and a wider page puts several beside each other. Colours are
//! classes of the page's style sheet, which has them for light and dark.

use std::fmt::Write;

/// A line chart.
pub(crate) struct LineChart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    /// True if the y axis is logarithmic.
    pub(crate) is_log: bool,
    pub(crate) lines: Vec<ChartLine>,
}

/// One line, its points by ascending x.
pub(crate) struct ChartLine {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// An axis: what lies where.
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    ticks: Vec<f64>,
}

impl LineChart<'_> {
    /// Returns the chart with its legend; nothing without a point.
    pub(crate) fn figure(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let (Some(x), Some(y)) = (
            Axis::of(points().map(|point| point.0), false),
            Axis::of(points().map(|point| point.1), self.is_log),
        ) else {
            return String::new();
        };
        let title = escaped(self.title);
        let mut text = format!(
            "<figure><figcaption>{title}</figcaption>\n\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n"
        );
        for tick in &y.ticks {
            let (at, label) = (BOTTOM - y.place(*tick) * (BOTTOM - TOP), number(*tick));
            let _written = writeln!(
                text,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 4.0,
                at + 4.0
            );
        }
        for tick in &x.ticks {
            let (at, label) = (LEFT + x.place(*tick) * (RIGHT - LEFT), number(*tick));
            let _written = writeln!(
                text,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                BOTTOM + 15.0
            );
        }
        let _written = writeln!(
            text,
            "<text x=\"{LEFT}\" y=\"12\">{}</text>\
             <text x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            escaped(self.y_label),
            BOTTOM + 30.0,
            escaped(self.x_label)
        );
        for (index, line) in self.lines.iter().enumerate() {
            text += &line.svg(index % COLOURS, &x, &y);
        }
        text += "</svg>\n<ul class=\"legend\">";
        for (index, line) in self.lines.iter().enumerate() {
            let (colour, name) = (index % COLOURS, escaped(&line.name));
            let _written = write!(text, "<li class=\"c{colour}\">{name}</li>");
        }
        text + "</ul></figure>\n"
    }
}

impl ChartLine {
    fn svg(&self, colour: usize, x: &Axis, y: &Axis) -> String {
        let at = |point: &(f64, f64)| {
            let left = LEFT + x.place(point.0) * (RIGHT - LEFT);
            (left, BOTTOM - y.place(point.1) * (BOTTOM - TOP))
        };
        let places: Vec<(f64, f64)> =
            self.points.iter().filter(|point| !y.is_log || point.1 > 0.0).map(at).collect();
        let path: String = places.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
        let mut text = format!("<polyline class=\"c{colour}\" points=\"{}\"/>\n", path.trim_end());
        for (x, y) in places {
            let _written =
                write!(text, "<circle class=\"c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
        }
        text + "\n"
    }
}

impl Axis {
    /// Returns an axis that shows all values; a linear one begins at 0.
    fn of(values: impl Iterator<Item = f64>, is_log: bool) -> Option<Self> {
        let shown = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let (least, most) = shown
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        if !least.is_finite() {
            return None;
        }
        if is_log {
            let (first, last) = (least.log10().floor(), most.log10().ceil());
            let last = last.max(first + 1.0);
            let mut ticks = Vec::new();
            let mut decade = first;
            while decade <= last {
                ticks.push(10_f64.powf(decade));
                decade += 1.0;
            }
            return Some(Self { low: first, high: last, is_log, ticks });
        }
        let most = if most > 0.0 { most } else { 1.0 };
        let step = nice_step(most / 5.0);
        let mut ticks = vec![0.0];
        while ticks.last().is_some_and(|last| *last < most) && ticks.len() < TICKS_MAX {
            ticks.push(step * f64::from(u32::try_from(ticks.len()).unwrap_or(0)));
        }
        let high = ticks.last().copied().unwrap_or(most);
        Some(Self { low: 0.0, high, is_log, ticks })
    }

    /// Returns the place of a value, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Returns the least of 1, 2, 2.5, 5 times a power of ten that is not below `least`.
fn nice_step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * decade >= least * 0.999);
    factor.unwrap_or(10.0) * decade
}

/// Returns a number in as few digits as a label has room for: 1.5k, 20, 0.01.
pub(crate) fn number(value: f64) -> String {
    for (unit, suffix) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= unit * 0.9995 {
            return format!("{}{suffix}", short(value / unit));
        }
    }
    short(value)
}

/// Returns three significant digits, without zeros behind the point.
pub(crate) fn short(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Returns a percentage of something that was counted; a small one is not shown as zero.
pub(crate) fn percent(value: f64) -> String {
    if value > 0.0 && value < PERCENT_MIN { format!("< {PERCENT_MIN}") } else { short(value) }
}

/// Escapes text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            letter => escaped.push(letter),
        }
    }
    escaped
}

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 348.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 200.0;
const TICKS_MAX: usize = 12;
/// The least that [`short`] can show.
const PERCENT_MIN: f64 = 0.001;
/// Colours of the style sheet.
pub(crate) const COLOURS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.05, "0.05"),
            (1.0, "1"),
            (12.34, "12.3"),
            (999.6, "1k"),
            (81_274.0, "81.3k"),
            (1_488_095.0, "1.49M"),
            (1e10, "10G"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    /// Goal: one lost packet of millions is not no loss.
    #[test]
    fn a_little_is_not_shown_as_nothing() {
        let texts = [0.0, 0.000_05, 0.001, 12.5].map(percent);
        assert_eq!(texts, ["0", "< 0.001", "0.001", "12.5"]);
    }

    #[test]
    fn axes_show_all_values_with_round_ticks() {
        let linear = Axis::of([3.0, 47.0].into_iter(), false).unwrap();
        assert_eq!(linear.ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let loads = Axis::of([10.0, 110.0].into_iter(), false).unwrap();
        assert_eq!(loads.ticks, [0.0, 25.0, 50.0, 75.0, 100.0, 125.0]);
        let log = Axis::of([0.0, 30.0, 20_000.0].into_iter(), true).unwrap();
        assert_eq!(log.ticks.len(), 5, "10 to 100 000");
        assert!(log.place(30.0) > 0.0 && log.place(20_000.0) < 1.0);
        assert!(Axis::of([0.0].into_iter(), true).is_none());
        assert_eq!(Axis::of([0.0].into_iter(), false).unwrap().high, 1.0);
    }

    #[test]
    fn a_chart_escapes_what_it_is_told_and_stays_inside() {
        let chart = LineChart {
            title: "a < b",
            x_label: "x",
            y_label: "y & z",
            is_log: true,
            lines: vec![ChartLine { name: "<i>".into(), points: vec![(0.0, 1.0), (9.0, 1e6)] }],
        };
        let svg = chart.figure();
        assert!(svg.contains("a &lt; b") && svg.contains("y &amp; z") && svg.contains("&lt;i&gt;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let empty = LineChart { lines: Vec::new(), ..chart };
        assert_eq!(empty.figure(), "");
    }
}
