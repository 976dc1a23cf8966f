// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters that handlers take from a request.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, State};
use weir_policy::Policy;

use crate::app::App;
use crate::caller::Caller;
use crate::error::{ErrorCode, Rejection};

/// The state that all handlers share.
pub(crate) type SharedApp = State<Arc<App>>;
/// The caller, authenticated.
pub(crate) type RequestCaller = Extension<Caller>;
/// The policy that was in force when the request came.
pub(crate) type RequestPolicy = Extension<Arc<Policy>>;
/// A name in the path, or the reason why there is none.
pub(crate) type PathName = Result<Path<String>, PathRejection>;

/// Refuses a request whose query is not of the form that its route takes.
pub(crate) fn malformed_query(error: QueryRejection) -> Rejection {
    Rejection::new(ErrorCode::Malformed, format!("query: {error}"))
}

/// Returns the name in a path, or refuses the request.
pub(crate) fn name(path: PathName) -> Result<String, Rejection> {
    let malformed = |error| Rejection::new(ErrorCode::Malformed, format!("path: {error}"));
    path.map(|Path(name)| name).map_err(malformed)
}
