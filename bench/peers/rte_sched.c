/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * DPDK's hierarchical scheduler, measured as Weir's are: one packet in, one packet out, in batches
 * of 32, on one processor, with nothing that waits for a rate.
 *
 *     rte_sched CORE PIPES PACKETS
 *
 * One port, one subport, PIPES pipes (a power of two); all packets are best effort, so a packet
 * passes port, subport, pipe, traffic class and queue. Queues hold 64. PACKETS are queued at first,
 * spread evenly, and stay as many: for one that a full queue refuses, another is put into a pipe
 * drawn at random. Then each line of input is a run:
 *
 *     refill COUNT     each packet that leaves is put back into the pipe that it came from
 *     random COUNT     each packet that leaves is put into a pipe drawn at random
 *
 * and is answered by "NANOSECONDS DROPPED EMPTY": nanoseconds a packet, of this thread's time on
 * the processor, packets refused by a full queue, and calls that brought no packet.
 *
 * Build: cc -O3 rte_sched.c -o rte_sched $(pkg-config --cflags --libs libdpdk)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>
#include <rte_sched.h>

enum { BATCH = 32, QUEUE = 64, PACKET_BYTES = 64, SPARE = 4096 };

struct bed {
	struct rte_sched_port *port;
	struct rte_mempool *pool;
	uint32_t pipes;
	uint64_t seed;
};

struct run {
	uint64_t sent;
	uint64_t dropped;
	uint64_t empty;
};

/* Bytes a second: so many that credits are never waited for. */
static const uint64_t PORT_RATE = 125000000000ull;
static const uint64_t PIPE_RATE = 12500000000ull;

static void fail(const char *what)
{
	fprintf(stderr, "rte_sched: %s: %s\n", what, rte_strerror(rte_errno));
	exit(2);
}

static void start_eal(const char *core, uint32_t pipes, uint32_t packets)
{
	/* A pipe has 16 queues, of which four have room here; an mbuf without data takes 256 bytes. */
	uint64_t bytes = (uint64_t)pipes * (4 * QUEUE * 8 + 2048) + (uint64_t)packets * 512;
	char megabytes[16], lcore[16];
	snprintf(megabytes, sizeof(megabytes), "%" PRIu64, bytes / 1000000 + 256);
	snprintf(lcore, sizeof(lcore), "%s", core);
	char *args[] = {
		"rte_sched", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
		"-m", megabytes, "-l", lcore, "--log-level", "4",
	};
	if (rte_eal_init(RTE_DIM(args), args) < 0)
		fail("the environment does not start");
}

static struct rte_sched_port *make_port(uint32_t pipes)
{
	struct rte_sched_pipe_params pipe = {
		.tb_rate = PIPE_RATE, .tb_size = 1000000, .tc_period = 10, .tc_ov_weight = 1,
	};
	struct rte_sched_subport_profile_params profile = {
		.tb_rate = PORT_RATE, .tb_size = 1000000, .tc_period = 10,
	};
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = pipes, .pipe_profiles = &pipe,
		.n_pipe_profiles = 1, .n_max_pipe_profiles = 1,
	};
	struct rte_sched_port_params params = {
		.name = "port", .rate = PORT_RATE, .mtu = 1522,
		.frame_overhead = RTE_SCHED_FRAME_OVERHEAD_DEFAULT, .n_subports_per_port = 1,
		.n_subport_profiles = 1, .subport_profiles = &profile,
		.n_max_subport_profiles = 1, .n_pipes_per_subport = pipes,
	};
	int i;
	/* Only best effort has queues: the others would take memory and no packet. */
	subport.qsize[RTE_SCHED_TRAFFIC_CLASS_BE] = QUEUE;
	for (i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++)
		profile.tc_rate[i] = PORT_RATE;
	pipe.tc_rate[RTE_SCHED_TRAFFIC_CLASS_BE] = PIPE_RATE;
	for (i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	struct rte_sched_port *port = rte_sched_port_config(&params);
	if (port == NULL)
		fail("no port");
	if (rte_sched_subport_config(port, 0, &subport, 0) != 0)
		fail("no subport");
	for (uint32_t n = 0; n < pipes; n++)
		if (rte_sched_pipe_config(port, 0, n, 0) != 0)
			fail("no pipe");
	return port;
}

