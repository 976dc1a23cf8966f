// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws one chart of each kind from invented samples into `out/gallery/`, to be looked at:
//! `cargo run -p weir-plot --example gallery`.

use std::error::Error;
use std::fs;
use std::path::Path;

use weir_plot::{Bar, BarGroup, Bars, Curve, Distribution, Lines, Panel, PlotLine, Svg};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = Path::new("out/gallery");
    fs::create_dir_all(directory)?;
    for (name, svg) in [("lines", lines()?), ("bars", bars()?), ("delay", delay()?)] {
        fs::write(directory.join(name).with_extension("svg"), svg.as_str())?;
        fs::write(directory.join(name).with_extension("png"), svg.to_png(2.0)?)?;
        println!("{}", directory.join(name).display());
    }
    Ok(())
}

fn lines() -> Result<Svg, Box<dyn Error>> {
    let wave = |mean: f64, swing: f64| -> Vec<f64> {
        (0..100)
            .map(|k| mean + swing * (f64::from(k) * 0.7).sin() * (f64::from(k) * 0.13).cos())
            .collect()
    };
    let panel = |title: &str, means: [f64; 3], swing: f64| Panel {
        title: title.to_string(),
        lines: ["gold", "silver", "flood"]
            .into_iter()
            .zip(means)
            .zip([40e6, 30e6, 15e6])
            .map(|((name, mean), guarantee)| {
                PlotLine::new(name, wave(mean, mean * swing)).guaranteed(guarantee)
            })
            .collect(),
    };
    let chart = Lines {
        title: "100 Mbit/s, three tenants, one of them floods".to_string(),
        unit: "bit/s".to_string(),
        interval_s: 0.1,
        panels: vec![
            panel("Linux bridge", [12e6, 4e6, 79e6], 0.15),
            panel("Weir", [42e6, 32e6, 25e6], 0.01),
        ],
    };
    Ok(chart.draw()?)
}

fn bars() -> Result<Svg, Box<dyn Error>> {
    let group = |name: &str, guarantee: f64, bridge: f64, weir: f64| BarGroup {
        name: name.to_string(),
        guarantee: Some(guarantee),
        bars: vec![
            Bar { name: "bridge".to_string(), value: bridge },
            Bar { name: "Weir".to_string(), value: weir },
        ],
    };
    let chart = Bars {
        title: "Worst second of each tenant".to_string(),
        unit: "bit/s".to_string(),
        groups: vec![
            group("gold", 40e6, 9.7e6, 40.6e6),
            group("silver", 30e6, 2.9e6, 30.2e6),
            group("flood", 15e6, 76e6, 24e6),
        ],
    };
    Ok(chart.draw()?)
}

fn delay() -> Result<Svg, Box<dyn Error>> {
    let spread = |middle: f64, factor: f64| -> Vec<f64> {
        (0..4000)
            .map(|k| middle * factor.powf((f64::from(k) * 0.618_034).fract() * 4.0 - 1.0))
            .collect()
    };
    let curve = |name: &str, samples| Curve { name: name.to_string(), samples };
    let chart = Distribution {
        title: "A well-behaved tenant beside a flooding one".to_string(),
        quantity: "queueing delay".to_string(),
        unit: "s".to_string(),
        curves: vec![
            curve("bridge + FIFO", spread(1.2e-3, 1.8)),
            curve("Weir", spread(14e-6, 1.5)),
        ],
    };
    Ok(chart.draw()?)
}
