// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Counts the frames that a device's ndo_xdp_xmit did not take from the generator: the generator
 * handed them over, and they never were on the wire.
 *
 * Frames of a test run enter as if from the loopback device, which nothing else redirects from.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define LOOPBACK 1

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

/*
 * The first entry: the device's namespace (upper half) and index; the second: frames that it
 * dropped.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

/* The arguments: from, to, sent, drops, error. */
SEC("tp_btf/xdp_devmap_xmit")
int devmap_xmit(unsigned long long *ctx)
{
	struct net_device *from = (struct net_device *)ctx[0];
	struct net_device *to = (struct net_device *)ctx[1];
	int dropped = (int)ctx[3];
	__u32 key = 0;
	__u64 *device, *count, own;

	if (dropped <= 0 || from->ifindex != LOOPBACK)
		return 0;
	device = bpf_map_lookup_elem(&drops, &key);
	key = 1;
	count = bpf_map_lookup_elem(&drops, &key);
	own = (__u64)to->nd_net.net->ns.inum << 32 | (__u32)to->ifindex;
	if (device && count && *device == own)
		__sync_fetch_and_add(count, dropped);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
