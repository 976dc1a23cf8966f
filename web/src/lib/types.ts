// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page's short names for the node's answers, and the two directions of traffic.

export type {
  Amount,
  CallerView as Caller,
  ChangeView as Change,
  DirectionStatus as Direction,
  EditView as Edit,
  GroupView as Group,
  IfaceStatus as Iface,
  NodeStatus as Status,
  PolicyView as Policy,
  RouterGroupView as Router,
  ShareView as Share,
  Verdict,
  VifView as Vif,
  WorkerStatus as Worker,
} from "./api";

/** A direction, as the tenant sees it: from its vifs, or towards them. */
export type Side = "send" | "receive";

export const SIDES: readonly Side[] = ["send", "receive"];
