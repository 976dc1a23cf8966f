// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Table 1 of the IIP text, read again: CPU = a · x + b for seven frame sizes and three tenants.
//!
//! The text says that x is in thousand packets a second. At 128 bytes and 150 Mbit/s its
//! coefficients then ask for four processors, where its section 7.1 says "about 50 %" of one. With
//! x in steps of 10 Mbit/s the table gives 49 %, and 14 % beside the 16 % for 1024 bytes: within a
//! fifth of the prose for both. Read so, the points of the lines over the loads of the text's plots
//! (10 to 330 Mbit/s, as far as one processor goes) lie on one surface a tenant, of a price a
//! packet and a price a byte.

use weir_experiment::prelude::*;
use weir_tester::{BatchModel, CpuPoint, CpuSurface, LeastSquaresError};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lines = lines()?;
    prose(rec, &lines)?;
    let (mut as_steps, mut as_kpps, mut held_out) = (Vec::new(), Vec::new(), Vec::new());
    for tenant in TENANTS {
        let points = |unit| points(&lines, tenant, unit);
        as_steps.push(r_square(&points(Unit::Steps))?);
        as_kpps.push(r_square(&points(Unit::Kpps))?);
        held_out.extend(errors_of_held_out_sizes(&points(Unit::Steps), plain_surface)?);
    }
    rec.keep("text/kpps-r-square", Series::unordered("1", as_kpps))?;
    let text = "text: R² of a surface over all sizes, x in steps of 10 Mbit/s, worst tenant";
    let series = Series::unordered("1", as_steps);
    rec.claim_samples("text/r-square", text, series, Rule::Min, Bound::at_least(0.96))?;
    let text = "text: R² of the same surface with x in kpps, by that in steps, best tenant";
    let series = ["text/kpps-r-square", "text/r-square"];
    rec.claim("text/unit", text, Rule::GreatestRatio, Bound::at_most(0.98), &series)?;
    rec.keep("text/held-out", Series::unordered("%", held_out))
}

/// The prose of section 7.1 against both readings, for the tenant that it shows.
fn prose(rec: &mut Recording<'_>, lines: &[TableLine]) -> Result {
    let (mut steps, mut kpps) = (Vec::new(), Vec::new());
    for (bytes, percent) in PROSE {
        let line = lines.iter().find(|line| line.bytes == bytes && line.tenant == TENANTS[0]);
        let line = line.ok_or_else(|| told(&format!("no line of {bytes} bytes")))?;
        steps.push(line.cpu(Unit::Steps, PROSE_MBPS) / percent);
        kpps.push(line.cpu(Unit::Kpps, PROSE_MBPS) / percent);
    }
    let series = Series::unordered("1", kpps);
    let text = "text: CPU by Table 1 with x in kpps at 150 Mbit/s, by its prose, worst size";
    rec.claim_samples("text/kpps", text, series, Rule::Max, Bound::at_least(5.0))?;
    rec.keep("text/steps", Series::unordered("1", steps))?;
    for (id, rule, bound) in [
        ("text/steps-least", Rule::Min, Bound::at_least(0.8)),
        ("text/steps-most", Rule::Max, Bound::at_most(1.2)),
    ] {
        let text = "text: CPU by Table 1 with x in steps of 10 Mbit/s, by its prose";
        rec.claim(id, text, rule, bound, &["text/steps"])?;
    }
    Ok(())
}

/// A line of the table, x in the text's own unit.
pub(crate) struct TableLine {
    pub(crate) bytes: f64,
    /// `qos`, `can` or `dss`.
    pub(crate) tenant: String,
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) r_square: f64,
}

/// The unit of x.
#[derive(Clone, Copy)]
enum Unit {
    /// Steps of 10 Mbit/s.
    Steps,
    /// Thousand packets a second, as the text says.
    Kpps,
}

impl TableLine {
    /// Percent of a processor at a bit rate.
    fn cpu(&self, unit: Unit, mbps: f64) -> f64 {
        let x = match unit {
            Unit::Steps => mbps / 10.0,
            Unit::Kpps => self.kpps(mbps),
        };
        self.a.mul_add(x, self.b)
    }

    fn kpps(&self, mbps: f64) -> f64 {
        mbps * 1e3 / (8.0 * self.bytes)
    }
}

/// The points of a tenant's lines at the loads of the text's plots, as far as a processor goes.
fn points(lines: &[TableLine], tenant: &str, unit: Unit) -> Vec<CpuPoint> {
    let own = lines.iter().filter(|line| line.tenant == tenant);
    let at = |line: &TableLine, step: u32| {
        let mbps = 10.0 * f64::from(step);
        CpuPoint {
            kpps: line.kpps(mbps),
            frame_bytes: line.bytes,
            wakeups_k: 0.0,
            cpu_percent: line.cpu(unit, mbps),
        }
    };
    let all = own.flat_map(|line| (1..=33).map(move |step| at(line, step)));
    all.filter(|point| point.cpu_percent <= 100.0).collect()
}

