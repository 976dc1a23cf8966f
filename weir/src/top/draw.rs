// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws a model into whatever room there is: both directions side by side, one, or rates alone.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as Line2, Table, TableState, Wrap};

use super::model::{Row, RowKind, RowSide, ScreenModel, ShownDirection, Sort};
use super::text;

/// The reader's choices: sorting, direction, selection, help.
#[derive(Clone, Debug, Default)]
pub(super) struct ScreenView {
    pub(super) sort: Sort,
    pub(super) way: ShownDirection,
    pub(super) reversed: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The row that the last lines describe.
    pub(super) selected: usize,
    /// The seconds for which the node has not answered, and the reason.
    pub(super) lost: Option<(u64, String)>,
    /// Position of the table's first visible row.
    pub(super) table: TableState,
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &ScreenModel, view: &mut ScreenView) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!("needs {WIDTH_MIN} x {HEIGHT_MIN} characters");
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let one = Constraint::Length(1);
    let [head, state, table, why, keys] =
        Layout::vertical([one, one, Constraint::Min(1), Constraint::Length(2), one]).areas(area);
    let title = if model.node.is_empty() { "connecting".to_owned() } else { text::head(model) };
    frame.render_widget(Paragraph::new(title).style(BOLD), head);
    frame.render_widget(Paragraph::new(state_line(model, view)), state);
    let rows = model.sorted(view.sort, view.way, view.reversed);
    view.selected = view.selected.min(rows.len().saturating_sub(1));
    draw_table(frame, table, &rows, view);
    let why_lines = rows.get(view.selected).map(|row| reasons(row)).unwrap_or_default();
    frame.render_widget(Paragraph::new(why_lines), why);
    frame.render_widget(Paragraph::new(KEYS).style(DIM), keys);
    if view.help {
        draw_help(frame, area);
    }
}

fn state_line(model: &ScreenModel, view: &ScreenView) -> Line<'static> {
    if let Some((seconds, why)) = &view.lost {
        let text = format!("LOST for {seconds} s, old numbers below; trying again: {why}");
        return Line::from(text).style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
    }
    if model.rows.is_empty() {
        return Line::from("no ports and no vifs yet");
    }
    let order = if view.reversed { "reversed" } else { "" };
    let mut text = format!("by {} {order}", view.sort.name()).trim_end().to_owned();
    if !model.is_measured() {
        text += ", measuring";
    }
    if view.paused {
        return Line::from(format!("PAUSED, {text}")).style(Style::new().fg(Color::Yellow));
    }
    Line::from(text).style(DIM)
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, rows: &[&Row], view: &mut ScreenView) {
    let ways: &[ShownDirection] = if area.width >= WIDTH_BOTH {
        &[ShownDirection::Send, ShownDirection::Receive]
    } else {
        &[view.way]
    };
    let narrow = area.width < WIDTH_ONE;
    let mut widths = vec![Constraint::Min(if narrow { 8 } else { 16 })];
    let mut titles = vec![Cell::from("NAME")];
    for way in ways {
        let columns = if narrow { &COLUMNS[..2] } else { &COLUMNS };
        for (index, (title, width)) in columns.iter().enumerate() {
            widths.push(Constraint::Length(*width));
            let title = if index == 0 { way.name().to_uppercase() } else { (*title).to_owned() };
            titles.push(right(title));
        }
        if !narrow {
            widths.push(Constraint::Length(BAR));
            titles.push(Cell::from("OF GUAR."));
        }
    }
    let lines = rows.iter().map(|row| {
        let style = if row.kind == RowKind::Vif { Style::new() } else { BOLD };
        let mut cells = vec![Cell::from(text::name(row)).style(style)];
        for way in ways {
            cells.extend(cells_of(row.side(*way), narrow));
        }
        Line2::new(cells)
    });
    let table = Table::new(lines, widths)
        .header(Line2::new(titles).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(1);
    view.table.select(Some(view.selected));
    frame.render_stateful_widget(table, area, &mut view.table);
}

fn cells_of(side: &RowSide, narrow: bool) -> Vec<Cell<'static>> {
    let got = match side.share() {
        Some(_) if side.is_short() => Style::new().fg(Color::Red),
        Some(share) if share >= 1.0 => Style::new().fg(Color::Green),
        _ => Style::new(),
    };
    let rate = right(text::bits(side.rate_bps)).style(got);
    let percent = right(text::percent(side)).style(got);
    if narrow {
        return vec![rate, percent];
    }
    let warn = |on: bool| if on { Style::new().fg(Color::Yellow) } else { Style::new() };
    vec![
        rate,
        percent,
        right(text::guarantee(side)),
        right(text::count(super::model::float(side.queue_packets))),
        right(text::delay(side)).style(warn(side.standing || side.delay_s > 0.1)),
        right(text::drops(side)).style(warn(side.drops_per_s > 0.0)),
        Cell::from(bar(side)).style(got),
    ]
}

