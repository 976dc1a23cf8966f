/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The contract of generator and sink: the header in the payload of every measured UDP packet,
 * and the cells that packets are counted in by time.
 *
 * The header has 18 bytes, so that it fits the smallest Ethernet frame (60 bytes without FCS:
 * 14 Ethernet + 20 IPv4 + 8 UDP + 18), in network byte order:
 *
 *   0  magic     4 bytes, "WEIR"
 *   4  version   1 byte, 1
 *   5  sequence  5 bytes (30 hours at 10 Mpps)
 *   10 stream    2 bytes
 *   12 time      6 bytes, low bits of CLOCK_MONOTONIC in nanoseconds (78 hours)
 */
#ifndef WEIR_TRAFFIC_H
#define WEIR_TRAFFIC_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define HEADER_BYTES 18
#define HEADER_MAGIC 0x57454952u
#define HEADER_VERSION 1ull
#define SEQUENCE_MASK ((1ull << 40) - 1)
#define TIME_MASK ((1ull << 48) - 1)

/* A ring of cells a stream; user space collects them well before they come round again. */
#define CELLS 512u

struct cell {
	__u64 number; /* time / width of a cell, plus one; 0: never used */
	__u64 packets;
	__u64 bytes;
};

static __always_inline void cell_count(struct cell *cell, __u64 number, __u64 packets, __u64 bytes)
{
	if (cell->number != number) {
		cell->number = number;
		cell->packets = 0;
		cell->bytes = 0;
	}
	cell->packets += packets;
	cell->bytes += bytes;
}

#endif
