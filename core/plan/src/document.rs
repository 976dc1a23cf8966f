// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the text of a request: all problems at once, with line, key, value and bound.
//!
//! The tables below are the document as it is written. The schema that follows from them holds
//! keys, types and bounds; what refers to something else is checked here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::json;
use weir_policy::{FindingList, Problems, Text, read_document};
use weir_units::{BitRate, ByteCount, CpuShare, Nanos};

use crate::request::{
    COST_MAX, CycleLayout, FRAME_MAX, FRAME_MIN, FrameMix, KINDS_MAX, LONGEST_FRAME, NODES_MAX,
    NodeApi, NodeKind, PLAN_SLICES_MAX, PlanRequest, SliceRequest,
};

/// Reads a request. `docs/planning.md` has its keys.
///
/// # Errors
/// [`Problems`]: all of them, each with line, column, key, value and bound.
pub fn read_request(text: &str) -> Result<PlanRequest, Problems> {
    read_document(text, request)
}

/// A request as it is written. What is wrong or missing is left empty, so that the rest is read.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "plan")]
struct PlanTable {
    #[schemars(required, length(min = 1, max = KINDS_MAX))]
    node: Option<Vec<KindTable>>,
    #[schemars(required, length(min = 1, max = PLAN_SLICES_MAX))]
    slice: Option<Vec<DemandTable>>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "node")]
struct KindTable {
    #[schemars(required, extend("format" = "name"))]
    name: Option<String>,
    #[schemars(range(min = 1, max = NODES_MAX))]
    count: Option<u32>,
    #[schemars(range(min = 1, max = COST_MAX))]
    cost: Option<u32>,
    #[schemars(required, extend("x-minimum" = BPS_MIN, "x-maximum" = BPS_MAX))]
    link: Option<Text<BitRate>>,
    #[schemars(required, extend("x-minimum" = 1, "x-maximum" = u32::MAX))]
    cpu: Option<Text<CpuShare>>,
    #[schemars(extend("x-minimum" = CYCLE_MIN, "x-maximum" = CYCLE_MAX))]
    cycle: Option<Text<Nanos>>,
    #[schemars(extend("x-minimum" = 1, "x-maximum" = CYCLE_MAX))]
    phase_step: Option<Text<Nanos>>,
    #[schemars(extend("x-minimum" = FRAME_MIN, "x-maximum" = FRAME_MAX))]
    longest_frame: Option<Text<ByteCount>>,
    #[schemars(extend("format" = "text"))]
    model: Option<String>,
    #[schemars(extend("format" = "text"))]
    api: Option<String>,
    #[schemars(extend("format" = "text"))]
    token_file: Option<String>,
    #[schemars(extend("format" = "text"))]
    ca: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "slice")]
struct DemandTable {
    #[schemars(required, extend("format" = "name"))]
    name: Option<String>,
    #[schemars(range(min = 1, max = PLAN_SLICES_MAX))]
    count: Option<u32>,
    #[schemars(required, extend("x-minimum" = RATE_MIN, "x-maximum" = BPS_MAX))]
    send: Option<Text<BitRate>>,
    #[schemars(extend("x-minimum" = 0, "x-maximum" = BPS_MAX))]
    receive: Option<Text<BitRate>>,
    #[schemars(extend("x-minimum" = RATE_MIN, "x-maximum" = BPS_MAX))]
    limit: Option<Text<BitRate>>,
    #[schemars(required)]
    frames: Option<FramesEntry>,
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = DELAY_MAX))]
    delay: Option<Text<Nanos>>,
    #[schemars(extend("x-minimum" = 0, "x-maximum" = u32::MAX))]
    cpu: Option<Text<CpuShare>>,
    #[serde(default)]
    cpu_on: BTreeMap<String, Text<CpuShare>>,
    #[schemars(extend("x-minimum" = 0, "x-maximum" = u32::MAX))]
    router_cpu: Option<Text<CpuShare>>,
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = CYCLE_MAX))]
    phase: Option<Text<Nanos>>,
    #[serde(default)]
    nodes: Vec<KindName>,
}

