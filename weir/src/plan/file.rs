// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a plan, as all commands on running nodes take it.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::ExitCode;

use weir_plan::{NodePlan, PlanAnswer, PlanEffort, PlanRequest};
use weir_platform::failure::Failure;
use weir_platform::output;
use weir_tester::CpuModel;
use weir_units::{CpuShare, PacketRate};

use super::{text, view};

/// Reads the file of a plan.
pub(super) fn read(file: &Path) -> Result<PlanRequest, Failure> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| named(&error))?;
    let mut request = weir_plan::read_request(&text).map_err(|problems| named(&problems))?;
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    for kind in 0..request.kinds.len() {
        let Some(path) = request.kinds[kind].model.as_ref().map(|model| folder.join(model)) else {
            continue;
        };
        let model = read_model(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let set = request.model_cpu(kind, |rate, frame_bytes| share(&model, rate, frame_bytes));
        set.map_err(|(slice, why)| format!("{}: slice {slice}: {why}", path.display()))?;
    }
    Ok(request)
}

fn read_model(path: &Path) -> Result<CpuModel, Failure> {
    let model: CpuModel = serde_json::from_slice(&fs::read(path)?)?;
    match model.version {
        CpuModel::VERSION => Ok(model),
        other => Err(format!("version is {other}, {} is known", CpuModel::VERSION).into()),
    }
}

/// The upper bound of the processor time at a rate, rounded up to a millionth.
fn share(model: &CpuModel, rate: PacketRate, frame_bytes: f64) -> Result<CpuShare, String> {
    let kpps = crate::report::float(rate.as_pps()) / 1e3;
    let percent = model.upper(kpps, frame_bytes).ok_or_else(|| {
        format!("{rate} are needed, the model was fitted up to {:.3} kpps", model.kpps_max)
    })?;
    let ppm = (percent * 1e4).ceil();
    if !ppm.is_finite() || ppm >= f64::from(u32::MAX) {
        return Err(format!("the model gives {percent} % of a processor"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(CpuShare::from_ppm(ppm as u32))
}

/// Plans for running nodes: `Err` with the answer to print if the slices do not fit.
pub(super) fn placed(request: &PlanRequest) -> Result<NodePlan, PlanAnswer> {
    match weir_plan::plan(request, &PlanEffort::default()) {
        PlanAnswer::Placed(plan) => Ok(plan),
        refused @ PlanAnswer::Refused(_) => Err(refused),
    }
}

/// Prints why slices do not fit.
pub(super) fn print_refused(
    request: &PlanRequest,
    answer: &PlanAnswer,
    json: bool,
) -> Result<ExitCode, Failure> {
    if json {
        output::print_own(&view::answer(request, answer))?;
    } else {
        output::print(&text::answer(request, answer, false))?;
    }
    Ok(ExitCode::from(REFUSED))
}

/// Locks a plan's file against a second apply of it, until the result is dropped.
pub(super) fn lock(file: &Path) -> Result<File, Failure> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let opened = File::open(file).map_err(|error| named(&error))?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => {
            Err(named(&"another apply or recover of this plan runs").into())
        }
        Err(TryLockError::Error(error)) => Err(named(&error).into()),
    }
}

/// The exit status of a request that does not fit.
pub(super) const REFUSED: u8 = 5;
/// The exit status of a plan that is not held.
pub(super) const NOT_HELD: u8 = 6;

#[cfg(test)]
mod tests {
    use weir_tester::{CpuPoint, CpuSurface};

    use super::*;

    /// 2 % and half a per cent for a thousand packets, at any size.
    fn model() -> CpuModel {
        let point = |kpps: f64, frame_bytes| CpuPoint {
            kpps,
            frame_bytes,
            wakeups_k: 0.0,
            cpu_percent: 2.0 + kpps / 2.0,
        };
        let each = [128.0, 1518.0].into_iter();
        let points = each.flat_map(|bytes| [1.0, 5.0, 10.0].map(|kpps| point(kpps, bytes)));
        let text = || "x".to_owned();
        CpuModel {
            version: CpuModel::VERSION,
            node: text(),
            fitted_by: text(),
            fitted_at: text(),
            processor: text(),
            cores: 2,
            kpps_max: 10.0,
            surface: CpuSurface::of(&points.collect::<Vec<_>>(), false).unwrap(),
        }
    }

    #[test]
    fn a_plan_takes_processor_time_from_the_model_beside_it() {
        let folder = std::env::temp_dir().join(format!("weir-t-plan-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("edge.json", &serde_json::to_string(&model()).unwrap());
        let plan = |rate: &str| {
            format!(
                "[[node]]\nname = \"edge\"\nlink = \"1Gbit\"\ncpu = \"100%\"\n\
                 model = \"edge.json\"\n[[slice]]\nname = \"a\"\nsend = \"{rate}\"\n\
                 frames = \"1004B\"\n"
            )
        };
        // 4000 packets a second each way.
        write("plan.toml", &plan("32Mbit"));
        let file = folder.join("plan.toml");
        let ppm = read(&file).unwrap().slices[0].cpu[0].as_ppm();
        assert!((60_000..60_010).contains(&ppm), "{ppm}");
        write("plan.toml", &plan("48Mbit"));
        let refused = read(&file).unwrap_err().to_string();
        let why = "slice a: 12kpps are needed, the model was fitted up to 10.000 kpps";
        assert!(refused.ends_with(why), "{refused}");
        write("edge.json", "{}");
        assert!(read(&file).unwrap_err().to_string().contains("missing field"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
