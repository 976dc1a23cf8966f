// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a plan, as all commands on running nodes take it.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

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
        let base = share(model.base());
        request.model_cpu(kind, base, |rate, bytes| slice_share(&model, rate, bytes));
    }
    Ok(request)
}

fn read_model(path: &Path) -> Result<CpuModel, Failure> {
    let model: CpuModel = serde_json::from_slice(&fs::read(path)?)?;
    match model.flaw() {
        None => Ok(model),
        Some(flaw) => {
            Err(format!("{flaw}: measure the node again, by weir measure --model").into())
        }
    }
}

/// Returns the upper bound of a slice's processor time beyond the node's own, and the highest
/// packet rate that the model covers; without a bound, the latter alone as the error.
fn slice_share(
    model: &CpuModel,
    rate: PacketRate,
    frame_bytes: f64,
) -> Result<(CpuShare, PacketRate), Option<PacketRate>> {
    let most = model.kpps_max(frame_bytes).map(|kpps| PacketRate::from_pps(whole(kpps * 1e3)));
    let upper = model.upper(crate::report::float(rate.as_pps()) / 1e3, frame_bytes);
    upper.zip(most).map(|(percent, most)| (share(percent), most)).ok_or(most)
}

/// Converts a share in percent, rounded up to a millionth.
fn share(percent: f64) -> CpuShare {
    CpuShare::from_ppm(u32::try_from(whole((percent * 1e4).ceil())).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
const fn whole(value: f64) -> u64 {
    value as u64
}

/// Plans, and says on standard error that it works if it takes long: to find the conflict and the
/// relaxation of thousands of different slices may take a minute.
pub(super) fn answer(request: &PlanRequest) -> PlanAnswer {
    let nodes: u32 = request.kinds.iter().map(|kind| kind.count).sum();
    let slices = request.slices.len();
    let tell = || {
        eprintln!(
            "still placing {slices} slices on {nodes} nodes; if they do not fit, it takes longer"
        )
    };
    while_telling(TELL_AFTER, tell, || weir_plan::plan(request, &PlanEffort::default()))
}

/// Does `work`, and calls `tell` once if it takes longer than `after`.
fn while_telling<T>(after: Duration, tell: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
        });
        let found = work();
        drop(done);
        found
    })
}

/// Plans for running nodes: `Err` with the answer to print if the slices do not fit.
pub(super) fn placed(request: &PlanRequest) -> Result<NodePlan, PlanAnswer> {
    match answer(request) {
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

/// Returns the path of a plan's file, which is the same by whatever name the file is reached, so
/// that journal and lock are the same, too. The file itself may be gone.
pub(super) fn canonical(file: &Path) -> Result<PathBuf, Failure> {
    let named = |error: std::io::Error| format!("{}: {error}", file.display());
    match fs::canonicalize(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        found => return Ok(found.map_err(named)?),
    }
    let whole = std::path::absolute(file).map_err(named)?;
    let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(format!("{}: it is no file", file.display()).into());
    };
    Ok(fs::canonicalize(folder).map_err(named)?.join(name))
}

/// Locks a plan against a second apply of it, until the result is dropped. The lock is on a file of
/// its own, `FILE.lock`, which stays: an editor replaces the plan's file by another one.
pub(super) fn lock(plan: &Path) -> Result<File, Failure> {
    let path = beside(plan, "lock");
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let opened = File::options().write(true).create(true).truncate(false).open(&path);
    let opened = opened.map_err(|error| named(&error))?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => {
            Err(named(&"another apply or recover of this plan runs; wait until it ends").into())
        }
        Err(TryLockError::Error(error)) => Err(named(&error).into()),
    }
}

/// Returns the path of the file `FILE.END` beside a plan's FILE.
pub(super) fn beside(plan: &Path, end: &str) -> PathBuf {
    let mut name = plan.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    name.into()
}

/// Planning that takes longer is announced.
const TELL_AFTER: Duration = Duration::from_secs(5);
/// The exit status of a request that does not fit.
pub(super) const REFUSED: u8 = 5;
/// The exit status of a plan that is not held.
pub(super) const NOT_HELD: u8 = 6;
/// The exit status of a plan of which nothing is broken, and not all is proven.
pub(super) const UNPROVEN: u8 = 7;

#[cfg(test)]
mod tests {
    use weir_tester::{CpuPoint, CpuSurface};

    use super::*;

    /// Returns a model of 2 % and half a per cent for a thousand packets, at any size.
    fn model() -> CpuModel {
        let point = |kpps: f64, frame_bytes| CpuPoint {
            kpps,
            frame_bytes,
            wakeups_k: 0.0,
            cpu_percent: 2.0 + kpps / 2.0,
        };
        let each = [128.0, 1518.0].into_iter();
        let points = each.flat_map(|bytes| [1.0, 5.0, 10.0].map(|kpps| point(kpps, bytes)));
        let points: Vec<_> = points.collect();
        let text = || "x".to_owned();
        CpuModel {
            version: CpuModel::VERSION,
            node: text(),
            fitted_by: text(),
            fitted_at: text(),
            processor: text(),
            cores: 2,
            measured: CpuModel::sizes(&points),
            surface: CpuSurface::of(&points, false).unwrap(),
        }
    }

