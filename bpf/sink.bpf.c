/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A sink: counts every frame that arrives at a device by its source (MAC address and VLAN), and
 * every measured UDP packet by its stream: packets, bytes, lost, reordered, duplicated, delay; both
 * in cells of time. Then the frame goes on to the stack or is dropped.
 *
 * Sequence numbers are kept as in RFC 4737: a number above the highest one opens a gap, whose
 * packets count as lost until they arrive; then they count as reordered instead. A number that was
 * seen before is a duplicate. Numbers WINDOW or more below the highest cannot be told apart: they
 * count as stale.
 *
 * Any number of processors may run it: each stream and each source has its own lock.
 */
#include "traffic.h"

#define STREAMS_MAX 1024
#define SOURCES_MAX 1024
#define RECORDS_MAX 1
#define WINDOW_WORDS 16u
#define WINDOW (WINDOW_WORDS * 64)
/* Log-linear: 64 steps an octave, so a step is at most 1/64 of its value; up to 137 s. */
#define STEPS_BITS 6
#define STEPS 2048u

#define ETH_IPV4 0x0800
#define ETH_IPV6 0x86dd
#define ETH_VLAN 0x8100
#define ETH_QINQ 0x88a8
/* The header of a parallel internet: type, number, type of what follows. */
#define ETH_PIH 0x88b5
#define PIH_BYTES 3
#define IP_TCP 6
#define IP_UDP 17
#define NO_VLAN 0xffffull

#define DROP_NONE 0
#define DROP_STREAMS 1
#define DROP_ALL 2
#define DROP_UNREAD 3

/* Behind lock and padding all fields are 64 bits wide: user space reads an array of words. */
struct stream {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 packets;
	__u64 bytes;
	__u64 first;      /* lowest sequence number that arrived */
	__u64 next;       /* highest sequence number + 1 */
	__u64 lost;
	__u64 reordered;
	__u64 duplicated;
	__u64 stale;
	__u64 delay_sum_ns;
	__u64 delay_min_ns;
	__u64 delay_max_ns;
	__u64 delays;     /* packets in the histogram */
	__u64 early;      /* stamped later than they arrived: clocks differ */
	__u64 first_ns;
	__u64 last_ns;
	__u64 window[WINDOW_WORDS]; /* bit n % WINDOW: number n arrived */
	struct cell cells[CELLS];
	__u64 histogram[STEPS];
};

struct source {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 packets;
	__u64 bytes;
	__u64 super_frames; /* frames that stood for more than one packet */
	struct cell cells[CELLS];
};

struct record {
	__u64 time_ns;
	__u64 sequence;
	__u64 bytes;
	__u64 delay_ns; /* 0 for one that was stamped later than it arrived */
};