/// Returns a bar that is full at the guarantee; only the percentage shows what exceeds it.
fn bar(side: &RowSide) -> String {
    let Some(share) = side.share() else { return String::new() };
    let full = (1..=BAR).filter(|step| share * f64::from(BAR) >= f64::from(*step) - 0.5).count();
    "█".repeat(full) + &"·".repeat(usize::from(BAR) - full)
}

/// Returns the lines about the selected row: its load, its queue, and why it loses packets.
fn reasons(row: &Row) -> Vec<Line<'static>> {
    let line = |way: ShownDirection| {
        let side = row.side(way);
        let mut by: Vec<_> = side.drops_per_s_by.iter().collect();
        by.sort_by(|a, b| b.1.total_cmp(a.1));
        let each = by.iter().map(|(reason, drops)| format!("{reason} {}/s", text::count(**drops)));
        let each = each.collect::<Vec<_>>().join(", ");
        let limit = side.limit_bps.map_or_else(String::new, |limit| {
            format!(", limit {}", text::bits(super::model::float(limit)))
        });
        let standing = if side.standing { ", queue standing" } else { "" };
        let queue = match (way, text::cycle(row)) {
            (ShownDirection::Send, Some(cycle)) => format!("{}, {cycle}", text::queue(side)),
            _ => text::queue(side),
        };
        let offered = text::bits(side.offered_bps);
        Line::from(vec![
            Span::styled(format!("{} {}: ", row.name, way.name()), BOLD),
            Span::raw(format!("offered {offered}{limit}{queue}{standing}; ")),
            Span::raw(if each.is_empty() {
                "no drops".to_owned()
            } else {
                format!("drops: {each}")
            }),
        ])
    };
    vec![line(ShownDirection::Send), line(ShownDirection::Receive)]
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (HELP_WIDTH.min(area.width), HELP_HEIGHT.min(area.height));
    let [_, middle, _] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(height), Constraint::Min(0)])
            .areas(area);
    let [_, middle, _] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(width), Constraint::Min(0)])
            .areas(middle);
    frame.render_widget(Clear, middle);
    let help = Paragraph::new(HELP).block(Block::bordered().title("weir top"));
    frame.render_widget(help.wrap(Wrap { trim: false }), middle);
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// The least widths for both directions and for one; a narrower screen shows rates alone.
const WIDTH_BOTH: u16 = 118;
const WIDTH_ONE: u16 = 66;
const WIDTH_MIN: u16 = 24;
const HEIGHT_MIN: u16 = 8;

/// Titles and widths of the columns of a direction; its name replaces the first title.
const COLUMNS: [(&str, u16); 6] =
    [("RATE", 7), ("%", 5), ("GUAR.", 5), ("QUEUE", 5), ("DELAY", 6), ("DROPS/s", 7)];
const BAR: u16 = 8;

const KEYS: &str = "q quit  ? help  p pause  s sort  d direction";

