// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names, colours and text of the input appear in the drawing: names in the SVG text, colours and
//! letters in the pixels.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use resvg::tiny_skia::Pixmap;
use weir_plot::{
    Bar, BarGroup, Bars, Curve, Distribution, Lines, Panel, PlotError, PlotLine, PointSet, Points,
    Svg,
};

fn lines(lines: Vec<PlotLine>) -> Result<Svg, PlotError> {
    let panel = |title: &str| Panel { title: title.to_string(), lines: lines.clone() };
    let (title, unit) = ("A title".to_string(), "bit/s".to_string());
    Lines { title, unit, interval_s: 1.0, panels: vec![panel("left"), panel("right")] }.draw()
}

fn bars(value: f64) -> Result<Svg, PlotError> {
    let bar = |name: &str, value| Bar { name: name.to_string(), value };
    let bars = vec![bar("bridge", value), bar("Weir", value)];
    let group = BarGroup { name: "gold".to_string(), guarantee: Some(30e6), bars };
    let (title, unit) = ("A title".to_string(), "bit/s".to_string());
    Bars { title, unit, groups: vec![group] }.draw()
}

fn distribution(samples: Vec<f64>) -> Result<Svg, PlotError> {
    let curves = vec![Curve { name: "Weir".to_string(), samples }];
    let (title, quantity) = ("A title".to_string(), "delay".to_string());
    Distribution { title, quantity, unit: "s".to_string(), curves }.draw()
}

/// Counts the coloured pixels of a picture, and the nearly black ones of its title.
fn inks(svg: &Svg) -> (usize, usize) {
    let picture = Pixmap::decode_png(&svg.to_png(1.0).unwrap()).unwrap();
    let channels = |p: &resvg::tiny_skia::PremultipliedColorU8| [p.red(), p.green(), p.blue()];
    let all: Vec<_> = picture.pixels().iter().map(channels).collect();
    let spread = |c: &&[u8; 3]| c.iter().max().unwrap() - c.iter().min().unwrap() > 80;
    let dark = |c: &&[u8; 3]| c.iter().all(|channel| *channel < 0x50);
    let title = &all[..usize::try_from(picture.width()).unwrap() * 34];
    (all.iter().filter(spread).count(), title.iter().filter(dark).count())
}

#[test]
fn intervals_and_rows_take_their_place() {
    let flat = |line: PlotLine| lines(vec![line]).unwrap();
    let line = || PlotLine::new("gold", vec![10e6, 20e6]);
    let strokes = |svg: &Svg| svg.as_str().matches("<polyline").count();
    let (without, with) = (flat(line()), flat(line().within(vec![1e6, 2e6])));
    // Two samples in each of two panels.
    assert_eq!(strokes(&with), strokes(&without) + 4);
    let panel = |title: &str| Panel { title: title.to_string(), lines: vec![line()] };
    let panels = ["one", "two", "three", "four"].map(panel).into();
    let chart = Lines { title: String::new(), unit: "bit/s".to_string(), interval_s: 1.0, panels };
    let (row, square) = (chart.draw().unwrap(), chart.draw_rows(2).unwrap());
    assert!(row.as_str().contains("width=\"2080\" height=\"420\""));
    assert!(square.as_str().contains("width=\"1040\" height=\"790\""));
    // Beside each other in two rows are quantities of another size.
    let panel = |(title, bps): (&str, f64)| Panel {
        title: title.to_string(),
        lines: vec![PlotLine::new("gold", vec![bps; 2])],
    };
    let panels = [("one", 20e6), ("two", 20e3), ("three", 10e6), ("four", 10e3)].map(panel).into();
    let chart = Lines { title: String::new(), unit: "bit/s".to_string(), interval_s: 1.0, panels };
    let units = |svg: &Svg| ["Mbit/s", "kbit/s"].map(|unit| svg.as_str().matches(unit).count());
    assert_eq!(units(&chart.draw().unwrap()), [4, 0]);
    assert_eq!(units(&chart.draw_rows(2).unwrap()), [2, 2]);
}

