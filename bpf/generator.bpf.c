/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A generator of frames: run by bpf_prog_test_run with live frames, once for each frame that the
 * kernel has at hand. It turns the frame into the next one of a stream that is due and redirects it
 * to the stream's device, or drops it when none is due.
 *
 * Each stream is paced by a due time that carries its remainder, so that its rate is exact; after a
 * time without the processor it catches up, but never by more than `catch_up_ns`. A stream without
 * a rate is always due; several of them share by weight.
 *
 * Frames come back from the receiver with whatever it wrote into them: all headers are written
 * anew.
 */
#include "traffic.h"

#define STREAMS_MAX 1024
#define DEVICES_MAX 64
/* Streams looked at in one run; the next run goes on where this one stopped. */
#define SCAN_MAX 16
#define SIZES_MAX 16
/* Lengths of headers. */
#define LINK_UNTAGGED 14
#define LINK_PIH 17
#define LINK_TAGGED 18
#define IPV4 20
#define IPV6 40
#define UDP 8

/* All fields are 64 bits wide, so that user space reads and writes an array of words. */
struct stream {
	/* Set before the run. */
	__u64 id;
	__u64 device;     /* index into `devices` */
	__u64 start_ns;
	__u64 end_ns;     /* 0: none */
	__u64 limit;      /* frames; 0: none */
	__u64 numerator;  /* a unit takes numerator / denominator ns */
	__u64 denominator; /* 0: not paced */
	__u64 by_bytes;   /* unit is a byte instead of a frame */
	__u64 catch_up_ns;
	__u64 weight;     /* frames in a row, at least 1 */
	__u64 sizes_count; /* 0: uniform between sizes[0] and sizes[1] */
	__u64 sizes[SIZES_MAX];
	__u64 link;       /* length of all before the IP header: one of LINK_ above */
	__u64 ipv6;
	__u64 flows;      /* source ports in turn; at most 1: one */
	__u64 port;       /* first source port */
	/* IPv4: sum of the IP header's words without the total length. IPv6: sum of the words of
	 * pseudo-header, ports and the payload's magic, without lengths and the first source port. */
	__u64 checksum;
	__u8 headers[72];
	/* Kept by the program. */
	__u64 due_ns;
	__u64 remainder;  /* of the division numerator / denominator */
	__u64 packets;    /* sent; also the next sequence number */
	__u64 bytes;
	__u64 skipped_ns; /* given up because it exceeded catch_up_ns */
	__u64 size_next;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAMS_MAX);
	__type(key, __u32);
	__type(value, struct stream);
} streams SEC(".maps");

struct ring {
	struct cell cells[CELLS];
};

/* The ring of each stream. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAMS_MAX);
	__type(key, __u32);
	__type(value, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, DEVICES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

/* Words, like the streams. */
const volatile struct {
	__u64 streams;
	__u64 frame_bytes; /* length of the frames as the kernel makes them */
	__u64 cell_ns;
	__u64 clock_every; /* runs that share a reading of the clock, at least 1 */
} settings = { 1, 1514, 10000000, 1 };

/* The program's state. Only one processor runs the program at a time. */
__u32 cursor;
__u64 turn_left;
__u64 clock_ns;
__u64 clock_left;
/* The cell that was counted in last, so that a frame needs no division. */
__u64 cell_number;
__u64 cell_begin_ns;

static __always_inline __u64 clock_read(void)
{
	if (!clock_left) {
		clock_left = settings.clock_every;
		clock_ns = bpf_ktime_get_ns();
	}
	clock_left -= 1;
	return clock_ns;
}

static __always_inline __u64 cell_of(__u64 now)
{
	if (now - cell_begin_ns >= settings.cell_ns || !cell_number) {
		cell_number = now / settings.cell_ns + 1;
		cell_begin_ns = (cell_number - 1) * settings.cell_ns;
	}
	return cell_number;
}

static __always_inline int is_due(struct stream *s, __u64 now)
{
	if (now < s->start_ns || (s->end_ns && now >= s->end_ns))
		return 0;
	if (s->limit && s->packets >= s->limit)
		return 0;
	return !s->denominator || now >= s->due_ns;
}

static __always_inline __u32 next_size(struct stream *s)
{
	if (s->sizes_count) {
		__u64 i = s->size_next;
		s->size_next = i + 1 >= s->sizes_count ? 0 : i + 1;
		return s->sizes[i & (SIZES_MAX - 1)];
	}
	/* 32 random bits scaled to the span: no division. */
	__u64 span = s->sizes[1] - s->sizes[0] + 1;
	return s->sizes[0] + ((span * bpf_get_prandom_u32()) >> 32);
}

static __always_inline __u64 words_of(__u64 value)
{
	return (value >> 48) + (value >> 32 & 0xffff) + (value >> 16 & 0xffff) + (value & 0xffff);
}

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum & 0xffff;
}

/* Writes the payload's header and returns the sum of its words without the magic. */
static __always_inline __u64 write_payload(void *at, struct stream *s, __u64 now)
{
	__u64 order = HEADER_VERSION << 56 | (s->packets & SEQUENCE_MASK) << 16 | (s->id & 0xffff);
	*(__u32 *)at = bpf_htonl(HEADER_MAGIC);
	/* The time first: its two upper bytes lie where the stream goes. */
	*(__u64 *)(at + 10) = bpf_cpu_to_be64(now);
	*(__u64 *)(at + 4) = bpf_cpu_to_be64(order);
	return words_of(order) + words_of(now & TIME_MASK);
}

