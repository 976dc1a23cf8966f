#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A guest of the Xen lab: forwards what comes in at eth0 for 198.18.N.0/24 out of eth1, to an
# address that is nobody's, so that domain 0 counts it and drops it unread. Each packet is held
# against the policies in /etc/rules first. With `burn` in its command line it never waits besides.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /lib/modules/*.ko; do insmod "$module"; done
until [ -e /sys/class/net/eth1 ]; do sleep 0.1; done
number=$(sed -n 's/.*guest=\([0-9]*\).*/\1/p' /proc/cmdline)
ifconfig eth0 "10.7.$number.2" netmask 255.255.255.0 up
ifconfig eth1 "10.8.$number.2" netmask 255.255.255.0 up
arp -i eth1 -s "10.8.$number.1" 00:16:3e:ff:ff:ff
route add -net "198.18.$number.0" netmask 255.255.255.0 gw "10.8.$number.1"
/sbin/ip -batch /etc/rules
echo 1 >/proc/sys/net/ipv4/ip_forward
grep -q burn /proc/cmdline && while :; do :; done
while :; do sleep 1000; done