    /// Goal: work of minutes is told from a program that hangs.
    #[test]
    fn long_work_is_told_once_and_short_work_is_not() {
        let mut told = 0;
        assert_eq!(while_telling(Duration::from_secs(600), || told += 1, || 7), 7);
        assert_eq!(told, 0);
        let work = || thread::sleep(Duration::from_millis(200));
        while_telling(Duration::ZERO, || told += 1, work);
        assert_eq!(told, 1);
    }

    /// An editor that saves by a rename puts another file in the plan's place, and a plan may be
    /// reached by a link: neither lets a second apply in.
    #[test]
    fn a_plan_is_locked_by_whatever_name_and_file_it_is_reached() {
        let folder = std::env::temp_dir().join(format!("weir-t-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (plan, link) = (folder.join("plan.toml"), folder.join("link.toml"));
        fs::write(&plan, "a").unwrap();
        std::os::unix::fs::symlink(&plan, &link).unwrap();
        let held = lock(&canonical(&plan).unwrap()).unwrap();
        fs::write(folder.join("new"), "b").unwrap();
        fs::rename(folder.join("new"), &plan).unwrap();
        for name in [&plan, &link, &folder.join("../").join(&folder).join("plan.toml")] {
            let refused = lock(&canonical(name).unwrap()).unwrap_err().to_string();
            assert!(refused.contains("plan.toml.lock: another apply"), "{refused}");
        }
        drop(held);
        fs::remove_file(&plan).unwrap();
        assert_eq!(canonical(&plan).unwrap(), folder.canonicalize().unwrap().join("plan.toml"));
        lock(&canonical(&plan).unwrap()).unwrap();
        fs::remove_dir_all(&folder).unwrap();
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
        let request = read(&file).unwrap();
        let [slice, base] = [request.slices[0].cpu[0], request.kinds[0].cpu_base];
        assert!((40_000..40_010).contains(&slice.as_ppm()), "{slice}");
        assert!((20_000..20_010).contains(&base.as_ppm()), "{base}");
        // Each of ten is within the model, two together are not, though a node has the time.
        for (nodes, fit) in [(9, false), (10, true)] {
            let text = plan("36Mbit").replace("cpu = \"100%\"", "cpu = \"100%\"\ncount = COUNT");
            let text = text.replace("COUNT", &nodes.to_string());
            write("plan.toml", &text.replace("send =", "count = 10\nsend ="));
            let request = read(&file).unwrap();
            match weir_plan::plan(&request, &PlanEffort::default()) {
                PlanAnswer::Placed(plan) => {
                    assert!(fit && plan.nodes.len() == 10, "{nodes}");
                    assert_eq!(weir_plan::audit(&request, &plan), Vec::<String>::new());
                }
                PlanAnswer::Refused(refusal) => {
                    assert!(!fit, "{nodes}");
                    let scarce = refusal.scarce.iter().map(|one| one.resource.name());
                    assert!(scarce.collect::<Vec<_>>().contains(&"packets"), "{refusal:?}");
                }
            }
        }
        // Beyond the model of one kind, a slice goes to another, and is refused if there is none.
        write("plan.toml", &plan("48Mbit"));
        let request = read(&file).unwrap();
        let PlanAnswer::Refused(refusal) = weir_plan::plan(&request, &PlanEffort::default()) else {
            panic!("no kind takes it");
        };
        let why = view::reasons(&request, &refusal.ground);
        assert_eq!(why, ["edge: 12kpps of 1004 bytes, its CPU model was measured up to 10kpps"]);
        let other = "[[node]]\nname = \"core\"\nlink = \"1Gbit\"\ncpu = \"100%\"\n";
        let text = plan("48Mbit") + "cpu_on = { core = \"9%\" }\n" + other;
        write("plan.toml", &text);
        let request = read(&file).unwrap();
        let PlanAnswer::Placed(plan) = weir_plan::plan(&request, &PlanEffort::default()) else {
            panic!("core takes it");
        };
        assert_eq!(request.kinds[plan.nodes[0].kind].name, "core");
        write("edge.json", "{}");
        assert!(read(&file).unwrap_err().to_string().contains("missing field"));
        write("edge.json", &serde_json::to_string(&CpuModel { version: 1, ..model() }).unwrap());
        let broken = read(&file).unwrap_err().to_string();
        assert!(
            broken.ends_with(
                "version is 1, 2 is known: measure the node again, by weir \
            measure --model"
            ),
            "{broken}"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
