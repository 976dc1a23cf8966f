#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The first process of the guest: runs the rows of /etc/rows and switches the machine off.
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf
mkdir -p /run/netns
for module in $(cat /etc/modules); do modprobe "$module"; done
ip link set lo up
cd /tmp || poweroff -f
for row in $(cat /etc/rows); do
    if weir-lab verify kernel --row "$row" --quick --out "/tmp/row$row"; then
        echo "ROW HOLDS $row"
    else
        echo "ROW IS BROKEN $row"
    fi
done
poweroff -f