/// A size or the name of a mix, or a list of sizes and weights.
#[derive(Deserialize)]
#[serde(untagged)]
enum FramesEntry {
    Name(String),
    Sizes(Vec<FrameTable>),
}

impl JsonSchema for FramesEntry {
    fn schema_name() -> Cow<'static, str> {
        "frames".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = <Vec<FrameTable>>::json_schema(generator);
        schema.insert("type".to_owned(), json!(["string", "array"]));
        schema.insert("format".to_owned(), json!("text"));
        schema.insert("maxItems".to_owned(), json!(SIZES_MAX));
        schema
    }
}

#[derive(Default, Deserialize, JsonSchema)]
struct FrameTable {
    #[schemars(required, extend("x-minimum" = FRAME_MIN, "x-maximum" = FRAME_MAX))]
    size: Option<Text<ByteCount>>,
    #[schemars(range(min = 1, max = 1_000_000))]
    weight: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline, extend("format" = "name"))]
struct KindName(String);

fn request(document: PlanTable, findings: &mut FindingList) -> PlanRequest {
    let kinds = kinds(document.node.unwrap_or_default(), findings);
    let mut request = PlanRequest { kinds, slices: vec![] };
    let mut names = BTreeSet::new();
    for (index, table) in document.slice.unwrap_or_default().into_iter().enumerate() {
        let count = table.count.unwrap_or(1);
        let mut report = |key: &str, message: String| findings.report("slice", index, key, message);
        let slice = slice(table, &request.kinds, &mut report);
        let room = PLAN_SLICES_MAX.saturating_sub(request.slices.len());
        if count as usize > room {
            report("count", format!("{count} more slices, at most {PLAN_SLICES_MAX} in all"));
            continue;
        }
        for number in 1..=count {
            let name = match count {
                1 => slice.name.clone(),
                _ => format!("{}-{number}", slice.name),
            };
            if name.len() > NAME_MAX {
                let many = name.len();
                report("name", format!("\"{name}\" has {many} characters, at most {NAME_MAX}"));
                break;
            }
            if !names.insert(name.clone()) {
                report("name", format!("\"{name}\" is already the name of another slice"));
                break;
            }
            request.slices.push(SliceRequest { name, ..slice.clone() });
        }
    }
    request
}

fn kinds(tables: Vec<KindTable>, findings: &mut FindingList) -> Vec<NodeKind> {
    let mut names = BTreeSet::new();
    let mut nodes = 0_u32;
    let mut kinds = vec![];
    for (index, table) in tables.into_iter().enumerate() {
        let mut report = |key: &str, message: String| findings.report("node", index, key, message);
        let name = table.name.unwrap_or_default();
        if !names.insert(name.clone()) {
            report("name", format!("\"{name}\" is already the name of another kind"));
        }
        let count = table.count.unwrap_or(1);
        nodes = nodes.saturating_add(count);
        if nodes > NODES_MAX {
            report("count", format!("{nodes} nodes with those before, at most {NODES_MAX}"));
        }
        let (length, step) = (table.cycle.map(|of| of.0), table.phase_step.map(|of| of.0));
        match (length, step) {
            (None, Some(step)) => {
                report("phase_step", format!("is {step}, and the node has no cycle"));
            }
            (Some(length), Some(step)) if step > length => {
                report("phase_step", format!("is {step}, the cycle is {length}"));
            }
            _ => {}
        }
        let step = step.unwrap_or(STEP_DEFAULT);
        let api = api([table.api, table.token_file, table.ca], count, &mut report);
        kinds.push(NodeKind {
            name,
            count,
            cost: table.cost.unwrap_or(1),
            link: table.link.map_or(BitRate::from_bps(BPS_MIN), |of| of.0),
            cpu: table.cpu.map_or(CpuShare::ZERO, |of| of.0),
            cpu_base: CpuShare::ZERO,
            cycle: length.map(|length| CycleLayout { length, step }),
            longest_frame: table.longest_frame.map_or(LONGEST_FRAME, |of| of.0),
            model: table.model,
            api,
        });
    }
    kinds
}