/* `length`: of the packet. UDP's checksum is zero, which means none (RFC 768). */
static __always_inline void write_ipv4(void *ip, struct stream *s, __u32 length)
{
	*(__u16 *)(ip + 2) = bpf_htons(length);
	*(__u16 *)(ip + 10) = bpf_htons(folded(s->checksum + length));
	*(__u16 *)(ip + IPV4 + 4) = bpf_htons(length - IPV4);
}

/*
 * `length`: of UDP with its payload, which counts twice; `sum`: of what the payload says. Behind
 * its header the payload is zero, as the frame was made: `write_frame` clears what a longer header
 * left there.
 */
static __always_inline void write_ipv6(void *ip, struct stream *s, __u32 length, __u64 sum)
{
	__u16 checksum = folded(s->checksum + 2 * length + sum);
	*(__u16 *)(ip + 4) = bpf_htons(length);
	*(__u16 *)(ip + IPV6 + 4) = bpf_htons(length);
	*(__u16 *)(ip + IPV6 + 6) = checksum ? bpf_htons(checksum) : 0xffff;
}

/* Writes all headers of a frame. `link` and `network` are constants, so that the verifier knows the
 * length of every copy. */
static __always_inline int write_all(void *data, void *end, struct stream *s, __u32 size,
				     __u64 now, const __u32 link, const __u32 network)
{
	const __u32 headers = link + network + UDP;
	if (data + headers + HEADER_BYTES > end)
		return -1;
	__builtin_memcpy(data, s->headers, headers);
	__u64 sum = write_payload(data + headers, s, now);
	__u64 port = s->port + (s->flows > 1 ? s->packets % s->flows : 0);
	*(__u16 *)(data + link + network) = bpf_htons(port);
	if (network == IPV4)
		write_ipv4(data + link, s, size - link);
	else
		write_ipv6(data + link, s, size - link - network, sum + (port & 0xffff));
	return 0;
}

/* Calls write_all with lengths that the verifier knows. */
static __always_inline int write_behind_link(void *data, void *end, struct stream *s, __u32 size,
					     __u64 now, const __u32 network)
{
	switch (s->link) {
	case LINK_TAGGED:
		return write_all(data, end, s, size, now, LINK_TAGGED, network);
	case LINK_PIH:
		return write_all(data, end, s, size, now, LINK_PIH, network);
	default:
		return write_all(data, end, s, size, now, LINK_UNTAGGED, network);
	}
}

static __always_inline int write_frame(struct xdp_md *ctx, struct stream *s, __u32 size, __u64 now)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	/* A frame with a longer link header may have left the end of its payload's header here. */
	if (s->ipv6 && data + LINK_TAGGED + IPV6 + UDP + HEADER_BYTES <= end)
		*(__u32 *)(data + LINK_UNTAGGED + IPV6 + UDP + HEADER_BYTES) = 0;
	int change = (int)size - (int)settings.frame_bytes;
	if (change && bpf_xdp_adjust_tail(ctx, change))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (s->ipv6)
		return write_behind_link(data, end, s, size, now, IPV6);
	return write_behind_link(data, end, s, size, now, IPV4);
}

static __always_inline void advance(struct stream *s, __u32 size, __u64 now)
{
	s->packets += 1;
	s->bytes += size;
	if (!s->denominator)
		return;
	__u64 late_from = now > s->catch_up_ns ? now - s->catch_up_ns : 0;
	if (s->due_ns < late_from) {
		s->skipped_ns += late_from - s->due_ns;
		s->due_ns = late_from;
	}
	__u64 amount = s->remainder + s->numerator * (s->by_bytes ? size : 1);
	s->due_ns += amount / s->denominator;
	s->remainder = amount % s->denominator;
}

static __always_inline int send(struct xdp_md *ctx, __u32 index, struct stream *s, __u64 now)
{
	__u32 size = next_size(s);
	if (write_frame(ctx, s, size, now))
		return XDP_DROP;
	int action = bpf_redirect_map(&devices, s->device, XDP_DROP);
	if (action != XDP_REDIRECT)
		return XDP_DROP;
	advance(s, size, now);
	__u64 number = cell_of(now);
	struct ring *ring = bpf_map_lookup_elem(&rings, &index);
	if (ring)
		cell_count(&ring->cells[number & (CELLS - 1)], number, 1, size);
	return action;
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	__u64 now = clock_read();
	for (int i = 0; i < SCAN_MAX; i++) {
		__u32 index = cursor;
		struct stream *s = bpf_map_lookup_elem(&streams, &index);
		if (s && is_due(s, now)) {
			if (!turn_left)
				turn_left = s->weight;
			turn_left -= 1;
			if (!turn_left)
				cursor = index + 1 < settings.streams ? index + 1 : 0;
			return send(ctx, index, s, now);
		}
		cursor = index + 1 < settings.streams ? index + 1 : 0;
		turn_left = 0;
	}
	return XDP_DROP;
}

/* GPL: the kernel gives bpf_ktime_get_ns and others to such programs only. */
char _license[] SEC("license") = "Dual MIT/GPL";
