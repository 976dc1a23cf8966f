#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Domain 0 of the Xen lab: starts Xen's daemons and the guests, lets Weir work, and leaves what came
# of it on the disk, as a tar archive with the exit status of each command in `status`.
export PATH=/usr/lib/xen-4.17/bin:/usr/bin:/sbin:/bin TERM=vt100
# The shell would take its own.
ip() { /sbin/ip "$@"; }
tc() { /sbin/tc "$@"; }
say() { echo "XEN-LAB $(cut -d' ' -f1 /proc/uptime) s: $*"; }
# keep NAME COMMAND...: what it prints in /out/NAME.txt, its status in /out/status
keep() {
    name=$1
    shift
    "$@" >"/out/$name.txt" 2>&1
    echo "$name $?" >>/out/status
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mkdir -p /run/xen /run/xenstored /run/lock /dev/pts
mount -t devpts devpts /dev/pts
ln -s /run /var/run
ln -s /run/lock /var/lock
for module in /lib/modules/*.ko; do insmod "$module"; done
mount -t xenfs xenfs /proc/xen
ip link set lo up
# The buffer that a sender asks for, so that a slow guest drops packets and does not hold it up.
echo 8388608 >/proc/sys/net/core/wmem_max
xenstored --pid-file /run/xenstored.pid
until xenstore-exists /; do sleep 0.1; done
xen-init-dom0 >/dev/null
xenconsoled --pid-file=/run/xenconsoled.pid
say "Xen's daemons are up"

lab=caps
for word in $(cat /proc/cmdline); do
    case $word in
    weir=*) options=${word#weir=} ;;
    lab=*) lab=${word#lab=} ;;
    esac
done
loads=
classes=
for guest in fc1 fc2; do
    set -- "/etc/xen/guests/$guest.cfg"
    # A guest that never waits, for classes.
    [ "$lab" = classes ] && set -- "$@" "extra=\"console=hvc0 quiet guest=${guest#fc} burn\""
    keep "create-$guest" xl create "$@"
    ip -batch "/etc/xen/guests/$guest.ip"
    . "/etc/xen/guests/$guest.sh"
    # What the guest has no time for is dropped here, and does not hold up the sender.
    tc qdisc replace dev "$device" root pfifo limit 100
    loads="$loads --load $load"
    classes="$classes --guest $guest"
done
say "the guests are made"
for guest in fc1 fc2; do
    . "/etc/xen/guests/$guest.sh"
    tries=0
    until ping -c 1 -W 1 "$address" >/dev/null 2>&1 || [ "$tries" -eq 60 ]; do
        tries=$((tries + 1))
    done
    keep "ping-$guest" ping -c 2 "$address"
done
say "the guests are up"

keep doctor weir doctor
say "weir doctor has looked"
# This kernel's verifier is older than that of most machines of developers.
cat >/run/switch.toml <<END
version = 1

[[port]]
name = "card"
kind = "tap"
rate = "100Mbit"

[[slice]]
name = "gold"

[[vif]]
name = "gold.0"
slice = "gold"
device = "tenant"
kind = "tap"
mac = ["02:00:00:00:01:01"]
send = { min_rate = "1Mbit" }
END
keep switch sh -c 'weir node run --config /run/switch.toml & node=$!
until weir node stop; do kill -0 $node || break; sleep 1; done; wait $node'
say "a switch has run"
# shellcheck disable=SC2086  # all are lists of words
{
    case $lab in
    classes)
        ip netns add classes
        weir-lab lab xen-classes $classes --namespace classes --out /out
        ;;
    *) weir-lab lab xen $loads --out /out ${options:-} ;;
    esac
    echo "weir $?" >>/out/status
} 2>&1 | while read -r line; do
    echo "$line" >>/out/weir.txt
    say "$line"
done
keep xl-info xl info
keep xl-list xl list
keep store xenstore-ls -f /local/domain/0/backend/vif
keep devices cat /proc/net/dev
keep dmesg dmesg
keep xl-dmesg xl dmesg
tar -c -f /dev/vda -C / out
sync
say "off"
poweroff -f
