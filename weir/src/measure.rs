// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir measure`: measures a device under test between two interfaces of this machine: its
//! throughput, its latency, and the processor time that it takes.

mod calibration;
mod durations;
mod model_file;
mod node_meter;
mod report_files;
mod summary;

use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use weir_platform::failure::{Failure, UsageError};
use weir_platform::{machine, output};
use weir_result::Origin;
use weir_tester::{
    BenchmarkProgress, CpuModel, CpuPoint, FramePattern, FrameTag, Goal, IpVersion, LOADS_MAX,
    MeasurementReport, NativeBaseline, SIZES_MAX, SuiteChoice, SuiteResult, TrafficProfile,
    check_goals, cpu_fits, run_suite,
};
use weir_traffic::{Mac, TrialEnd, WireMeasurer};
use weir_units::{BitRate, Nanos};

use self::calibration::{calibrate, calibration_s};
use self::model_file::{MODEL_POINTS_MIN, write_model};
use self::node_meter::NodeMeter;

/// Measure a device under test: frames go out of one interface of this machine and come back at
/// another. Writes report.json, report.csv and report.html. Needs root.
#[derive(Debug, Subcommand)]
pub(crate) enum MeasureCommand {
    /// All tests of RFC 2544, with RFC 9004 for bursts, over IPv4
    Rfc2544(BenchmarkOptions),
    /// All tests of RFC 5180: those of RFC 2544 over IPv6
    Rfc5180(BenchmarkOptions),
    /// Throughput alone: no-drop rate and partial-drop rate (RFC 9971)
    Ndr(BenchmarkOptions),
}

