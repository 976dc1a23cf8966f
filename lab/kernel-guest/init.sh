#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The first process of the guest: runs the rows of /etc/rows, such as 3 (of the table `kernel`) or
# em.13, and switches the machine off.
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
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
# The broker beside label paths of MPLS: its result file goes to the console.
comparison() {
    weir-lab reproduce em comparison --quick --out /tmp/comparison
    status=$?
    sed 's/^/COMPARISON /' /tmp/comparison/result.json
    return $status
}
for row in $(cat /etc/rows); do
    case $row in
    conformance | comparison) $row ;;
    *.*) weir-lab verify "${row%.*}" --row "${row##*.}" --quick --out "/tmp/$row" ;;
    *) weir-lab verify kernel --row "$row" --quick --out "/tmp/row$row" ;;
    esac
    # shellcheck disable=SC2181 # of whichever it was
    if [ $? = 0 ]; then echo "ROW HOLDS $row"; else echo "ROW IS BROKEN $row"; fi
done
poweroff -f