const HELP: &str = "\
q, Esc   quit
p        pause; the numbers stay
s, S     sort by the next key; the other way round
n r g    by name, rate, share of the guarantee
w l x    by waiting packets, delay, drops
d        the other direction, where one is shown
Up Down  the row that the last lines tell of
?        this

RATE is the forwarded traffic, bits a second of layer 2. Red: less
than the guarantee although more was offered. Green: the guarantee.
OFFERED is all arrivals, early drops included. DELAY is how long the
first packet has waited; yellow: the queue is standing, its delay
stayed above 20 ms for the last second.";
const HELP_WIDTH: u16 = 70;
const HELP_HEIGHT: u16 = 16;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;
    use weir_api_types::status::Verdict;
    use weir_api_types::status::{Amount, FlowsStatus, IfaceStatus, NodeStatus, WorkerStatus};

    use super::super::model::{CycleFigures, StatusSample};
    use super::*;

    /// Compares the screen with the stored one, which `./x bless` rewrites.
    fn shows(
        name: &str,
        (width, height): (u16, u16),
        model: &ScreenModel,
        view: &mut ScreenView,
    ) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            text += line.trim_end();
            text.push('\n');
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top");
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == text, "{}:\n{text}", path.display());
        text
    }

    fn share(min: u64, rate: Option<u64>) -> serde_json::Value {
        json!({ "priority": 1, "min_rate_bps": min, "rate_bps": rate })
    }

    fn granted() -> serde_json::Value {
        let vif = |name: &str, slice: &str, min| {
            json!({
                "name": name, "slice": slice, "send": share(min, None), "receive": share(0, None)
            })
        };
        let slice = |name: &str, min| {
            json!({
                "name": name, "send": share(min, Some(80_000_000)), "receive": share(0, None)
            })
        };
        json!({
            "node": "edge",
            "ports": [{ "name": "up0", "rate_bps": 100_000_000 }],
            "slices": [slice("gold", 0), slice("lead", 20_000_000)],
            "vifs": [
                vif("gold.0", "gold", 30_000_000),
                vif("gold.1", "gold", 10_000_000),
                vif("lead.0", "lead", 0),
            ],
        })
    }

    /// Returns a model a second later: gold.0 gets 25 of 30 Mbit/s and waits, lead.0 drops.
    fn model() -> ScreenModel {
        let iface = |name: &str, megabits: u64| {
            let mut iface = IfaceStatus { name: name.into(), ..IfaceStatus::default() };
            let bytes = megabits * 125_000;
            iface.send.sent = Amount { packets: bytes / 1000, bytes };
            iface.send.received = iface.send.sent;
            iface
        };
        let mut status = NodeStatus { node: "edge".into(), ..NodeStatus::default() };
        (status.now_ns, status.uptime_ns) = (5_000_000_000, 1_000_000_000);
        status.worker = Some(WorkerStatus { turns: 1000, ..WorkerStatus::default() });
        status.ports.push(iface("up0", 0));
        status.vifs.extend(["gold.0", "gold.1", "lead.0"].map(|name| iface(name, 0)));
        let mut later = status.clone();
        (later.now_ns, later.uptime_ns) = (6_000_000_000, 2_000_000_000);
        let worker = later.worker.get_or_insert_default();
        (worker.turns, worker.busy_turns, worker.busy_ns) = (26_000, 5_000, 370_000_000);
        (worker.frames, worker.frames_free) = (16_384, 16_000);
        (worker.lateness.p99_ns, worker.lateness.max_ns) = (71_000, 2_300_000);
        later.ports[0] = iface("up0", 96);
        later.vifs = vec![iface("gold.0", 25), iface("gold.1", 10), iface("lead.0", 61)];
        later.vifs[0].send.backlog = Amount { packets: 128, bytes: 128_000 };
        later.vifs[0].send.wait_ns = 41_000_000;
        let full = Amount { packets: 5200, bytes: 5_200_000 };
        later.vifs[2].send.dropped.insert("queue_bytes".into(), full);
        later.vifs[2].send.flows =
            Some(FlowsStatus { active: 3, sparse: 1, ..FlowsStatus::default() });
        later.vifs[2].send.marked = 12;
        let storm = Amount { packets: 12, bytes: 720 };
        later.vifs[2].send.dropped.insert("storm".into(), storm);
        let mut model = ScreenModel::default();
        for status in [status, later] {
            let granted = serde_json::from_value(granted()).unwrap();
            model.take(StatusSample { status, granted });
        }
        model
    }

    #[test]
    fn a_cycle_and_its_phases_are_told() {
        let mut model = model();
        let mut phases =
            weir_api_types::status::PhaseStatus { met: 998, missed: 2, ..<_>::default() };
        (phases.late.p50_ns, phases.late.p99_ns) = (2_000, 14_000);
        model.rows[0].cycle = Some(CycleFigures { length_ns: 1_000_000, phases });
        let slice = model.rows.iter_mut().find(|row| row.kind == RowKind::Slice).unwrap();
        slice.phase_ns = Some(130_000);
        let page = text::page(&model);
        let cycle =
            "up0 (port): cycle 1.0ms, 0.20 % of 1.00k phases missed, late 2us (p50) 14us (p99)";
        assert!(page.contains(cycle) && page.contains("gold: phase 130us"), "{page}");
        let last_lines: String = reasons(&model.rows[0]).iter().map(ToString::to_string).collect();
        assert_eq!(last_lines.matches("cycle 1.0ms").count(), 1, "as what it sends: {last_lines}");
    }

    #[test]
    fn both_directions_stand_side_by_side_where_there_is_room() {
        let mut view = ScreenView { selected: 5, ..ScreenView::default() };
        let text = shows("wide", (130, 16), &model(), &mut view);
        assert!(text.contains("queue_bytes 5.20k/s, storm 12/s"), "{text}");
        assert_eq!(text.matches("41.0ms").count(), 2, "its own and its tenant's: {text}");
        assert!(text.contains("offered 61.0M, 3 flows (1 sparse), 12 marks/s; drops"), "{text}");
        assert!(text.contains("37 % busy"), "{text}");
    }

    #[test]
    fn one_direction_is_shown_where_there_is_not() {
        let mut view = ScreenView { sort: Sort::Rate, ..ScreenView::default() };
        shows("one", (80, 16), &model(), &mut view);
        view = ScreenView {
            way: ShownDirection::Receive,
            paused: true,
            reversed: true,
            ..ScreenView::default()
        };
        let text = shows("paused", (80, 16), &model(), &mut view);
        assert!(text.contains("RECEIVE") && text.contains("PAUSED"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_has_rates_and_shares() {
        shows("narrow", (40, 12), &model(), &mut ScreenView::default());
        let text = shows("tiny", (20, 4), &model(), &mut ScreenView::default());
        assert!(text.contains("needs 24 x 8"), "{text}");
    }

    #[test]
    fn a_node_that_is_lost_is_said_to_be() {
        let lost = Some((3, "/run/weir/node-edge.sock: no node answers".to_owned()));
        let mut view = ScreenView { lost, ..ScreenView::default() };
        let text = shows("lost", (100, 14), &model(), &mut view);
        assert!(text.contains("LOST for 3 s"), "{text}");
    }

    #[test]
    fn before_anything_is_known_that_is_said() {
        let text = shows("empty", (80, 10), &ScreenModel::default(), &mut ScreenView::default());
        assert!(text.contains("no ports and no vifs yet"), "{text}");
        let mut view = ScreenView { help: true, ..ScreenView::default() };
        shows("help", (100, 20), &model(), &mut view);
    }

    /// The tenant that lost most of what it wanted comes first; its vifs go with it.
    #[test]
    fn rows_are_in_the_order_that_is_asked_for() {
        let model = model();
        let names = |sort, reversed| -> Vec<String> {
            let rows = model.sorted(sort, ShownDirection::Send, reversed);
            rows.iter().map(|row| row.name.clone()).collect()
        };
        assert_eq!(names(Sort::Name, false), ["up0", "gold", "gold.0", "gold.1", "lead", "lead.0"]);
        assert_eq!(names(Sort::Rate, false), ["up0", "lead", "lead.0", "gold", "gold.0", "gold.1"]);
        assert_eq!(names(Sort::Queue, true)[1], "lead");
        assert_eq!(names(Sort::Guarantee, false)[1..4], ["gold", "gold.0", "gold.1"]);
        let all: Vec<Sort> = std::iter::successors(Some(Sort::Name), |sort| {
            Some(sort.next()).filter(|sort| *sort != Sort::Name)
        })
        .collect();
        assert_eq!(all, Sort::ALL);
    }

    /// Goal: the port's bytes count. In packets of 60 bytes, with 24 more of the wire for each, the
    /// guaranteed 30 Mbit/s are reached; spoofed packets have no guarantee.
    #[test]
    fn a_rate_is_held_against_its_guarantee_as_the_port_counts() {
        let mut model = ScreenModel::default();
        let mut status =
            NodeStatus { node: "edge".into(), now_ns: 1, uptime_ns: 1, ..NodeStatus::default() };
        status.vifs.push(IfaceStatus { name: "gold.0".into(), ..IfaceStatus::default() });
        let mut granted = granted();
        granted["vifs"][0]["overhead_bytes"] = json!(24);
        let sample = |status: &NodeStatus| StatusSample {
            status: status.clone(),
            granted: serde_json::from_value(granted.clone()).unwrap(),
        };
        model.take(sample(&status));
        (status.now_ns, status.uptime_ns) = (1_000_000_001, 1_000_000_001);
        let packets = 30_000_000 / 8 / 84;
        status.vifs[0].send.sent = Amount { packets, bytes: 60 * packets };
        status.vifs[0].send.received = status.vifs[0].send.sent;
        model.take(sample(&status));
        let share = model.rows[0].send.share().unwrap();
        assert!((0.999..1.001).contains(&share), "{share}");
        (status.now_ns, status.uptime_ns) = (2_000_000_001, 2_000_000_001);
        status.vifs[0].send.dropped.insert("spoofed_mac".into(), Amount { packets: 9, bytes: 540 });
        status.vifs[0].send.received.packets += 9;
        model.take(sample(&status));
        assert!(!model.rows[0].send.wanting && !model.rows[0].send.is_short());
        (status.now_ns, status.uptime_ns) = (3_000_000_001, 3_000_000_001);
        status.vifs[0].send.dropped.insert("no_credit".into(), Amount { packets: 1, bytes: 60 });
        model.take(sample(&status));
        assert!(model.rows[0].send.wanting, "{:?}", model.rows[0].send);
        // Only the node's verdict says whether that is too little.
        assert!(!model.rows[0].send.is_short());
        (status.now_ns, status.uptime_ns) = (4_000_000_001, 4_000_000_001);
        status.vifs[0].send.verdict = Some(Verdict::Below);
        model.take(sample(&status));
        assert!(model.rows[0].send.is_short(), "{:?}", model.rows[0].send);
    }

    /// Goal: a restarted node counts from zero, and no rate is computed across the restart.
    #[test]
    fn a_restart_is_no_rate() {
        let mut model = model();
        assert!(model.is_measured());
        let mut status = NodeStatus { node: "edge".into(), ..NodeStatus::default() };
        (status.now_ns, status.uptime_ns) = (7_000_000_000, 100_000_000);
        model.take(StatusSample { status, granted: serde_json::from_value(granted()).unwrap() });
        assert!(!model.is_measured());
        assert!(model.rows.iter().all(|row| row.send.rate_bps == 0.0));
    }
}
