// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU model of what was measured, as a file for `weir plan` and for the node's own watch.

use std::path::Path;

use weir_platform::failure::Failure;
use weir_result::Origin;
use weir_tester::{CpuModel, CpuSurface, MeasurementReport};

/// Fits the CPU model and writes it with what it was fitted on.
pub(super) fn write_model(
    path: &Path,
    report: &MeasurementReport,
    origin: &Origin,
) -> Result<(), Failure> {
    let points = CpuModel::points(&report.suite);
    let surface = CpuSurface::of(&points, false);
    let surface = surface.map_err(|error| format!("--model {}: {error}", path.display()))?;
    let r_square = surface.fit().r_square;
    if r_square < MODEL_R_SQUARE_MIN {
        return Err(format!(
            "--model {}: R² is {r_square:.2}, at least {MODEL_R_SQUARE_MIN} is needed: the \
             processors did other work than forwarding",
            path.display()
        )
        .into());
    }
    let model = CpuModel {
        version: CpuModel::VERSION,
        node: report.dut.clone(),
        fitted_by: format!("weir {}: {}", origin.commit, origin.command),
        fitted_at: origin.start.clone(),
        processor: origin.machine.cpu.clone(),
        cores: origin.machine.cores,
        measured: CpuModel::sizes(&points),
        surface,
    };
    if let Some(flaw) = model.flaw() {
        let path = path.display();
        return Err(format!("--model {path}: {flaw}: the loads do not show its costs").into());
    }
    let text = serde_json::to_string_pretty(&model)? + "\n";
    Ok(std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// One more than the surface has terms.
pub(super) const MODEL_POINTS_MIN: usize = 4;
/// The least part of the variance that a model must explain; the text's worst line has 0.84.
const MODEL_R_SQUARE_MIN: f64 = 0.5;