/// The options of all methods.
#[derive(Debug, Args)]
pub(crate) struct BenchmarkOptions {
    /// The interface that sends
    #[arg(long, value_name = "DEVICE")]
    from: String,
    /// The interface that receives
    #[arg(long, value_name = "DEVICE")]
    to: String,
    /// Network namespace of the sending interface
    #[arg(long, value_name = "NAME")]
    from_netns: Option<String>,
    /// Network namespace of the receiving interface
    #[arg(long, value_name = "NAME")]
    to_netns: Option<String>,
    /// Ethernet address that frames are sent to: a router's [default: that of the receiving
    /// interface, as for a bridge]
    #[arg(long)]
    mac: Option<Mac>,
    /// Source address of the packets [default: one of those set aside for benchmarks]
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Destination address of the packets
    #[arg(long, value_name = "ADDRESS")]
    destination: Option<IpAddr>,
    /// VLAN tag of each frame, 1 to 4094. Its 4 bytes count in the size: the least frame has 68
    #[arg(long, value_name = "NUMBER", conflicts_with = "pih",
          value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// Number of the parallel internet of each frame, 0 to 255, in a header before the type of the
    /// frame. Its 3 bytes count in the size: the least frame has 67
    #[arg(long, value_name = "NUMBER")]
    pih: Option<u8>,
    /// Frame sizes with FCS: 64 to 2112, random, random:MIN-MAX, imix, imix:GENOME (RFC 6985),
    /// mix:SIZE+SIZE…
    /// [default: those of RFC 2544, of IPv6 84 in place of 64; for ndr 64, imix and 1518]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<FramePattern>,
    /// Goal of the throughput; may be repeated, and the first one counts for the other tests:
    /// rfc2544, ndr, pdr or tst009, or loss=, exceed=, width=, trial=, sum=, or both
    /// [default: rfc2544; for ndr both ndr and pdr]
    #[arg(long = "goal")]
    goals: Vec<Goal>,
    /// Loads of the latency test beside the throughput, up to 64, as bits of frames a second
    /// [default: tenths of the throughput]
    #[arg(long, value_delimiter = ',', value_name = "RATE")]
    loads: Vec<BitRate>,
    /// The tests beside throughput [default: all but reset; for ndr none]
    #[arg(long, value_delimiter = ',', value_enum)]
    tests: Vec<BenchmarkTest>,
    /// Streams at once, which share the load: 1 to 64
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Measure each frame size so many times: 1 to 16
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    repeat: u16,
    /// Rate of the link on the wire [default: what the interface says, or 10Gbit]
    #[arg(long, value_name = "RATE")]
    line: Option<BitRate>,
    /// Wait so long before the first trial, for the device to settle
    #[arg(long, value_name = "TIME", default_value = "0s")]
    settle: Nanos,
    /// Limit on the total trial time of the search, for each frame size
    #[arg(long, value_name = "TIME")]
    limit: Option<Nanos>,
    /// Short trials and few: a first look in minutes, not what RFC 2544 asks for
    #[arg(long)]
    quick: bool,
    /// Trials as long and as many as RFC 2544 asks for: latency at the throughput 20 times 120 s,
    /// frame loss rate 60 s. Without it each is one trial of 10 s, and the page says so
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// A command that resets the device, run by a shell (with --tests reset)
    #[arg(long, value_name = "COMMAND")]
    reset_command: Option<String>,
    /// Wait so long for a device that was reset, up to 3600s. The command of --reset-command may
    /// take as long, too [default: 60s; with --quick 8s]
    #[arg(long, value_name = "TIME")]
    reset_patience: Option<Nanos>,
    /// Processors of the generator, for example 0,2
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Name of the device in the report
    #[arg(long, default_value = "device under test")]
    name: String,
    /// Folder of the report; made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "measured")]
    out: PathBuf,
    /// Write the CPU model of the device to this file, for `weir plan`: docs/planning.md. It needs
    /// the latency test, two frame sizes at least, and a device on this machine
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The node that is the device, by the path of its socket or https://HOST:PORT: its worker's
    /// own counters are read around each trial, and the CPU model is fitted to them. It needs
    /// WEIR_TOKEN of the environment where the node asks for a token
    #[arg(long, value_name = "SOCKET|URL")]
    node: Option<String>,
    /// The report.json of the same measurement without the device (a cable in its place, or the
    /// kernel alone), made before: what the device forwards and what it adds stand beside it
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Print the report as JSON, too
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchmarkTest {
    /// Delays and processors at 10 % to 110 % of the throughput
    Latency,
    /// Frame loss rate from 100 % of the line downwards
    Loss,
    /// Back-to-back frames: the longest burst without loss
    Burst,
    /// System recovery after an overload
    Recovery,
    /// Time without forwarding after a reset
    Reset,
}

impl MeasureCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (method, ip, bench) = match self {
            Self::Rfc2544(bench) => ("rfc2544", IpVersion::V4, bench),
            Self::Rfc5180(bench) => ("rfc5180", IpVersion::V6, bench),
            Self::Ndr(bench) => ("ndr", IpVersion::V4, bench),
        };
        let ip = match (bench.source, bench.destination) {
            (Some(address), _) | (_, Some(address)) if method == "ndr" && address.is_ipv6() => {
                IpVersion::V6
            }
            _ => ip,
        };
        let stop = weir_traffic::stop_on_signals()?;
        let (report, origin) = bench.measure(method, ip, stop)?;
        bench.print(&report, true)?;
        if let Some(path) = &bench.model {
            if bench.node.is_none() {
                eprintln!(
                    "--model without --node: the model is of all processors of this machine, \
                     generator and sink included. A node that watches it will tell a drift"
                );
            }
            write_model(path, &report, &origin)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl BenchmarkOptions {
    fn measure(
        &self,
        method: &str,
        ip: IpVersion,
        stop: &AtomicBool,
    ) -> Result<(MeasurementReport, Origin), Failure> {
        let begun = Instant::now();
        let goals = self.goals(method);
        let profiles = self.profiles(method, ip)?;
        let choice = self.choice(method)?;
        if self.loads.len() > LOADS_MAX {
            let text = format!("--loads: {} are more than {LOADS_MAX}", self.loads.len());
            return Err(UsageError(text).into());
        }
        self.check_model(choice, &profiles)?;
        check_goals(&goals).map_err(|error| UsageError(error.to_string()))?;
        self.check_times(&goals)?;
        self.check_traffic(method, &profiles, &goals)?;
        let baseline = self.baseline.as_deref();
        let baseline = baseline.map(|path| report_files::baseline(path, &profiles)).transpose()?;
        std::fs::create_dir_all(&self.out)
            .map_err(|error| format!("{}: {error}", self.out.display()))?;
        let origin = machine::origin(&machine::command_line(), env!("WEIR_VERSION"));
        let node = self.node.as_deref().map(node_meter::client).transpose()?;
        let mut measurer = NodeMeter::new(self.measurer(choice, stop)?, node);
        measurer.wire.await_links()?;
        // A run that cannot begin, such as a second one on these interfaces, keeps the old report.
        report_files::set_aside(&self.out)?;
        let (line_bps, generator_pps, notes) = (self.line_bps(), Vec::new(), Vec::new());
        let mut head = ReportHead {
            begun,
            method,
            origin,
            line_bps,
            generator_pps,
            baseline,
            goals,
            profiles,
            notes,
        };
        let mut suite = SuiteResult::default();
        let measured = self.tests(&mut head, &mut measurer, choice, stop, &mut suite);
        if let Err(error) = &measured {
            head.notes.insert(0, format!("The measurement ended early: {error}."));
        }
        let report = self.report(&head, &measurer.wire, suite);
        let written = report_files::write(&self.out, &report);
        match (measured, written) {
            (Ok(()), Ok(())) => Ok((report, head.origin)),
            (Ok(()), Err(error)) => {
                // Hours of trials must not be lost for want of a disk.
                self.print(&report, false)?;
                Err(error)
            }
            (Err(error), Ok(())) if !report.suite.sizes.is_empty() => {
                let page = self.out.join(report_files::PAGE);
                Err(format!("{error}; {} has what is measured, INCOMPLETE", page.display()).into())
            }
            // If both fail, the first failure tells more.
            (Err(error), _) => Err(error),
        }
    }

    /// Settles, finds the tester's own limit, and makes the tests of all sizes. Writes the report,
    /// still incomplete, before the first size and after each size, so that a failure of the last
    /// trial does not lose hours of trials.
    fn tests(
        &self,
        head: &mut ReportHead<'_>,
        measurer: &mut NodeMeter<'_>,
        choice: SuiteChoice,
        stop: &AtomicBool,
        suite: &mut SuiteResult,
    ) -> Result<(), Failure> {
        report_files::write(&self.out, &self.report(head, &measurer.wire, suite.clone()))?;
        self.settle(stop)?;
        eprintln!("finding the tester's own limit, about {} s", calibration_s(&head.profiles));
        let own = calibrate(&mut measurer.wire, &head.profiles)?;
        head.generator_pps = own.iter().map(|limit| limit.pps()).collect();
        let limits = self.limits(head.line_bps, &head.profiles, &own);
        head.notes = self.notes(head.method, choice, &head.goals, &limits);
        let head = &*head;
        let mut progress = ProgressLine::default();
        let mut tell = |now: BenchmarkProgress| progress.tell(now, &head.profiles);
        let mut size_done = |measurer: &NodeMeter<'_>, done: &SuiteResult| {
            suite.clone_from(done);
            let report = self.report(head, &measurer.wire, done.clone());
            // The last write counts: a disk that is full now may have room then.
            if let Err(error) = report_files::write(&self.out, &report) {
                eprintln!("not written yet: {error}");
            }
        };
        let done = run_suite(
            measurer,
            &head.profiles,
            &head.goals,
            choice,
            &limits,
            &mut tell,
            &mut size_done,
        );
        progress.end();
        done?;
        for size in &suite.sizes {
            for note in &size.notes {
                eprintln!("{}: {note}", size.profile.sizes);
            }
        }
        Ok(())
    }

    /// Returns the report of the sizes that are done.
    fn report(
        &self,
        head: &ReportHead<'_>,
        measurer: &WireMeasurer<'_>,
        suite: SuiteResult,
    ) -> MeasurementReport {
        let origin = &head.origin;
        let (kernel, cpu) = (&origin.kernel, &origin.machine.cpu);
        let totals = measurer.totals();
        let missing = head.profiles.iter().skip(suite.sizes.len());
        let mut notes = head.notes.clone();
        notes.extend(measurer.drops_note());
        notes.extend(totals.notes());
        if head.baseline.is_none() {
            notes.push(NO_BASELINE.to_owned());
        }
        MeasurementReport {
            version: MeasurementReport::VERSION,
            dut: self.name.clone(),
            method: head.method.to_owned(),
            command: origin.command.clone(),
            start: origin.start.clone(),
            seconds: head.begun.elapsed().as_secs_f64(),
            machine: format!("weir {}, {kernel}, {} × {cpu}", origin.commit, origin.machine.cores),
            from: place(&self.from, self.from_netns.as_deref()),
            to: format!(
                "{}, {} XDP",
                place(&self.to, self.to_netns.as_deref()),
                measurer.sink_mode()
            ),
            line_bps: head.line_bps,
            generator_pps: head.generator_pps.clone(),
            baseline: head.baseline.clone(),
            goals: head.goals.clone(),
            packets: totals.outcome,
            lost_by_sequence: totals.lost_by_sequence,
            cpu: cpu_fits(&suite),
            missing: missing.map(|profile| profile.sizes.to_string()).collect(),
            suite,
            notes,
        }
    }

    fn profiles(&self, method: &str, ip: IpVersion) -> Result<Vec<TrafficProfile>, Failure> {
        let mut sizes = self.sizes.clone();
        let least = ip.frame_min() + self.tag().map_or(0, FrameTag::bytes);
        if sizes.is_empty() {
            let smallest = FramePattern::Fixed(least);
            let fixed = |sizes: &[u16]| sizes.iter().copied().map(FramePattern::Fixed).collect();
            let others: Vec<FramePattern> = match method {
                "ndr" => vec![FramePattern::Imix, FramePattern::Fixed(1518)],
                _ => fixed(&RFC2544_SIZES),
            };
            sizes = [vec![smallest], others].concat();
        }
        for pattern in &mut sizes {
            let small = pattern.list().into_iter().min().unwrap_or(0);
            if small < least && *pattern == FramePattern::Imix {
                // The mix has the smallest frame in place of 64 bytes.
                let sizes = pattern.list().into_iter().map(|size| size.max(least)).collect();
                *pattern = FramePattern::Mix(sizes);
            } else if small < least {
                let text = format!("--sizes {pattern}: {small} is below {least}, the least here");
                return Err(UsageError(text).into());
            }
        }
        let count = sizes.len() * usize::from(self.repeat);
        if count > SIZES_MAX {
            let text = format!("{count} frame sizes are more than {SIZES_MAX}");
            return Err(UsageError(text).into());
        }
        let (streams, tag) = (self.streams, self.tag());
        let repeated = sizes.into_iter().flat_map(|sizes| {
            let profile = TrafficProfile { sizes, ip, streams, tag };
            std::iter::repeat_n(profile, usize::from(self.repeat))
        });
        Ok(repeated.collect())
    }

    fn tag(&self) -> Option<FrameTag> {
        self.vlan.map(FrameTag::Vlan).or_else(|| self.pih.map(FrameTag::Pih))
    }

    fn choice(&self, method: &str) -> Result<SuiteChoice, Failure> {
        let asked = |test| self.tests.contains(&test);
        let usual = self.tests.is_empty() && method != "ndr";
        if asked(BenchmarkTest::Reset) && self.reset_command.is_none() {
            return Err(UsageError("--tests reset needs --reset-command".to_owned()).into());
        }
        Ok(SuiteChoice {
            latency: usual || asked(BenchmarkTest::Latency),
            loss_rate: usual || asked(BenchmarkTest::Loss),
            back_to_back: usual || asked(BenchmarkTest::Burst),
            recovery: usual || asked(BenchmarkTest::Recovery),
            reset: asked(BenchmarkTest::Reset) || (usual && self.reset_command.is_some()),
        })
    }

    /// Refuses a measurement before it begins if it could not give the requested CPU model.
    fn check_model(&self, choice: SuiteChoice, profiles: &[TrafficProfile]) -> Result<(), Failure> {
        let Some(path) = &self.model else { return Ok(()) };
        let refused = |why: String| Err(UsageError(format!("--model: {why}")).into());
        if self.node.as_ref().is_some_and(|node| node.starts_with("https://")) {
            let why = "a node does not say what processor it has: measure on its machine, with \
                       --node SOCKET";
            return refused(why.to_owned());
        }
        if !choice.latency {
            return refused("it is fitted to the latency test: add latency to --tests".to_owned());
        }
        let loads = profiles
            .iter()
            .map(|profile| CpuPoint { frame_bytes: profile.sizes.mean(), ..CpuPoint::default() });
        if CpuModel::sizes(&loads.collect::<Vec<_>>()).len() < 2 {
            return refused("frames of one mean size have no price a byte: give two".to_owned());
        }
        // Without `--loads`, the default loads are enough.
        let points = profiles.len() * self.loads.len();
        if (1..MODEL_POINTS_MIN).contains(&points) {
            return refused(format!("{points} loads in all, at least {MODEL_POINTS_MIN}"));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) || path.is_dir() {
            return refused(format!("{}: no file can be written there", path.display()));
        }
        Ok(())
    }

    fn measurer<'s>(
        &self,
        choice: SuiteChoice,
        stop: &'s AtomicBool,
    ) -> Result<WireMeasurer<'s>, Failure> {
        let end = |device: &str, netns: &Option<String>, address| TrialEnd {
            netns: netns.clone(),
            device: device.to_owned(),
            address,
        };
        let measurer = WireMeasurer::new(
            end(&self.from, &self.from_netns, self.source),
            end(&self.to, &self.to_netns, self.destination),
            self.mac,
            self.reset_command.clone(),
            choice.recovery,
            stop,
        )?;
        Ok(measurer.on_processors(self.cpus.clone()))
    }

    fn settle(&self, stop: &AtomicBool) -> Result<(), Failure> {
        let until = Instant::now() + Duration::from_nanos(self.settle.as_nanos());
        if self.settle > Nanos::default() {
            eprintln!("settling for {}", self.settle);
        }
        while Instant::now() < until {
            if stop.load(Ordering::Relaxed) {
                return Err("stopped by a signal".into());
            }
            thread::sleep(SETTLE_LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn line_bps(&self) -> u64 {
        let told = || {
            // A namespace has a /sys of its own, which is not mounted here.
            let path = format!("/sys/class/net/{}/speed", self.from);
            let text = self.from_netns.is_none().then(|| std::fs::read_to_string(path).ok())??;
            let mbps: u64 = text.trim().parse().ok()?;
            (mbps > 0).then_some(BitRate::from_mbps(mbps))
        };
        self.line.or_else(told).unwrap_or(LINE).as_bps()
    }

    /// Prints the report, and where it is if it is written.
    fn print(&self, report: &MeasurementReport, is_written: bool) -> Result<(), Failure> {
        let text = match self.json {
            true => serde_json::to_string_pretty(report)? + "\n",
            false => summary::text(report, is_written.then_some(&self.out)),
        };
        Ok(output::print(&text)?)
    }
}

/// The part of a report that holds for every size.
struct ReportHead<'a> {
    begun: Instant,
    method: &'a str,
    origin: Origin,
    line_bps: u64,
    generator_pps: Vec<u64>,
    baseline: Option<NativeBaseline>,
    goals: Vec<Goal>,
    profiles: Vec<TrafficProfile>,
    notes: Vec<String>,
}

/// The progress on standard error: one line rewritten in place on a terminal, otherwise a line for
/// each test.
#[derive(Default)]
struct ProgressLine {
    last: Option<(usize, &'static str)>,
}

impl ProgressLine {
    fn tell(&mut self, now: BenchmarkProgress, profiles: &[TrafficProfile]) {
        let sizes = profiles.get(now.done).map(|profile| profile.sizes.to_string());
        let seconds = now.left.as_nanos() / 1_000_000_000;
        let text = format!(
            "{}/{} {:>6}  {:<12} {:>10} packets/s  {}:{:02} left",
            now.done + 1,
            now.of,
            sizes.unwrap_or_default(),
            now.test,
            now.pps,
            seconds / 60,
            seconds % 60
        );
        let mut to = std::io::stderr();
        // Progress that cannot be printed is no reason to stop measuring.
        if to.is_terminal() {
            let _told = write!(to, "\r{text}\x1b[K");
        } else if self.last != Some((now.done, now.test)) {
            let _told = writeln!(to, "{text}");
        }
        self.last = Some((now.done, now.test));
    }

    fn end(&self) {
        let mut to = std::io::stderr();
        if self.last.is_some() && to.is_terminal() {
            let _told = writeln!(to);
        }
    }
}

fn place(device: &str, netns: Option<&str>) -> String {
    netns.map_or_else(|| device.to_owned(), |netns| format!("{device} in {netns}"))
}

/// Frame sizes of RFC 2544, section 9.1, without the smallest.
const RFC2544_SIZES: [u16; 6] = [128, 256, 512, 1024, 1280, 1518];
const NO_BASELINE: &str = "No native baseline (--baseline): nothing says what is forwarded and how \
                           late without the device.";
const LINE: BitRate = BitRate::from_mbps(10_000);
/// The least load of a search.
const MIN_PPS: u64 = 100;
const SETTLE_LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_tester::{DutNoise, FakeDut, Outcome, TesterLimit};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        measure: MeasureCommand,
    }

    fn checked(method: &str, words: &str) -> Result<(), String> {
        let model = if words.contains("--model") { "" } else { "--model m.json" };
        let line = format!("weir {method} --from a --to b {model} {words}");
        let (MeasureCommand::Rfc2544(bench) | MeasureCommand::Ndr(bench)) =
            Line::parse_from(line.split_whitespace()).measure
        else {
            panic!("{method}");
        };
        let choice = bench.choice(method).unwrap();
        let profiles = bench.profiles(method, IpVersion::V4).unwrap();
        bench.check_model(choice, &profiles).map_err(|error| error.to_string())
    }

    pub(super) fn profile() -> TrafficProfile {
        TrafficProfile { sizes: FramePattern::Fixed(128), ip: IpVersion::V4, streams: 1, tag: None }
    }

    /// Returns a report of three repetitions on a fake device, whose search has `limit`.
    pub(super) fn report(limit: Nanos) -> MeasurementReport {
        let bench = options("--quick");
        let choice = bench.choice("ndr").unwrap();
        let profiles = vec![profile(); 3];
        let own = [TesterLimit { offered: 9_000_000, taken: 9_000_000 }; 3];
        let mut limits = bench.limits(1_000_000_000, &profiles, &own);
        limits.search = limit;
        let mut dut = FakeDut::new(100_000, 0, DutNoise::default(), 1);
        let goals = bench.goals("rfc2544");
        let suite =
            run_suite(&mut dut, &profiles, &goals, choice, &limits, &mut |_| (), &mut |_, _| ());
        named("a cable", goals, suite.unwrap())
    }

    fn named(dut: &str, goals: Vec<Goal>, suite: SuiteResult) -> MeasurementReport {
        MeasurementReport {
            version: MeasurementReport::VERSION,
            dut: dut.to_owned(),
            method: "ndr".to_owned(),
            command: String::new(),
            start: String::new(),
            seconds: 1.0,
            machine: String::new(),
            from: String::new(),
            to: String::new(),
            line_bps: 1_000_000_000,
            generator_pps: vec![],
            baseline: None,
            goals,
            packets: Outcome::default(),
            lost_by_sequence: 0,
            cpu: vec![],
            missing: vec![],
            suite,
            notes: vec![],
        }
    }

    pub(super) fn options(words: &str) -> BenchmarkOptions {
        let line = format!("weir rfc2544 --from a --to b {words}");
        let MeasureCommand::Rfc2544(bench) = Line::parse_from(line.split_whitespace()).measure
        else {
            panic!("{words}");
        };
        bench
    }

    /// Goal: a search that can find nothing is refused, not answered with 0.
    #[test]
    fn goals_that_do_not_fit_the_search_are_refused() {
        let checked = |words: &str| {
            let bench = options(words);
            let checked = bench.check_times(&bench.goals("rfc2544"));
            checked.map_err(|error| error.to_string())
        };
        checked("").unwrap();
        checked("--quick").unwrap();
        checked("--full --goal tst009").unwrap();
        let why = checked("--quick --goal rfc2544").unwrap_err();
        assert_eq!(
            why,
            "--goal: two bounds need trials of 120s in sum, and a search lasts 30s: --limit 120s, \
             or no --quick"
        );
        checked("--quick --goal rfc2544 --limit 120s").unwrap();
        let why = checked("--reset-patience 7200s").unwrap_err();
        assert_eq!(why, "--reset-patience: 7200s is not within 1ms to 3600s");
    }

    /// Goal: the page notes each deviation from the RFC, and nothing if there is none.
    #[test]
    fn each_deviation_from_the_rfc_is_noted() {
        let notes = |words: &str| {
            let bench = options(words);
            let (goals, choice) = (bench.goals("rfc2544"), bench.choice("rfc2544").unwrap());
            let profiles = bench.profiles("rfc2544", IpVersion::V4).unwrap();
            let own = TesterLimit { offered: 1_000, taken: 1_000 };
            let limits = bench.limits(1_000_000_000, &profiles, &[own]);
            bench.notes("rfc2544", choice, &goals, &limits).join("\n")
        };
        let usual = notes("");
        for section in ["section 26.2, asks for 20 of 120 s", "section 24, asks for 60 s"] {
            assert!(usual.contains(section), "{section} in {usual}");
            assert!(!notes("--full").contains(section), "{section}");
        }
        assert!(notes("--quick").contains("RFC 9004, section 5.4"));
        assert!(!notes("--tests loss").contains("Latency"));
    }

    /// Goal: a run that does not begin takes no report away.
    #[test]
    fn an_interface_that_is_not_there_leaves_the_earlier_report() {
        let out = std::env::temp_dir().join(format!("weir-t-begin-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        report_files::write(&out, &report(Nanos::from_secs(30))).unwrap();
        let bench = options(&format!("--out {} --from-netns no-such-netns", out.display()));
        let stop = AtomicBool::new(false);
        assert!(bench.measure("rfc2544", IpVersion::V4, &stop).is_err());
        assert!(out.join(report_files::PAGE).exists());
        std::fs::remove_dir_all(&out).unwrap();
    }

    /// Goal: a slow link is measured below its rate, and one without packets is refused.
    #[test]
    fn a_slow_link_is_not_overloaded() {
        let checked = |words: &str| {
            let bench = options(words);
            let profiles = bench.profiles("rfc2544", IpVersion::V4).unwrap();
            let goals = bench.goals("rfc2544");
            bench.check_traffic("rfc2544", &profiles, &goals).map_err(|error| error.to_string())
        };
        let why = checked("--quick --sizes 512 --line 1kbit").unwrap_err();
        assert_eq!(
            why,
            "--line: 1kbit carries 0 frames a second of 512, and a trial of 200ms needs 2"
        );
        checked("--quick --sizes 1518 --line 1Mbit").unwrap();
        let why = checked("--source 2001:2::1").unwrap_err();
        assert_eq!(why, "--source 2001:2::1: rfc2544 sends IPv4, rfc5180 IPv6");
        let bench = options("--goal rfc2544 --sizes 1518 --line 1Mbit");
        let profiles = bench.profiles("rfc2544", IpVersion::V4).unwrap();
        let own = TesterLimit { offered: 900_000, taken: 900_000 };
        let limits = bench.limits(1_000_000, &profiles, &[own]);
        let (goals, choice) = (bench.goals("rfc2544"), bench.choice("ndr").unwrap());
        let mut dut = FakeDut::new(40, 0, DutNoise::default(), 1);
        let mut none = |_| ();
        let mut done = |_: &FakeDut, _: &SuiteResult| ();
        let suite =
            run_suite(&mut dut, &profiles, &goals, choice, &limits, &mut none, &mut done).unwrap();
        let (size, throughput) = (&suite.sizes[0], suite.sizes[0].goals[0].throughput());
        assert_eq!(size.max_pps, 81, "1538 bytes on 1 Mb/s");
        assert!((39..=40).contains(&throughput), "{throughput}");
    }

    /// Goal: frames have the tag that is asked for, and room for it.
    #[test]
    fn a_tag_goes_with_each_frame() {
        let profiles = |words: &str| {
            let made = options(words).profiles("rfc2544", IpVersion::V4);
            made.map_err(|error| error.to_string())
        };
        let first = |words: &str| {
            let profile = profiles(words).unwrap().swap_remove(0);
            (profile.sizes, profile.tag)
        };
        assert_eq!(first(""), (FramePattern::Fixed(64), None));
        assert_eq!(first("--vlan 5"), (FramePattern::Fixed(68), Some(FrameTag::Vlan(5))));
        assert_eq!(first("--pih 0"), (FramePattern::Fixed(67), Some(FrameTag::Pih(0))));
        let why = profiles("--pih 7 --sizes 64").unwrap_err();
        assert_eq!(why, "--sizes 64: 64 is below 67, the least here");
        for wrong in ["--vlan 0", "--vlan 4095", "--pih 256", "--pih 1 --vlan 1"] {
            let line = format!("weir rfc2544 --from a --to b {wrong}");
            assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{wrong}");
        }
        let bench = options("--pih 7");
        let limits =
            bench.limits(1_000_000_000, &bench.profiles("ndr", IpVersion::V4).unwrap(), &[]);
        let choice = bench.choice("ndr").unwrap();
        let notes = bench.notes("ndr", choice, &bench.goals("ndr"), &limits).join("\n");
        assert!(notes.contains("Each frame has the header of parallel internet 7"), "{notes}");
    }

    /// Goal: options that cannot give a model are refused at once, not after hours of trials.
    #[test]
    fn a_measurement_that_cannot_give_a_model_does_not_begin() {
        checked("rfc2544", "").unwrap();
        checked("rfc2544", "--sizes 128,512 --tests latency").unwrap();
        let why = checked("ndr", "").unwrap_err();
        assert_eq!(why, "--model: it is fitted to the latency test: add latency to --tests");
        let why = checked("rfc2544", "--sizes 512,mix:256+768").unwrap_err();
        assert!(why.starts_with("--model: frames of one mean size"), "{why}");
        let why = checked("rfc2544", "--sizes 128,512 --loads 1Mbit").unwrap_err();
        assert_eq!(why, "--model: 2 loads in all, at least 4");
        let why = checked("rfc2544", "--node https://a:1").unwrap_err();
        assert!(why.starts_with("--model: a node does not say what processor it has"), "{why}");
        let why = checked("rfc2544", "--model /nowhere/at/all.json").unwrap_err();
        assert!(why.contains("no file can be written there"), "{why}");
    }
}
