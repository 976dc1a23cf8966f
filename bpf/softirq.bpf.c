// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Adds up the time that each processor spends in soft interrupts, from the entry of each to its
 * exit. /proc/stat samples that time at the timer's tick; a sender that works in step with the tick
 * can skew the sample by a factor.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
struct softirq_time {
	/* When the present one was entered; 0: none. */
	__u64 entered;
	/* The sum of those that are over. */
	__u64 total;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct softirq_time);
} times SEC(".maps");

SEC("raw_tp/softirq_entry")
int softirq_entry(void *ctx)
{
	__u32 zero = 0;
	struct softirq_time *time = bpf_map_lookup_elem(&times, &zero);

	(void)ctx;
	if (time)
		time->entered = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp/softirq_exit")
int softirq_exit(void *ctx)
{
	__u32 zero = 0;
	struct softirq_time *time = bpf_map_lookup_elem(&times, &zero);

	(void)ctx;
	if (time && time->entered) {
		time->total += bpf_ktime_get_ns() - time->entered;
		time->entered = 0;
	}
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
