// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as people read them, and the whole as a page of text.

use std::fmt::Write;

use super::model::{Row, RowKind, RowSide, ScreenModel, ShownDirection, Sort};

/// Returns a page for `--once`: a line for each port, tenant and vif, and direction.
pub(super) fn page(model: &ScreenModel) -> String {
    let mut page = format!("{}\n", head(model));
    let _fits = writeln!(
        page,
        "{:<20} {:<7} {:>8} {:>8} {:>8} {:>6} {:>7} {:>8} {:>8}  WHY",
        "NAME", "WAY", "OFFERED", "RATE", "GUAR", "%", "QUEUE", "DELAY", "DROPS/s"
    );
    for row in model.sorted(Sort::Name, ShownDirection::Send, false) {
        for way in [ShownDirection::Send, ShownDirection::Receive] {
            let side = row.side(way);
            let standing = side.standing.then_some("standing");
            let drops_by = side.drops_per_s_by.keys().map(String::as_str);
            let marked = (side.marks_per_s > 0.0).then_some("marked");
            let reasons: Vec<&str> = standing.into_iter().chain(marked).chain(drops_by).collect();
            let line = format!(
                "{:<20} {:<7} {:>8} {:>8} {:>8} {:>6} {:>7} {:>8} {:>8}  {}",
                name(row),
                way.name(),
                bits(side.offered_bps),
                bits(side.rate_bps),
                guarantee(side),
                percent(side),
                side.queue_packets,
                delay(side),
                drops(side),
                reasons.join(", ")
            );
            page.push_str(line.trim_end());
            page.push('\n');
        }
    }
    let lines = model.rows.iter().filter_map(|row| Some((row, cycle(row)?)));
    lines.for_each(|(row, cycle)| page += &format!("{}: {cycle}\n", name(row)));
    page
}

/// Describes the cycle of a port, or the phase of a tenant.
pub(super) fn cycle(row: &Row) -> Option<String> {
    if let Some(phase) = row.phase_ns {
        return Some(format!("phase {}", nanos(phase)));
    }
    let of = row.cycle?;
    let (met, missed) = (of.phases.met, of.phases.missed);
    let late = of.phases.late;
    let float = super::model::float;
    Some(format!(
        "cycle {}, {:.2} % of {} phases missed, late {} (p50) {} (p99) {} (p99.9)",
        nanos(of.length_ns),
        100.0 * float(missed) / float(met.saturating_add(missed).max(1)),
        count(float(met.saturating_add(missed))),
        nanos(late.p50_ns),
        nanos(late.p99_ns),
        nanos(late.p999_ns)
    ))
}

/// Returns a line about node and worker.
pub(super) fn head(model: &ScreenModel) -> String {
    let mut head = format!("{}  up {}", model.node, time(model.uptime_s));
    if let Some(worker) = model.worker {
        let _fits = write!(
            head,
            "  worker {:.0} % busy, late {} (p99) {} (most)  frames free {} of {}",
            worker.busy * 100.0,
            nanos(worker.lateness_p99_ns),
            nanos(worker.lateness_max_ns),
            worker.frames_free,
            worker.frames
        );
    }
    head
}

/// Indents a vif below its tenant.
pub(super) fn name(row: &Row) -> String {
    match row.kind {
        RowKind::Vif => format!("  {}", row.name),
        RowKind::Port => format!("{} (port)", row.name),
        RowKind::Slice => row.name.clone(),
    }
}

pub(super) fn guarantee(side: &RowSide) -> String {
    match side.guaranteed_bps {
        0 => "-".to_owned(),
        bps => bits(super::model::float(bps)),
    }
}

pub(super) fn percent(side: &RowSide) -> String {
    side.share().map_or_else(|| "-".to_owned(), |share| format!("{:.0}", share * 100.0))
}

pub(super) fn delay(side: &RowSide) -> String {
    duration(side.delay_s)
}

fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds <= 0.0 => "0".to_owned(),
        seconds if seconds < 1e-3 => format!("{:.0}us", seconds * 1e6),
        seconds if seconds < 0.1 => format!("{:.1}ms", seconds * 1e3),
        seconds if seconds < 1.0 => format!("{:.0}ms", seconds * 1e3),
        seconds => format!("{seconds:.1}s"),
    }
}

/// Describes the queue beyond its length: `, 3 flows (1 sparse), 12 marks/s, smooth from 41.0ms`.
pub(super) fn queue(side: &RowSide) -> String {
    let mut text = String::new();
    if let Some(flows) = side.flows {
        let _fits = write!(text, ", {flows} {}", if flows == 1 { "flow" } else { "flows" });
        if flows > 0 {
            let _fits = write!(text, " ({} sparse)", side.sparse_flows);
        }
    }
    if side.marks_per_s > 0.0 {
        let _fits = write!(text, ", {} marks/s", count(side.marks_per_s));
    }
    if let Some(seconds) = side.smooth_s {
        let _fits = write!(text, ", smooth from {}", duration(seconds));
    }
    text
}

pub(super) fn drops(side: &RowSide) -> String {
    if side.drops_per_s > 0.0 { count(side.drops_per_s) } else { "0".to_owned() }
}

/// Returns a number with three digits and the unit's letter: `12.3M`.
pub(super) fn bits(bps: f64) -> String {
    count(bps)
}

pub(super) fn count(value: f64) -> String {
    let (value, letter) = match value {
        value if value < 999.5 => return format!("{value:.0}"),
        value if value < 999_500.0 => (value / 1e3, 'k'),
        value if value < 999_500_000.0 => (value / 1e6, 'M'),
        value => (value / 1e9, 'G'),
    };
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{letter}")
}

fn nanos(nanos: u64) -> String {
    match super::model::float(nanos) / 1e3 {
        micros if micros < 1e3 => format!("{micros:.0}us"),
        micros if micros < 1e6 => format!("{:.1}ms", micros / 1e3),
        micros => format!("{:.1}s", micros / 1e6),
    }
}

/// Returns a time as `3d 04:05:06` or `04:05:06`.
fn time(seconds: f64) -> String {
    let mut left = seconds.max(0.0);
    let mut part = |length: f64| {
        let whole = (left / length).floor();
        left -= whole * length;
        whole
    };
    let (days, hours, minutes) = (part(86400.0), part(3600.0), part(60.0));
    let clock = format!("{hours:02.0}:{minutes:02.0}:{:02.0}", left.floor());
    if days > 0.0 { format!("{days:.0}d {clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_letter() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.5, "1.00k"),
            (12_345.0, "12.3k"),
            (999_499.0, "999k"),
            (30e6, "30.0M"),
            (1.5e9, "1.50G"),
            (40e9, "40.0G"),
        ] {
            assert_eq!(count(value), text, "{value}");
        }
        assert_eq!((time(3_599.9), time(90_061.0)), ("00:59:59".into(), "1d 01:01:01".into()));
        assert_eq!((nanos(70_300), nanos(2_500_000)), ("70us".to_owned(), "2.5ms".to_owned()));
    }
}
