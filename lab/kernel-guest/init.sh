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
# A column of the conformance matrix, at rates that this machine reaches; a bridge must break it.
conformance() {
    suite="weir-lab conformance --quick --rates-max 10Mbit --out /tmp/suite"
    $suite --on kernel-hfsc --matrix /tmp/matrix
    status=$?
    sed 's/^/MATRIX /' /tmp/matrix
    $suite --on bridge --only fairness --only minimum
    if [ $? != 3 ]; then
        echo "the canary lives: a bridge holds fairness or minimum"
        return 1
    fi
    return $status
}
for row in $(cat /etc/rows); do
    if [ "$row" = conformance ]; then
        if conformance; then echo "ROW HOLDS $row"; else echo "ROW IS BROKEN $row"; fi
    elif weir-lab verify kernel --row "$row" --quick --out "/tmp/row$row"; then
        echo "ROW HOLDS $row"
    else
        echo "ROW IS BROKEN $row"
    fi
done
poweroff -f