#[test]
fn every_chart_shows_its_names_colours_and_letters() {
    let gold = PlotLine::new("gold", vec![10e6, 20e6, 30e6]).guaranteed(25e6);
    for (svg, words) in [
        (
            lines(vec![gold]).unwrap(),
            vec!["A title", "gold", "left", "right", "Mbit/s", "guaranteed"],
        ),
        (bars(20e6).unwrap(), vec!["A title", "gold", "bridge", "20.0", "guaranteed"]),
        (distribution(vec![1e-3, 2e-3]).unwrap(), vec!["A title", "Weir: p99 2 ms", "50 %"]),
    ] {
        for word in words {
            assert!(svg.as_str().contains(word), "no '{word}' in {}", svg.as_str());
        }
        let (coloured, dark) = inks(&svg);
        assert!(coloured > 300, "only {coloured} coloured pixels");
        // A title without letters is what a machine without fonts would get.
        assert!(dark > 30, "only {dark} dark pixels in the title: are there letters?");
    }
}

/// Goal: a title is not cut off, and the names below two bars do not cover each other.
#[test]
fn a_title_and_the_names_of_bars_have_room() {
    let bar = |name: &str| Bar { name: name.to_string(), value: 1.0 };
    let bars = vec![bar("shares alone"), bar("real-time class")];
    let group = BarGroup { name: "bulk".to_string(), guarantee: None, bars };
    let (title, unit) = ("of at least sixty letters ".repeat(3), "bit/s".to_string());
    let svg = Bars { title: title.clone(), unit, groups: vec![group] }.draw().unwrap();
    let number = |text: &str, key: &str| -> i32 {
        let (_, rest) = text.split_once(key).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let letters = i32::try_from(title.len()).unwrap();
    assert!(number(svg.as_str(), "<svg width=\"") > letters * 8);
    let middle = |name: &str| {
        let before = svg.as_str().split(name).next().unwrap();
        number(before.rsplit("<text").next().unwrap(), "x=\"")
    };
    let apart = middle("real-time class") - middle("shares alone");
    assert!(apart > 15 * 6, "{apart} pixels from one name's middle to the next one's");
}

#[test]
fn what_cannot_be_drawn_is_refused_by_name() {
    assert!(matches!(lines(Vec::new()), Err(PlotError::Empty(_))));
    assert!(matches!(lines(vec![PlotLine::new("gold", Vec::new())]), Err(PlotError::Empty(_))));
    let nan = lines(vec![PlotLine::new("gold", vec![f64::NAN])]).unwrap_err();
    assert_eq!(nan.to_string(), "'gold' has a sample that is no finite number");
    assert!(matches!(bars(-1.0), Err(PlotError::NotFinite(_))));
    assert!(matches!(distribution(vec![0.0]), Err(PlotError::Empty(_))));
    let svg = bars(1.0).unwrap();
    assert!(matches!(svg.to_png(0.0), Err(PlotError::Scale(_))));
    assert!(matches!(svg.to_png(1e6), Err(PlotError::Scale(_))));
}

#[test]
fn a_name_is_text_and_never_markup() {
    let svg = lines(vec![PlotLine::new("a<b>&\"c", vec![1.0, 2.0])]).unwrap();
    assert!(!svg.as_str().contains("<b>"));
    assert!(svg.to_png(1.0).is_ok());
}

#[test]
fn points_their_bars_and_the_diagonal_take_their_place() {
    let set = PointSet {
        name: "rate".to_string(),
        points: vec![(10.0, 20e3), (20.0, 40e3)],
        halves: vec![1e3; 2],
        joined: true,
    };
    let axis = |name: &str, unit: &str| (name.to_string(), unit.to_string());
    let chart = |sets: Vec<PointSet>, diagonal| Points {
        title: "A title".to_string(),
        x: axis("cap", "%"),
        y: axis("rate", "packet/s"),
        diagonal,
        sets,
    };
    let svg = chart(vec![set.clone()], false).draw().unwrap();
    for text in ["A title", "cap (%)", "rate (kpacket/s)"] {
        assert!(svg.as_str().contains(text), "{text}");
    }
    let count = |svg: &Svg, what: &str| svg.as_str().matches(what).count();
    assert_eq!(count(&svg, "<circle"), 2);
    let with = chart(vec![set.clone()], true).draw().unwrap();
    assert_eq!(count(&with, "<polyline"), count(&svg, "<polyline") + 1);
    assert!(matches!(chart(vec![], true).draw(), Err(PlotError::Empty(_))));
    let wrong = PointSet { points: vec![(f64::NAN, 1.0)], ..set };
    assert!(matches!(chart(vec![wrong], false).draw(), Err(PlotError::NotFinite(_))));
}