static void classify(struct bed *bed, struct rte_mbuf *packet, uint32_t pipe)
{
	rte_sched_port_pkt_write(bed->port, packet, 0, pipe, RTE_SCHED_TRAFFIC_CLASS_BE, 0,
				 RTE_COLOR_GREEN);
}

static void fill(struct bed *bed, uint32_t packets)
{
	for (uint32_t n = 0; n < packets; n += BATCH) {
		struct rte_mbuf *batch[BATCH];
		uint32_t count = RTE_MIN(packets - n, (uint32_t)BATCH);
		if (rte_pktmbuf_alloc_bulk(bed->pool, batch, count) != 0)
			fail("no packets");
		for (uint32_t i = 0; i < count; i++) {
			batch[i]->pkt_len = batch[i]->data_len = PACKET_BYTES;
			classify(bed, batch[i], (n + i) % bed->pipes);
		}
		if (rte_sched_port_enqueue(bed->port, batch, count) != (int)count)
			fail("the queues do not take the packets to begin with");
	}
}

/* xorshift64, as on Weir's side. */
static uint32_t draw(struct bed *bed)
{
	bed->seed ^= bed->seed << 13;
	bed->seed ^= bed->seed >> 7;
	bed->seed ^= bed->seed << 17;
	return (uint32_t)(((unsigned __int128)bed->seed * bed->pipes) >> 64);
}

/* Refused packets are freed by the queue. */
static void replace(struct bed *bed, uint64_t missing)
{
	while (missing > 0) {
		struct rte_mbuf *packet = rte_pktmbuf_alloc(bed->pool);
		if (packet == NULL)
			fail("no packet in place of one refused");
		packet->pkt_len = packet->data_len = PACKET_BYTES;
		classify(bed, packet, draw(bed));
		missing -= rte_sched_port_enqueue(bed->port, &packet, 1);
	}
}

/* A packet that stays in its pipe still has the pipe's number in it. */
static inline void cycle(struct bed *bed, struct run *run, uint64_t count, int random)
{
	while (run->sent < count) {
		struct rte_mbuf *batch[BATCH];
		int got = rte_sched_port_dequeue(bed->port, batch, BATCH);
		if (got <= 0) {
			if (++run->empty > count)
				fail("no packet comes");
			continue;
		}
		if (random) {
			/* Asked for first, as Weir's side does with its table of frames. */
			for (int i = 0; i < got; i++)
				rte_prefetch0(batch[i]);
			for (int i = 0; i < got; i++)
				classify(bed, batch[i], draw(bed));
		}
		int taken = rte_sched_port_enqueue(bed->port, batch, got);
		run->dropped += got - taken;
		if (taken < got)
			replace(bed, got - taken);
		run->sent += got;
	}
}

static uint64_t processor_nanos(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int argc, char **argv)
{
	struct bed bed = { .seed = 1 };
	char load[16];
	uint64_t count;
	if (argc != 4) {
		fprintf(stderr, "usage: rte_sched CORE PIPES PACKETS\n");
		return 2;
	}
	bed.pipes = strtoul(argv[2], NULL, 10);
	uint32_t packets = strtoul(argv[3], NULL, 10);
	start_eal(argv[1], bed.pipes, packets);
	bed.pool = rte_pktmbuf_pool_create("packets", packets + SPARE, 0, 0, 128, 0);
	if (bed.pool == NULL)
		fail("no pool of packets");
	bed.port = make_port(bed.pipes);
	fill(&bed, packets);
	printf("ready\n");
	fflush(stdout);
	while (scanf("%15s %" SCNu64, load, &count) == 2 && count > 0) {
		struct run run = { 0 };
		int random = strcmp(load, "random") == 0;
		if (!random && strcmp(load, "refill") != 0)
			fail("loads are refill and random");
		uint64_t start = processor_nanos();
		cycle(&bed, &run, count, random);
		uint64_t spent = processor_nanos() - start;
		printf("%.3f %" PRIu64 " %" PRIu64 "\n", (double)spent / run.sent, run.dropped,
		       run.empty);
		fflush(stdout);
	}
	return 0;
}
