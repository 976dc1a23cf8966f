# SPDX-License-Identifier: Apache-2.0 OR MIT
# Keeps the processors of a virtual machine awake until its standard input ends: see awake.rs.

grep -q '^flags.* hypervisor' /proc/cpuinfo || exit 0

# The class below all others is below those of its own control group alone. Beside groups of others
# this one would count like any of them.
own=$(grep -E '^[0-9]+:([^:]*,)?cpu(,[^:]*)?:' /proc/self/cgroup || grep '^0::' /proc/self/cgroup)
[ "${own##*:}" = / ] && [ ! -e /sys/fs/cgroup/cpu.max ] || exit 0
# A session is a group, too, where the kernel makes it one (sched(7), autogrouping).
[ ! -e /proc/self/autogroup ] || echo 19 >/proc/self/autogroup || exit 0

sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',' '\n' |
    while IFS=- read -r first last; do
        for cpu in $(seq "$first" "${last:-$first}"); do
            # It looks some hundred times a second whether this shell is there.
            chrt --idle 0 nice -n 19 taskset -c "$cpu" sh -c "
                while kill -0 $$; do
                    i=0; while [ \$i -lt 9999 ]; do i=\$((i + 1)); done
                done" </dev/null &
        done
    done
read -r _
# Of their class they would take long to find out where others are busy.
trap '' TERM
kill 0