/// Fits a surface to a tenant's lines of some sizes, x read in steps of 10 Mbit/s.
pub(crate) fn surface_of(tenant: &str, sizes: &[u16]) -> Result<CpuSurface> {
    let is_fitted = |line: &TableLine| sizes.iter().any(|size| f64::from(*size) == line.bytes);
    let lines: Vec<TableLine> = lines()?.into_iter().filter(is_fitted).collect();
    CpuSurface::of(&points(&lines, tenant, Unit::Steps), false).map_err(unfitted)
}

/// Returns the part of a processor that a line of the table gives, percent, x read so.
pub(crate) fn cpu_of(tenant: &str, size: u16, mbps: f64) -> Result<f64> {
    let lines = lines()?;
    let line = lines.iter().find(|line| line.tenant == tenant && line.bytes == f64::from(size));
    let line = line.ok_or_else(|| told(&format!("table 1 has no line of {size} bytes")))?;
    Ok(line.cpu(Unit::Steps, mbps))
}

fn r_square(points: &[CpuPoint]) -> Result<f64> {
    Ok(CpuSurface::of(points, false).map_err(unfitted)?.fit().r_square)
}

/// Fits a surface to the packets alone, and returns the points to predict as it knows them.
pub(super) fn plain_surface(fitted: &[CpuPoint], own: &[CpuPoint]) -> SurfaceFit {
    Ok((CpuSurface::of(fitted, false)?, own.to_vec()))
}

/// Fits a surface with the wake-ups that follow from the load, as [`plain_surface`].
pub(super) fn batched_surface(fitted: &[CpuPoint], own: &[CpuPoint]) -> SurfaceFit {
    let Some(batches) = BatchModel::of(fitted) else { return plain_surface(fitted, own) };
    Ok((CpuSurface::of(&batches.applied_to(fitted), true)?, batches.applied_to(own)))
}

/// A surface, and points that it predicts.
pub(super) type SurfaceFit = std::result::Result<(CpuSurface, Vec<CpuPoint>), LeastSquaresError>;

/// For each size, how far the surface of all others is from its points, in percent of a processor.
pub(super) fn errors_of_held_out_sizes(
    points: &[CpuPoint],
    fit: fn(&[CpuPoint], &[CpuPoint]) -> SurfaceFit,
) -> Result<Vec<f64>> {
    let mut errors = Vec::new();
    let mut sizes: Vec<f64> = points.iter().map(|point| point.frame_bytes).collect();
    sizes.dedup();
    for size in sizes {
        let is_held_out = |point: &&CpuPoint| point.frame_bytes.total_cmp(&size).is_eq();
        let (own, others): (Vec<CpuPoint>, Vec<CpuPoint>) =
            points.iter().partition(|point| is_held_out(point));
        let (surface, own) = fit(&others, &own).map_err(unfitted)?;
        errors.extend(own.iter().map(|point| (surface.predict(point) - point.cpu_percent).abs()));
    }
    Ok(errors)
}

pub(crate) fn lines() -> Result<Vec<TableLine>> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
    let line = |row: &str| {
        let fields: Vec<&str> = row.split(',').collect();
        let [bytes, tenant, a, b, r_square] = fields[..] else { return None };
        let number = |text: &str| text.parse::<f64>().ok();
        let [bytes, a, b, r_square] = [bytes, a, b, r_square].map(number);
        let tenant = tenant.to_owned();
        Some(TableLine { bytes: bytes?, tenant, a: a?, b: b?, r_square: r_square? })
    };
    let read = rows.map(|row| line(row).ok_or_else(|| told(&format!("table 1: {row:?}"))));
    read.collect()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unfitted(error: LeastSquaresError) -> ExperimentError {
    told(&error.to_string())
}

fn told(what: &str) -> ExperimentError {
    ExperimentError::Node(what.to_owned())
}

const TABLE: &str = include_str!("../../../scenarios/iip/table1.csv");
pub(crate) const TENANTS: [&str; 3] = ["qos", "can", "dss"];
/// Section 7.1: percent of a processor at 150 Mbit/s, by frame size.
const PROSE: [(f64, f64); 2] = [(128.0, 50.0), (1024.0, 16.0)];
const PROSE_MBPS: f64 = 150.0;

#[cfg(test)]
mod tests {
    use weir_result::{Origin, ResultFile};

    use super::*;

    /// Goal: the text's part of row 12 holds on any machine; its other part needs packets.
    #[test]
    fn the_text_is_read_as_its_prose_needs() {
        let mut silent = |_: &str| {};
        let mut rec = Recording::new(ResultFile::new(Origin::default()), true, &mut silent);
        show(&mut rec).unwrap();
        assert!(rec.result.holds() && rec.result.cases().len() == 5, "{:?}", rec.result.cases());
    }
}
