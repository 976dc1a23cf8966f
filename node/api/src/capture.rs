// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture as the body of an answer.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use axum::body::Body;
use weir_api_types::query::CaptureQuery;
use weir_dataplane::capture::CaptureRequest;

/// Returns the node's form of a capture's query.
pub(crate) fn request(query: CaptureQuery, vif: String) -> CaptureRequest {
    let CaptureQuery { snaplen, direction, mac, vlan, src, dst, port } = query;
    CaptureRequest { vif, snaplen, direction, mac, vlan, src, dst, port }
}

/// Streams the blocks as they come, while `may` says that the reader is still allowed to read. The
/// node sends an empty block only to test whether somebody still reads. The capture ends when the
/// body is dropped.
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

/// The pause between two looks for a block. The worker hands its copies on every 10 ms.
const LOOK: Duration = Duration::from_millis(5);
