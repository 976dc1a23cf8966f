// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of the host, as a person could type them.
