#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Called by xl for each interface of a guest that comes or goes: gives it the name it is to have and
# brings it up.
export PATH=/usr/bin:/bin
[ "$1" = online ] || exit 0
name=$(xenstore-read "$XENBUS_PATH/vifname" 2>/dev/null)
if [ -n "$name" ]; then
    /sbin/ip link set dev "$vif" down name "$name" && vif=$name
fi
/sbin/ip link set dev "$vif" up && xenstore-write "$XENBUS_PATH/hotplug-status" connected