/// Builds the API settings of a node from its address, token file and CA file.
fn api(
    [address, token_file, ca]: [Option<String>; 3],
    count: u32,
    report: &mut dyn FnMut(&str, String),
) -> Option<NodeApi> {
    let Some(address) = address else {
        for (key, given) in [("token_file", token_file), ("ca", ca)] {
            if given.is_some() {
                report(key, "is for the address of a node, and there is no api".to_owned());
            }
        }
        return None;
    };
    if count > 1 {
        report("api", format!("is the address of one node, and there are {count}"));
    }
    let scheme = address.split_once("://").map(|(scheme, _)| scheme);
    if let Some(scheme) = scheme.filter(|scheme| *scheme != "https") {
        report("api", format!("is {scheme}://; it must be https:// or the path of a Unix socket"));
    }
    if ca.is_some() && !address.starts_with("https://") {
        report("ca", format!("is for https, and api is {address}"));
    }
    Some(NodeApi { address, token_file, ca })
}

fn slice(
    table: DemandTable,
    kinds: &[NodeKind],
    report: &mut dyn FnMut(&str, String),
) -> SliceRequest {
    let number = |name: &str| kinds.iter().position(|kind| kind.name == name);
    let known = || kinds.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>().join(", ");
    let unknown = |name: &str| format!("\"{name}\" is no kind of node; known: {}", known());
    let mut only = vec![];
    for (at, KindName(name)) in table.nodes.iter().enumerate() {
        match number(name) {
            Some(kind) => only.push(kind),
            None => report(&format!("nodes.{at}"), unknown(name)),
        }
    }
    only.sort_unstable();
    only.dedup();
    let mut cpu = vec![table.cpu.map_or(CpuShare::ZERO, |of| of.0); kinds.len()];
    let is_open = |kind: &usize| table.cpu.is_none() && (only.is_empty() || only.contains(kind));
    let mut modelled: Vec<usize> = (0..kinds.len()).filter(is_open).collect();
    for (name, share) in table.cpu_on {
        match number(&name) {
            Some(kind) => {
                cpu[kind] = share.0;
                modelled.retain(|open| *open != kind);
            }
            None => report(&format!("cpu_on.{name}"), unknown(&name)),
        }
    }
    for kind in modelled.iter().filter_map(|kind| kinds.get(*kind)) {
        if kind.model.is_none() {
            report("cpu", format!("is missing, and kind {} has no model", kind.name));
        }
    }
    let frames = table.frames.map(frame_mix).unwrap_or_else(|| Ok(FrameMix::imix()));
    let frames = frames.unwrap_or_else(|message| {
        report("frames", message);
        FrameMix::imix()
    });
    let send = table.send.map_or(BitRate::from_bps(RATE_MIN), |of| of.0);
    let receive = table.receive.map_or(send, |of| of.0);
    let limit = table.limit.map(|of| of.0);
    if let Some(limit) = limit.filter(|limit| *limit < send.max(receive)) {
        report("limit", format!("is {limit}, less than the guarantee, {}", send.max(receive)));
    }
    SliceRequest {
        name: table.name.unwrap_or_default(),
        send,
        receive,
        limit,
        packets_ppm: vec![],
        modelled,
        beyond: vec![],
        frames,
        delay: table.delay.map(|of| of.0),
        cpu,
        router_cpu: table.router_cpu.map_or(CpuShare::ZERO, |of| of.0),
        phase: table.phase.map(|of| of.0),
        only,
    }
}

