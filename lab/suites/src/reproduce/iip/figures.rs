// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures and the table of the IIP text.

/// A figure or table of the text.
#[derive(Clone, Copy, Debug)]
pub struct IipFigure {
    /// `fig5` to `fig12`, `table1`; `hops` and `phases` are beyond the text.
    pub name: &'static str,
    /// A title of one line.
    pub title: &'static str,
    /// The text's finding.
    pub text: &'static str,
    /// The sweeps that it shows.
    pub(super) sweeps: &'static [&'static str],
    /// The sizes of the sweeps that it shows.
    pub(super) sizes: &'static [&'static str],
    pub(super) view: FigureView,
}

/// The way in which a figure shows loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FigureView {
    /// Packets that arrived by packets offered, a line for each size.
    Throughput,
    /// Transit time by load, a line for each size.
    Latency,
    /// Processor time by load, a line for each guest's thread.
    Processor,
    /// The points of one size and their line.
    Fit,
    /// The line of each size and guest.
    Coefficients,
    /// Sweeps beside each other.
    Beside,
}

/// All figures and the table.
pub const FIGURES: [IipFigure; 11] = [
    IipFigure {
        name: "fig5",
        title: "Node throughput for a specified frame size",
        text: "For a given throughput the maximum number of small frames that the node can \
               process is much lower than for larger ones; the maximum number of handled packets \
               is variable for small frames.",
        sweeps: &["native", "fixed"],
        sizes: FIXED,
        view: FigureView::Throughput,
    },
    IipFigure {
        name: "fig6",
        title: "Node latency for a specified frame size",
        text: "Until frames are dropped the mean latency remains low, about 150 µs. Above the \
               maximum throughput it tends to 20 ms for frames of 79 to 512 bytes; for bigger \
               frames it can be even higher.",
        sweeps: &["native", "fixed"],
        sizes: FIXED,
        view: FigureView::Latency,
    },
    processor(
        "fig7",
        "System load for 128 bytes frame size",
        &["fixed"],
        &["128"],
        "\
        About 50 % of a processor at 150 Mbit/s. The load is linear until frames are lost, then \
        constant. CAN's processors are used most, DSS's least; first processors are used much \
        harder than the others.",
    ),
    processor(
        "fig8",
        "System load for 1024 bytes frame size",
        &["fixed"],
        &["1024"],
        "\
        16 % of a processor at 150 Mbit/s. The load grows almost linearly in the whole range. The \
        difference between machines is lower for larger frames.",
    ),
    processor(
        "fig9",
        "System load for a random frame size",
        &["random"],
        &["random"],
        "\
        The load grows linearly, but for the largest bandwidth, and does not exceed 35 %. CAN \
        needs most; there is no significant difference between QoS and DSS.",
    ),
    IipFigure {
        name: "fig10",
        title: "Node throughput for a random frame size",
        text: "The relations of Fig. 9.",
        sweeps: &["native", "random"],
        sizes: &["random"],
        view: FigureView::Throughput,
    },
    IipFigure {
        name: "fig11",
        title: "Node latency for a random frame size",
        text: "When frames are dropped the average latency rises from several microseconds to \
               tens of milliseconds.",
        sweeps: &["native", "random"],
        sizes: &["random"],
        view: FigureView::Latency,
    },
    IipFigure {
        name: "fig12",
        title: "Sample fit: CAN, 256 bytes",
        text: "CPU = 1.781 x + 12.15, R² 0.9882.",
        sweeps: &["fixed"],
        sizes: &["256"],
        view: FigureView::Fit,
    },
    IipFigure {
        name: "table1",
        title: "Coefficients of the linear equation, first processor of each guest",
        text: "CPU = a · x + b with R² of 0.84 to 0.99; the coefficients depend strongly on the \
               frame size.",
        sweeps: &["fixed"],
        sizes: FIXED,
        view: FigureView::Coefficients,
    },
    IipFigure {
        name: "phases",
        title: "What the phases cost",
        text: "The cyclic scheduler imposes a significant reduction in network performance, \
               compared to the solution without it.",
        sweeps: &["fixed", "random", "no-phases"],
        sizes: &["128", "1024", "random"],
        view: FigureView::Beside,
    },
    IipFigure {
        name: "hops",
        title: "Bridging, routing, translation of addresses",
        text: "The text names the three mechanisms and measures bridging.",
        sweeps: &["fixed", "route", "nat"],
        sizes: &["128", "1024"],
        view: FigureView::Beside,
    },
];

const fn processor(
    name: &'static str,
    title: &'static str,
    sweeps: &'static [&'static str],
    sizes: &'static [&'static str],
    text: &'static str,
) -> IipFigure {
    IipFigure { name, title, text, sweeps, sizes, view: FigureView::Processor }
}

/// The text's sizes, the smallest of which has no room for IPv6 and the tester's header here.
pub(super) const FIXED: &[&str] = &["87", "128", "256", "512", "1024", "1280", "1518"];
