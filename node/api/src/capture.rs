// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture as the body of an answer.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use axum::body::Body;
use serde::Deserialize;
use utoipa::IntoParams;
use weir_dataplane::capture::CaptureRequest;

/// What is copied of a vif's frames.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CaptureQuery {
    /// Bytes kept of each frame.
    #[serde(default = "whole")]
    #[param(minimum = 1, default = 1522)]
    pub(crate) snaplen: u16,
    /// Only `send` (from the vif) or `receive` (towards it).
    pub(crate) direction: Option<String>,
    /// Only frames with this MAC address.
    pub(crate) mac: Option<String>,
    /// Only frames with this VLAN on the vif's side.
    pub(crate) vlan: Option<u16>,
    /// Only from this address or network.
    pub(crate) src: Option<String>,
    /// Only to this address or network.
    pub(crate) dst: Option<String>,
    /// Only this TCP or UDP port.
    pub(crate) port: Option<u16>,
}

impl CaptureQuery {
    /// The same, for the node.
    pub(crate) fn request(self, vif: String) -> CaptureRequest {
        let Self { snaplen, direction, mac, vlan, src, dst, port } = self;
        CaptureRequest { vif, snaplen, direction, mac, vlan, src, dst, port }
    }
}

/// The blocks as they come, while `may` says that the reader still may; an empty one only asks
/// whether somebody still reads. The capture ends when the body is dropped.
pub(crate) fn body(
    blocks: Receiver<Vec<u8>>,
    may: impl Fn() -> Option<()> + Send + 'static,
) -> Body {
    let stream = futures_util::stream::unfold((blocks, may), |(blocks, may)| async move {
        loop {
            may()?;
            match blocks.try_recv() {
                Ok(block) if !block.is_empty() => {
                    return Some((Ok::<_, Infallible>(block), (blocks, may)));
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => tokio::time::sleep(LOOK).await,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
    });
    Body::from_stream(stream)
}

const fn whole() -> u16 {
    1522
}

/// The worker hands on what it copied every 10 ms.
const LOOK: Duration = Duration::from_millis(5);
