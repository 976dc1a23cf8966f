#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Rows of the kernel's data plane in a guest whose kernel has what the host's may lack: sch_hfsc,
# fq_codel, 8021q, bonding, MPLS; and rows of the broker, whose routers are namespaces of that
# kernel. For function, not for speed: QEMU runs without acceleration.
#
#   lab/kernel-guest/run.sh FOLDER PROGRAMS ROW...
#
# FOLDER keeps the kernel (108 MB, Debian 13's Linux 6.12 by apt) and the image; PROGRAMS has
# `weir`, `weir-lab` and, for the broker, `weir-broker` of one build. A ROW without a table is of
# `kernel`; `conformance` and `comparison` leave matrix.jsonl and comparison.json in FOLDER.
# Prints what weir-lab says; fails if a row does not hold. Needs qemu-system-x86, busybox-static,
# cpio, kmod, zstd, iproute2, ethtool, iputils-ping, iperf3; for the broker openssh-server,
# openssh-client, curl, sqlite3 and nftables too.
set -euo pipefail

[ $# -ge 3 ] || {
    echo "usage: $0 FOLDER PROGRAMS ROW..." >&2
    exit 2
}
mkdir -p "$1"
folder=$(realpath "$1")
programs=$(realpath "$2")
shift 2
rows=$*
own=$(dirname "$(realpath "$0")")
release=${WEIR_GUEST_SUITE:-trixie}
seconds=${WEIR_GUEST_SECONDS:-3600}
modules="sch_hfsc sch_htb sch_fq_codel sch_tbf sch_ingress cls_bpf cls_u32 cls_flower act_gact
    act_mirred veth bridge 8021q bonding ifb tun mpls_router mpls_iptunnel ip6_tunnel
    crc32c_generic nf_tables"

# The kernel, from lists of its own, so that the host's are left alone.
if ! ls "$folder"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
    mkdir -p "$folder"/apt/{lists,cache}/partial "$folder"/apt/cache/archives/partial
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=${WEIR_GUEST_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
        'Created-By: Packages' | grep -v security | head -1)}
    echo "deb [signed-by=$key] ${mirror:?no package list: set WEIR_GUEST_MIRROR} $release main" \
        >"$folder/apt/sources.list"
    apt=(-o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache"
        -o APT::Sandbox::User=root)
    apt-get -qq "${apt[@]}" update
    package=$(apt-cache "${apt[@]}" search --names-only '^linux-image-[0-9].*-amd64-unsigned$' |
        cut -d' ' -f1 | grep -v -e cloud -e rt- | sort -V | tail -1)
    (cd "$folder" && apt-get -qq "${apt[@]}" download "$package")
    dpkg-deb -x "$folder/$package"_*.deb "$folder/kernel"
fi

# The image: busybox, the modules with what they need, programs with their libraries.
root=$folder/root
rm -rf "$root"
mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,proc,sys,dev,tmp,run,etc,lib,lib64}
cp /bin/busybox "$root/bin/"
for applet in $(/bin/busybox --list | grep -vx busybox); do
    ln -s busybox "$root/bin/$applet"
done
base=$folder/kernel
[ -d "$base/lib/modules" ] || base=$folder/kernel/usr
version=$(ls "$base/lib/modules")
[ -e "$base/lib/modules/$version/modules.dep" ] || depmod -b "$base" "$version"
mkdir -p "$root/lib/modules/$version"
cp "$base/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} \
    "$root/lib/modules/$version/"
for module in $modules; do
    modprobe -d "$base" -S "$version" --show-depends -a "$module" | awk '/^insmod/ { print $2 }'
done | sort -u | while read -r file; do
    inside=$root/lib/modules/$version/${file#*/lib/modules/"$version"/}
    mkdir -p "$(dirname "$inside")"
    cp "$file" "$inside"
    case $inside in *.xz) xz -d "$inside" ;; esac
done
depmod -b "$root" "$version"
wanted=("$programs/weir" "$programs/weir-lab" ip tc bridge ethtool nsenter ping iperf3 mount umount
    sysctl dash)
case $rows in
*em.* | *comparison*)
    wanted+=("$programs/weir-broker" /usr/sbin/sshd ssh-keygen curl sqlite3 nft)
    ;;
esac
for program in "${wanted[@]}"; do
    source=$(command -v "$program")
    name=$(basename "$source")
    # busybox has programs of the same names, which cannot do all of this.
    rm -f "$root/bin/$name"
    cp -L "$source" "$root/bin/$name"
    # A static program has no libraries.
    { ldd "$source" || true; } | grep -oE '/[^ ]+' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Ln "$library" "$root$library"
    done
done
strip "$root"/bin/weir*
# A busybox shell prefers its own programs to those of the same names.
ln -sf dash "$root/bin/sh"
if [ -e "$root/bin/sshd" ]; then
    # An SSH server starts under its full name, and wants to know its users.
    mv "$root/bin/sshd" "$root/usr/sbin/sshd"
    printf '%s\n' root:x:0:0:root:/tmp:/bin/sh sshd:x:100:65534::/run/sshd:/bin/false \
        >"$root/etc/passwd"
    # `nft` and `ip` name protocols.
    printf '%s\n' 'tcp 6 TCP' 'udp 17 UDP' 'ipv6-icmp 58 IPv6-ICMP' >"$root/etc/protocols"
fi
cp "$own/init.sh" "$root/init"
chmod +x "$root/init"
echo "$rows" >"$root/etc/rows"
echo "$modules" >"$root/etc/modules"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$folder/image.gz"

# The matrix judges seconds. So a second of that guest is 500 million instructions, however long
# this machine takes for them, and an idle guest waits for nothing. Two processors are beside the
# one that sends without a pause: sinks that share it count too late. Such a sender ends no grace
# period of RCU by itself, and a change of a policy waits for some, so they are expedited.
clock=(-accel "tcg,thread=multi" -smp 2)
append="console=ttyS0 panic=-1 quiet"
case $rows in
*conformance*)
    clock=(-accel "tcg,thread=single" -icount "shift=1,sleep=off" -smp 3)
    append="$append rcupdate.rcu_expedited=1 rcutree.jiffies_till_first_fqs=1"
    append="$append rcutree.jiffies_till_next_fqs=1 rcutree.jiffies_till_sched_qs=2"
    ;;
esac
timeout "$seconds" qemu-system-x86_64 "${clock[@]}" -cpu max -m 1500 -nodefaults -display none \
    -no-reboot -serial stdio -kernel "$folder"/kernel/boot/vmlinuz-* \
    -initrd "$folder/image.gz" -append "$append" | tee "$folder/said"
tr -d '\r' <"$folder/said" | sed -n 's/^MATRIX //p' >"$folder/matrix.jsonl"
tr -d '\r' <"$folder/said" | sed -n 's/^COMPARISON //p' >"$folder/comparison.json"
held=$(grep -c '^ROW HOLDS' "$folder/said" || true)
# shellcheck disable=SC2086 # the rows are words
[ "$held" = "$(set -- $rows && echo $#)" ]
