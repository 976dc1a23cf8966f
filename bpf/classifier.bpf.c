/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Programs that each tell in one way whose a frame is, to measure what the way costs. They are run
 * by bpf_prog_test_run with live frames, which come back as they were left, so that each program
 * writes its headers first. All count in the same table and drop the frame.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_PIH 0x88b5
#define NUMBER 7
#define VLAN 100

struct tally {
	__u64 packets;
	__u64 bytes;
};

/* One for each parallel internet. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

struct place {
	__u16 vlan;
	__u8 mac[ETH_ALEN];
};

/* Addresses of each VLAN; filled before the run. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct place);
	__type(value, __u32);
} places SEC(".maps");

#define DESTINATION 0x02, 0x5a, 0xc3, 0x00, 0x3c, 0xa5
#define SOURCE 0x06, 0x11, 0x22, 0x33, 0x44, 0x00

static __always_inline int write(struct xdp_md *ctx, const __u8 *headers)
{
	void *data = (void *)(long)ctx->data;

	if (data + 24 > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(data, headers, 24);
	return 0;
}

static __always_inline int count(struct xdp_md *ctx, __u32 index)
{
	struct tally *tally = bpf_map_lookup_elem(&tallies, &index);

	if (tally) {
		tally->packets += 1;
		tally->bytes += ctx->data_end - ctx->data;
	}
	return XDP_DROP;
}

static const __u8 with_pih[24] = {DESTINATION, SOURCE, 0x88, 0xb5, NUMBER, 0x08, 0x00, 0x45};
static const __u8 with_tag[24] = {DESTINATION, SOURCE, 0x81, 0x00, 0, VLAN, 0x08, 0x00, 0x45};

SEC("xdp")
int count_alone(struct xdp_md *ctx)
{
	if (write(ctx, with_pih))
		return XDP_ABORTED;
	return count(ctx, NUMBER);
}

/* Tells a frame by the number, and takes the header off. */
SEC("xdp")
int by_pih(struct xdp_md *ctx)
{
	__u8 addresses[2 * ETH_ALEN];
	__u8 *data;
	__u32 number;

	if (write(ctx, with_pih))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	if ((void *)(data + 17) > (void *)(long)ctx->data_end ||
	    *(__be16 *)(data + 12) != bpf_htons(ETH_P_PIH))
		return XDP_ABORTED;
	number = data[14];
	__builtin_memcpy(addresses, data, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, 3))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	if ((void *)(data + sizeof(addresses)) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(data, addresses, sizeof(addresses));
	return count(ctx, number);
}

/* Tells a frame by VLAN and destination address. */
SEC("xdp")
int by_mac(struct xdp_md *ctx)
{
	struct place place = {};
	__u32 *index;
	__u8 *data;

	if (write(ctx, with_tag))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	if ((void *)(data + 18) > (void *)(long)ctx->data_end ||
	    *(__be16 *)(data + 12) != bpf_htons(ETH_P_8021Q))
		return XDP_ABORTED;
	place.vlan = bpf_ntohs(*(__be16 *)(data + 14)) & 0x0fff;
	__builtin_memcpy(place.mac, data, ETH_ALEN);
	index = bpf_map_lookup_elem(&places, &place);
	return index ? count(ctx, *index) : XDP_ABORTED;
}

char LICENSE[] SEC("license") = "MIT";
