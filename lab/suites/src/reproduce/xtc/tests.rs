// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages and pictures from results that are written down here.

use weir_result::{Origin, ResultFile, Series};

use super::figures::{FIGURES, figure};
use super::{draw, page};

fn result(series: &[(&str, &str, &[f64])]) -> ResultFile {
    let mut result = ResultFile::new(Origin::default());
    for (name, unit, samples) in series {
        result.add_series(name, Series::unordered(*unit, samples.to_vec())).unwrap();
    }
    result
}

#[test]
fn a_sweep_tells_each_run_beside_its_set_point() {
    let result = result(&[
        ("udp-100/capacity", "packet/s", &[100_000.0]),
        ("udp-100/pi-1/10%/set-point", "packet/s", &[10_000.0]),
        ("udp-100/pi-1/10%/rate", "packet/s", &[9_000.0, 11_000.0]),
        ("udp-100/weir/10%/set-point", "packet/s", &[10_000.0]),
        ("udp-100/weir/10%/rate", "packet/s", &[10_000.0, 10_000.0]),
    ]);
    let table = page::table(figure("fig9").unwrap(), &result);
    let row = "| 10 %, 10.00 kp/s | 1.000 · 0.1000 | – | 1.000 · 0.0000 |";
    assert!(table.contains(row), "{table}");
    let drawn = draw::draw(figure("fig9").unwrap(), &result).unwrap();
    let names: Vec<&str> = drawn.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["udp-100-rate", "udp-100-rmse"]);
}

#[test]
fn a_probe_tells_its_time_and_its_loss() {
    let result = result(&[
        ("tcp/capacity", "packet/s", &[50_000.0]),
        ("tcp/weir/20%/set-point", "packet/s", &[10_000.0]),
        ("tcp/weir/20%/rate", "packet/s", &[10_000.0]),
        ("tcp/weir/20%/rtt", "s", &[0.001, 0.003]),
        ("tcp/weir/20%/probes", "1", &[4.0]),
        ("tcp/weir/20%/probes-failed", "1", &[2.0]),
    ]);
    let table = page::table(figure("fig8").unwrap(), &result);
    assert!(table.contains("| 20 %, 10.00 kp/s | – | – | 2.00 ms · 50.0 % |"), "{table}");
}

#[test]
fn routers_are_told_one_by_one_and_together() {
    let result = result(&[
        ("two/without/rate/1", "packet/s", &[60_000.0, 62_000.0]),
        ("two/without/rate/2", "packet/s", &[40_000.0, 38_000.0]),
        ("two/20:80/weir/rate/1", "packet/s", &[20_000.0, 20_000.0]),
        ("two/20:80/weir/rate/2", "packet/s", &[80_000.0, 78_000.0]),
        ("two/20:80/weir/set-point/1", "packet/s", &[20_000.0]),
        ("two/20:80/weir/set-point/2", "packet/s", &[80_000.0]),
    ]);
    let table = page::table(figure("fig17").unwrap(), &result);
    for part in [
        "| vr2 | 80.00 kp/s | 39.00 kp/s: 0.487 | – | 79.00 kp/s: 0.988 |",
        "| together | | 100.00 kp/s ± 0.00, min/max 0.639 | – |",
        " 99.00 kp/s ± 12.71, min/max 0.253 |",
    ] {
        assert!(table.contains(part), "{table}");
    }
    assert_eq!(draw::draw(figure("fig17").unwrap(), &result).unwrap().len(), 1);
}

#[test]
fn the_text_s_table_stands_beside_ours() {
    let result = result(&[
        ("udp-100/offered", "packet/s", &[200_000.0]),
        ("udp-100/threshold", "1", &[0.5]),
        ("udp-100/cap", "1", &[0.05, 0.1]),
        ("udp-100/mean", "packet/s", &[20_000.0, 40_000.0]),
        ("udp-100/half-interval", "packet/s", &[100.0, 0.0]),
    ]);
    let table = page::table(figure("table1").unwrap(), &result);
    assert!(table.contains("| 5 % | 0.16 | 20.00 kp/s ± 0.10: 0.10 |"), "{table}");
    assert!(table.contains("threshold 50 %"), "{table}");
}

#[test]
fn each_hop_tells_its_loss_and_its_times() {
    let hop = |name: &'static str| {
        [
            (format!("{name}/flow/times"), "s", vec![0.010, 0.014]),
            (format!("{name}/flow/due"), "packet", vec![4.0]),
            (format!("{name}/flow/failed"), "packet", vec![2.0]),
            (format!("{name}/own/times"), "s", vec![0.001; 4]),
            (format!("{name}/own/due"), "packet", vec![4.0]),
            (format!("{name}/own/failed"), "packet", vec![0.0]),
        ]
    };
    let mut series = vec![
        ("50%/weir/came".to_owned(), "packet/s", vec![20_000.0]),
        ("50%/weir/set-point".to_owned(), "packet/s", vec![10_000.0]),
        ("50%/weir/forwarded".to_owned(), "packet/s", vec![10_000.0, 9_900.0, 9_900.0]),
    ];
    series.extend(["50%/weir/hop1", "50%/weir/hop2"].into_iter().flat_map(hop));
    let series: Vec<(&str, &str, &[f64])> =
        series.iter().map(|(name, unit, of)| (name.as_str(), *unit, of.as_slice())).collect();
    let result = result(&series);
    let table = page::table(figure("fig20").unwrap(), &result);
    let row = "| 50 %, 10.00 kp/s | vr2 | – | – | 50.5 %; 50.0 %, 12.00 ms; 0.0 %, 1.00 ms |";
    assert!(table.contains(row), "{table}");
    assert!(table.contains("| vr3 | – | – | – |"), "nothing was measured there: {table}");
    let drawn = draw::draw(figure("fig20").unwrap(), &result).unwrap();
    let names: Vec<&str> = drawn.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["loss-weir", "rtt-weir"]);
}

/// Goal: a figure of which nothing was measured is an error, no empty picture and no panic.
#[test]
fn nothing_to_draw_is_told() {
    let empty = result(&[]);
    for figure in &FIGURES {
        let drawn = draw::draw(figure, &empty);
        assert!(drawn.is_err() || drawn.is_ok_and(|drawn| drawn.is_empty()), "{}", figure.name);
        assert!(page::table(figure, &empty).starts_with('|'), "{}", figure.name);
    }
}
