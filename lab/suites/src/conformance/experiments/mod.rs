// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments, in order.

mod change;
mod delay;
mod fairness;
mod flood;
mod maximum;
mod minimum;
mod packet_rate;
mod same_node;
mod weights;

use weir_traffic::FrameSizes;
use weir_units::BitRate;

use super::Experiment;

/// The suite.
pub const EXPERIMENTS: &[Experiment] = &[
    fairness::EXPERIMENT,
    weights::EXPERIMENT,
    minimum::EXPERIMENT,
    maximum::EXPERIMENT,
    packet_rate::EXPERIMENT,
    delay::EXPERIMENT,
    change::EXPERIMENT,
    flood::FROM,
    flood::TOWARDS,
    same_node::EXPERIMENT,
];

/// A link, who shares it, and what they send.
#[derive(Clone, Debug)]
struct Variant {
    tenants: usize,
    mbps: u64,
    frames: Frames,
}

/// Sizes of frames, layer 2 without FCS.
#[derive(Clone, Copy, Debug)]
enum Frames {
    /// All of one length.
    Of(u16),
    /// Each of a length of its own: random, 64 to 1500.
    Mixed,
    /// Tenants in turn 64, 512, 1500 and mixed.
    Apart,
}

impl Variant {
    /// A part's name that says all of it.
    fn name(&self) -> String {
        let Self { tenants, mbps, frames } = self;
        let frames = match frames {
            Frames::Of(bytes) => format!("{bytes}B"),
            Frames::Mixed => "mixed".to_owned(),
            Frames::Apart => "apart".to_owned(),
        };
        format!("{tenants}x{mbps}M-{frames}")
    }

    const fn link(&self) -> BitRate {
        BitRate::from_mbps(self.mbps)
    }

    /// What a tenant sends.
    fn sizes(&self, tenant: usize) -> FrameSizes {
        let mixed = FrameSizes::Uniform { min: SIZES[0], max: SIZES[SIZES.len() - 1] };
        match self.frames {
            Frames::Of(bytes) => FrameSizes::Fixed(bytes),
            Frames::Mixed => mixed,
            Frames::Apart => SIZES
                .get(tenant % (SIZES.len() + 1))
                .map_or(mixed, |bytes| FrameSizes::Fixed(*bytes)),
        }
    }
}

const SIZES: [u16; 3] = [64, 512, 1500];