struct totals {
	__u64 packets;
	__u64 bytes;
	__u64 malformed;        /* too short for the headers that they claim */
	__u64 stream_unknown;   /* stream number beyond the table */
	__u64 sources_full;     /* frames of sources for which there was no room */
	__u64 records_full;     /* frames that were to be recorded when there was no room */
	/* What the last frame needed, so that the next one need not divide or look it up. */
	__u64 cell_number;
	__u64 cell_begin_ns;
	__u64 source_key;
	__u64 source_after;     /* its index + 1; 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAMS_MAX);
	__type(key, __u32);
	__type(value, struct stream);
} streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCES_MAX);
	__type(key, __u32);
	__type(value, struct source);
} sources SEC(".maps");

/* MAC address << 16 | VLAN to the index of a source. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SOURCES_MAX);
	__type(key, __u64);
	__type(value, __u32);
} source_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RECORDS_MAX);
	__type(key, __u32);
	__type(value, struct record);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

/* Words, like the streams. */
const volatile struct {
	__u64 cell_ns;
	__u64 streams_max;
	__u64 sources_max;
	__u64 records_max;
	__u64 record_stream;
	__u64 drop;
	__u64 mtu; /* a longer packet is a super-frame (generic mode, receive offload) */
} settings = { 10000000, STREAMS_MAX, SOURCES_MAX, 0, 0, DROP_NONE, 1500 };

/* Sources seen so far. */
__u32 source_count;

struct packet {
	__u64 now;
	__u64 cell;      /* number of the cell that `now` is in */
	__u64 source;    /* MAC address << 16 | VLAN */
	__u64 bytes;
	__u64 packets;   /* more than one for a super-frame */
	__u64 link_bytes; /* length of the Ethernet header with its tag */
	__u64 sequence;
	__u64 sent_ns;
	__u32 stream;
	__u32 measured;  /* carries the header */
};

static __always_inline void read_measured(void *at, void *end, struct packet *p)
{
	if (at + HEADER_BYTES > end || *(__u32 *)at != bpf_htonl(HEADER_MAGIC))
		return;
	__u64 order = bpf_be64_to_cpu(*(__u64 *)(at + 4));
	if (order >> 56 != HEADER_VERSION)
		return;
	p->measured = 1;
	p->sequence = order >> 16 & SEQUENCE_MASK;
	p->stream = order & 0xffff;
	p->sent_ns = bpf_be64_to_cpu(*(__u64 *)(at + 10)) & TIME_MASK;
}

/* Reads the transport header at `at` of a frame that begins at `start`. Returns 0 if malformed. */
static __always_inline int read_transport(void *start, void *at, void *end, __u32 protocol,
					  struct packet *p)
{
	if (protocol == IP_UDP) {
		if (at + 8 > end)
			return 0;
		read_measured(at + 8, end, p);
		return 1;
	}
	__u64 frame_bytes_max = settings.mtu + p->link_bytes;
	if (protocol != IP_TCP || p->bytes <= frame_bytes_max)
		return 1;
	if (at + 20 > end)
		return 0;
	__u64 headers = at - start + (*(__u8 *)(at + 12) >> 4) * 4;
	if (headers >= frame_bytes_max || headers >= p->bytes)
		return 0;
	__u64 payload_max = frame_bytes_max - headers;
	p->packets = (p->bytes - headers + payload_max - 1) / payload_max;
	p->bytes += (p->packets - 1) * headers;
	return 1;
}

static __always_inline int read_frame(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	void *at = data + 14;
	if (at > end)
		return 0;
	__u8 *mac = data + 6;
	__u64 vlan = NO_VLAN;
	__u16 type = *(__u16 *)(data + 12);
	if (type == bpf_htons(ETH_VLAN) || type == bpf_htons(ETH_QINQ)) {
		if (at + 4 > end)
			return 0;
		vlan = bpf_ntohs(*(__u16 *)at) & 0xfff;
		type = *(__u16 *)(at + 2);
		at += 4;
	}
	if (type == bpf_htons(ETH_PIH)) {
		if (at + PIH_BYTES > end)
			return 0;
		type = *(__u16 *)(at + 1);
		at += PIH_BYTES;
	}
	p->link_bytes = at - data;
	p->source = (__u64)mac[0] << 56 | (__u64)mac[1] << 48 | (__u64)mac[2] << 40 |
		    (__u64)mac[3] << 32 | (__u64)mac[4] << 24 | (__u64)mac[5] << 16 | vlan;
	if (type == bpf_htons(ETH_IPV4)) {
		if (at + 20 > end)
			return 0;
		__u8 *ip = at;
		__u32 length = (ip[0] & 15) * 4;
		/* Fragments but the first carry no transport header. */
		if (length < 20 || (*(__u16 *)(ip + 6) & bpf_htons(0x1fff)))
			return 1;
		return read_transport(data, at + length, end, ip[9], p);
	}
	if (type == bpf_htons(ETH_IPV6)) {
		if (at + 40 > end)
			return 0;
		return read_transport(data, at + 40, end, *(__u8 *)(at + 6), p);
	}
	return 1;
}

static __always_inline __u32 log2_floor(__u64 v)
{
	__u32 r = 0;
	if (v >> 32) { v >>= 32; r += 32; }
	if (v >> 16) { v >>= 16; r += 16; }
	if (v >> 8) { v >>= 8; r += 8; }
	if (v >> 4) { v >>= 4; r += 4; }
	if (v >> 2) { v >>= 2; r += 2; }
	if (v >> 1) { r += 1; }
	return r;
}

static __always_inline __u32 step_of(__u64 ns)
{
	if (ns < (1 << STEPS_BITS))
		return ns;
	__u32 log = log2_floor(ns);
	__u32 step = ((log - STEPS_BITS + 1) << STEPS_BITS) +
		     (ns >> (log - STEPS_BITS) & ((1 << STEPS_BITS) - 1));
	return step < STEPS ? step : STEPS - 1;
}

/* Counts the numbers from `next` to `sequence` - 1 as lost and clears their bits of the window. */
static __always_inline void open_gap(struct stream *s, __u64 sequence)
{
	__u64 gap = sequence - s->next;
	s->lost += gap;
	if (gap >= WINDOW) {
		for (__u32 i = 0; i < WINDOW_WORDS; i++)
			s->window[i] = 0;
		return;
	}
	__u64 from = s->next;
	for (__u32 i = 0; i <= WINDOW_WORDS && from < sequence; i++) {
		__u64 until = (from | 63) + 1;
		__u64 mask = ~0ull << (from & 63);
		if (until > sequence)
			mask &= (1ull << (sequence & 63)) - 1;
		s->window[from / 64 & (WINDOW_WORDS - 1)] &= ~mask;
		from = until;
	}
}

/* Counts a packet by its number. Returns true if this is its first arrival within the window. */
static __always_inline int order_count(struct stream *s, __u64 sequence)
{
	__u64 *word = &s->window[sequence / 64 & (WINDOW_WORDS - 1)];
	__u64 bit = 1ull << (sequence & 63);
	if (!s->packets) {
		s->first = sequence;
		s->next = sequence;
	}
	if (sequence >= s->next) {
		if (sequence > s->next)
			open_gap(s, sequence);
		s->next = sequence + 1;
	} else if (s->next - sequence > WINDOW) {
		s->stale += 1;
		return 0;
	} else if (*word & bit) {
		s->duplicated += 1;
		return 0;
	} else {
		s->reordered += 1;
		if (sequence > s->first) {
			s->lost -= 1;
		} else {
			/* The first ones came out of order: what lies between is missing, too. */
			s->lost += s->first - sequence - 1;
			s->first = sequence;
		}
	}
	*word |= bit;
	return 1;
}

static __always_inline void delay_count(struct stream *s, __u64 delay)
{
	/* 48 bits around the circle: the upper half is the past. */
	if (delay > TIME_MASK / 2) {
		s->early += 1;
		return;
	}
	if (delay < s->delay_min_ns || !s->delays)
		s->delay_min_ns = delay;
	if (delay > s->delay_max_ns)
		s->delay_max_ns = delay;
	s->delays += 1;
	s->delay_sum_ns += delay;
	s->histogram[step_of(delay) & (STEPS - 1)] += 1;
}

static __always_inline void record(struct packet *p, __u32 index, struct totals *t)
{
	struct record *r = bpf_map_lookup_elem(&records, &index);
	if (index >= settings.records_max || !r) {
		t->records_full += 1;
		return;
	}
	r->time_ns = p->now;
	r->sequence = p->sequence;
	r->bytes = p->bytes;
	__u64 delay = (p->now - p->sent_ns) & TIME_MASK;
	r->delay_ns = delay > TIME_MASK / 2 ? 0 : delay;
}

static __always_inline void count_stream(struct packet *p, struct totals *t)
{
	__u32 index = p->stream;
	struct stream *s = bpf_map_lookup_elem(&streams, &index);
	if (index >= settings.streams_max || !s) {
		t->stream_unknown += 1;
		return;
	}
	__u64 now = p->now;
	bpf_spin_lock(&s->lock);
	__u64 before = s->packets;
	int is_first = order_count(s, p->sequence);
	if (!before)
		s->first_ns = now;
	s->last_ns = now;
	s->packets += 1;
	s->bytes += p->bytes;
	/* A duplicate has no delay of its own, and a stale packet counts as lost. */
	if (is_first)
		delay_count(s, (now - p->sent_ns) & TIME_MASK);
	cell_count(&s->cells[p->cell & (CELLS - 1)], p->cell, 1, p->bytes);
	bpf_spin_unlock(&s->lock);
	if (settings.records_max && index == settings.record_stream)
		record(p, before > 0xffffffff ? 0xffffffff : before, t);
}

/* Returns the index of the source, which is added if it is new; `sources_max` if there is no
 * room. */
static __always_inline __u32 source_find(__u64 key)
{
	__u32 *known = bpf_map_lookup_elem(&source_index, &key);
	if (known)
		return *known;
	if (source_count >= settings.sources_max)
		return settings.sources_max;
	__u32 index = __sync_fetch_and_add(&source_count, 1);
	if (index >= settings.sources_max)
		return settings.sources_max;
	if (bpf_map_update_elem(&source_index, &key, &index, BPF_NOEXIST)) {
		/* Another processor was first. */
		known = bpf_map_lookup_elem(&source_index, &key);
		return known ? *known : settings.sources_max;
	}
	return index;
}

static __always_inline void count_source(struct packet *p, struct totals *t)
{
	if (!t->source_after || t->source_key != p->source) {
		t->source_key = p->source;
		t->source_after = source_find(p->source) + 1;
	}
	__u32 index = t->source_after - 1;
	struct source *s = bpf_map_lookup_elem(&sources, &index);
	if (index >= settings.sources_max || !s) {
		t->sources_full += 1;
		return;
	}
	bpf_spin_lock(&s->lock);
	s->packets += p->packets;
	s->bytes += p->bytes;
	if (p->packets > 1)
		s->super_frames += 1;
	cell_count(&s->cells[p->cell & (CELLS - 1)], p->cell, p->packets, p->bytes);
	bpf_spin_unlock(&s->lock);
}

static __always_inline __u64 cell_of(__u64 now, struct totals *t)
{
	if (now - t->cell_begin_ns >= settings.cell_ns || !t->cell_number) {
		t->cell_number = now / settings.cell_ns + 1;
		t->cell_begin_ns = (t->cell_number - 1) * settings.cell_ns;
	}
	return t->cell_number;
}

SEC("xdp")
int weir_sink(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct totals *t = bpf_map_lookup_elem(&totals, &zero);
	if (!t)
		return XDP_PASS;
	struct packet p = { .bytes = (__u64)ctx->data_end - ctx->data, .packets = 1 };
	if (settings.drop == DROP_UNREAD) {
		t->packets += 1;
		t->bytes += p.bytes;
		return XDP_DROP;
	}
	p.now = bpf_ktime_get_ns();
	p.cell = cell_of(p.now, t);
	if (!read_frame(ctx, &p))
		t->malformed += 1;
	t->packets += p.packets;
	t->bytes += p.bytes;
	if (settings.sources_max)
		count_source(&p, t);
	if (p.measured)
		count_stream(&p, t);
	if (settings.drop == DROP_ALL || (settings.drop == DROP_STREAMS && p.measured))
		return XDP_DROP;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
