/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The size of a frame as it will be on the wire. A super-frame counts as the frames that it is cut
 * into: as many packets, each with its headers.
 */
#ifndef WEIR_MEASURE_H
#define WEIR_MEASURE_H

#include "tally.h"

/* The walk passes this many VLAN tags and IPv6 extension headers at most. */
#define TAGS 2
#define EXTENSIONS 6

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* Walks from the header of IPv6 at `at` to that of the transport. */
static __always_inline __u32 behind_ipv6(struct __sk_buff *skb, __u32 at, __u8 *transport)
{
	__u8 head[2] = {};

	bpf_skb_load_bytes(skb, at + 6, transport, sizeof(*transport));
	at += 40;
	for (int i = 0; i < EXTENSIONS; i++) {
		switch (*transport) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			bpf_skb_load_bytes(skb, at, head, sizeof(head));
			at += (head[1] + 1) * 8;
			break;
		case IPPROTO_AH:
			bpf_skb_load_bytes(skb, at, head, sizeof(head));
			at += (head[1] + 2) * 4;
			break;
		default:
			return at;
		}
		*transport = head[0];
	}
	return at;
}

/* Returns the length of the headers that each segment of a super-frame has. */
static __always_inline __u32 segment_headers(struct __sk_buff *skb)
{
	__u32 at = ETH_HLEN;
	__u8 transport = 0, word = 0;
	__be16 type = 0;

	bpf_skb_load_bytes(skb, ETH_HLEN - 2, &type, sizeof(type));
	for (int i = 0; i < TAGS && is_tag(type); i++) {
		bpf_skb_load_bytes(skb, at + 2, &type, sizeof(type));
		at += 4;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		bpf_skb_load_bytes(skb, at, &word, sizeof(word));
		bpf_skb_load_bytes(skb, at + 9, &transport, sizeof(transport));
		at += (word & 0x0f) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		at = behind_ipv6(skb, at, &transport);
	} else {
		return at;
	}
	if (transport == IPPROTO_UDP)
		return at + 8;
	word = 0x50;
	bpf_skb_load_bytes(skb, at + 12, &word, sizeof(word));
	return at + (word >> 4) * 4;
}

/* Measures a frame as it will be on the wire, in packets and in bytes of layer 2 without FCS. */
static __always_inline void measure(struct __sk_buff *skb, struct tally *size)
{
	__u32 headers, payload, segments;

	size->packets = 1;
	size->bytes = skb->len;
	if (!skb->gso_size)
		return;
	headers = segment_headers(skb);
	payload = skb->len > headers ? skb->len - headers : 0;
	segments = (payload + skb->gso_size - 1) / skb->gso_size;
	/* A guest may omit or understate the number of segments; frames are cut by the size. */
	if (segments < skb->gso_segs)
		segments = skb->gso_segs;
	if (segments < 2)
		return;
	size->packets = segments;
	size->bytes += (__u64)(segments - 1) * headers;
}

#endif