fn frame_mix(entry: FramesEntry) -> Result<FrameMix, String> {
    let sizes = match entry {
        FramesEntry::Name(name) if name == "imix" => return Ok(FrameMix::imix()),
        FramesEntry::Name(text) => {
            let size: ByteCount = text
                .parse()
                .map_err(|_| format!("\"{text}\" is neither \"imix\" nor a size, such as 1024B"))?;
            let size = u32::try_from(size.get()).unwrap_or(u32::MAX);
            if !(FRAME_MIN..=FRAME_MAX).contains(&size) {
                return Err(format!("{text} is not between {FRAME_MIN} and {FRAME_MAX} bytes"));
            }
            return Ok(FrameMix::of_size(size));
        }
        FramesEntry::Sizes(sizes) => sizes,
    };
    let one = |table: FrameTable| {
        let size = table.size.map_or(0, |of| of.0.get());
        (u32::try_from(size).unwrap_or(0), table.weight.unwrap_or(1))
    };
    FrameMix::new(sizes.into_iter().map(one).collect()).ok_or_else(|| "has no sizes".to_owned())
}

/// 1 Mbit/s: a slower link carries no slices.
const BPS_MIN: u64 = 1_000_000;
/// 10 Tbit/s, as in a policy.
const BPS_MAX: u64 = 10_000_000_000_000;
/// 1 kbit/s, as in a policy.
const RATE_MIN: u64 = 1_000;
/// 10 µs: a shorter cycle has no room for two frames at 1 Gbit/s.
const CYCLE_MIN: u64 = 10_000;
/// A second.
const CYCLE_MAX: u64 = 1_000_000_000;
/// Ten seconds.
const DELAY_MAX: u64 = 10_000_000_000;
/// Longest name that a node's policy has for a slice, with the number of one of several.
const NAME_MAX: usize = 63;
/// Frame sizes of a mix.
const SIZES_MAX: usize = 64;
/// Phases are whole microseconds where nothing else is said.
const STEP_DEFAULT: Nanos = Nanos::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "[[node]]\nname = \"edge\"\nlink = \"1Gbit\"\ncpu = \"200%\"\n";

    #[test]
    fn a_request_is_read_as_written() {
        let text = format!(
            "{NODE}cycle = \"1ms\"\ncount = 3\n[[slice]]\nname = \"a\"\ncount = 2\n\
             send = \"10Mbit\"\nframes = [{{ size = \"64B\", weight = 2 }}, {{ size = \"1kB\" }}]\n\
             cpu = \"5%\"\ncpu_on = {{ edge = \"3%\" }}\n"
        );
        let request = read_request(&text).unwrap();
        assert_eq!(request.kinds[0].cycle.unwrap().step, STEP_DEFAULT);
        let names: Vec<_> = request.slices.iter().map(|slice| slice.name.as_str()).collect();
        assert_eq!(names, ["a-1", "a-2"]);
        assert_eq!(request.slices[0].cpu, [CpuShare::from_percent(3)]);
        assert_eq!(request.slices[0].receive, BitRate::from_mbps(10));
    }

    #[test]
    fn a_running_node_has_an_address_a_token_and_authorities() {
        let slice = "[[slice]]\nname = \"a\"\nsend = \"9Mbit\"\nlimit = \"8Mbit\"\n\
                     frames = \"64B\"\ncpu = \"5%\"\n";
        let refused = |keys: &str, slice: &str| {
            read_request(&format!("{NODE}{keys}{slice}")).unwrap_err().to_string()
        };
        let sound = slice.replace("8Mbit", "9Mbit");
        for (keys, slice, words) in [
            ("", slice, "limit: is 8Mbit, less than the guarantee, 9Mbit"),
            ("token_file = \"t\"\n", &sound, "token_file: is for the address of a node"),
            ("api = \"/run/a.sock\"\nca = \"c\"\n", &sound, "ca: is for https"),
        ] {
            let problems = refused(keys, slice);
            assert!(problems.contains(words), "{words:?} in {problems}");
        }
        let clear = format!("{NODE}api = \"http://edge\"\n{sound}");
        let refused = read_request(&clear).unwrap_err().to_string();
        let text = "is http://; it must be https:// or the path of a Unix socket";
        assert!(refused.contains(text), "{refused}");
        let keys = "api = \"https://edge\"\ntoken_file = \"t\"\nca = \"c\"\n";
        let request = read_request(&format!("{NODE}{keys}{sound}")).unwrap();
        let api = request.kinds[0].api.as_ref().unwrap();
        assert_eq!((api.address.as_str(), api.ca.as_deref()), ("https://edge", Some("c")));
    }

    #[test]
    fn processor_time_that_is_not_given_is_the_models() {
        let slice = "[[slice]]\nname = \"a\"\nsend = \"8Mbit\"\nframes = \"1004B\"\n";
        let missing = read_request(&format!("{NODE}{slice}")).unwrap_err().to_string();
        assert!(missing.contains("cpu: is missing, and kind edge has no model"), "{missing}");
        let mut request = read_request(&format!("{NODE}model = \"m\"\n{slice}")).unwrap();
        let upper = |pps: weir_units::PacketRate, bytes: f64| {
            assert_eq!((pps.as_pps(), bytes.to_bits()), (2000, 1004_f64.to_bits()));
            Ok((CpuShare::from_percent(7), weir_units::PacketRate::from_pps(3000)))
        };
        request.model_cpu(0, CpuShare::from_percent(2), upper);
        assert_eq!(request.slices[0].cpu, [CpuShare::from_percent(7)]);
        assert_eq!(request.kinds[0].cpu_base, CpuShare::from_percent(2));
        assert_eq!(request.slices[0].packets_ppm, [666_667], "2 of 3 kpps, rounded up");
        let most = Some(weir_units::PacketRate::from_pps(1500));
        request.model_cpu(0, CpuShare::ZERO, |_, _| Err(most));
        let why = request.slices[0].mismatch(0, &request.kinds[0]).unwrap().to_string();
        assert_eq!(why, "2kpps of 1004 bytes, its CPU model was measured up to 1500pps");
        let given = format!("{NODE}model = \"m\"\n{slice}cpu_on = {{ edge = \"3%\" }}\n");
        assert_eq!(read_request(&given).unwrap().slices[0].modelled, [0; 0]);
    }

    /// Goal: a file that was cut off is no plan: an apply or a verify of it would succeed.
    #[test]
    fn a_file_without_nodes_or_slices_is_refused() {
        let slice = "[[slice]]\nname = \"a\"\nsend = \"9Mbit\"\nframes = \"64B\"\ncpu = \"5%\"\n";
        for (text, missing) in [("", "node"), (NODE, "slice"), (slice, "node")] {
            let refused = read_request(text).unwrap_err().to_string();
            assert!(refused.contains(&format!("{missing}: is missing")), "{refused}");
        }
        // The name of one of several has room for its number.
        let long = slice.replace("\"a\"", &format!("\"{}\"", "x".repeat(62)));
        read_request(&format!("{NODE}{long}")).unwrap();
        let refused = read_request(&format!("{NODE}{long}count = 2\n")).unwrap_err().to_string();
        assert!(refused.contains("has 64 characters, at most 63"), "{refused}");
    }

    #[test]
    fn problems_name_line_key_value_and_bound() {
        let text = format!(
            "{NODE}phase_step = \"5us\"\n[[slice]]\nname = \"a\"\nsend = \"10Mbit\"\n\
             frames = \"9B\"\ncpu = \"5\"\nnodes = [\"core\"]\n"
        );
        let problems = read_request(&text).unwrap_err().to_string();
        for words in [
            "phase_step: is 5us, and the node has no cycle",
            "frames: 9B is not between 64 and 9600 bytes",
            "cpu: \"5\" is not a share of a processor",
            "nodes 1: \"core\" is no kind of node; known: edge",
        ] {
            assert!(problems.contains(words), "{words:?} in {problems}");
        }
    }
}
