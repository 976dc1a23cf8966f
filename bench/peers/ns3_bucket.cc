// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Senders behind a token bucket in ns-3, as row 9 of `weir-lab verify sim` has them in Weir.
 *
 *     ns3_bucket SENDERS BYTES GAP RATE BURST QUEUE LINK TIME
 *
 * SENDERS nodes, each with a link of LINK bits a second to a router, send UDP in IP packets of
 * BYTES bytes, one each GAP nanoseconds, to a sink behind the router, for TIME nanoseconds. There
 * a token bucket (TBF) of RATE bits a second and BURST bytes, with a queue of QUEUE packets, is in
 * front of a link of LINK. The senders begin one after the other within the first gap.
 *
 * Prints "NANOSECONDS ARRIVED": processor time of the simulation without its setup, and packets
 * that came to the sink.
 *
 * Build: c++ -O2 ns3_bucket.cc -o ns3_bucket -lns3-applications -lns3-internet \
 *            -lns3-point-to-point -lns3-traffic-control -lns3-network -lns3-core
 */
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <ns3/core-module.h>
#include <ns3/data-rate.h>
#include <ns3/internet-stack-helper.h>
#include <ns3/ipv4-address-helper.h>
#include <ns3/ipv4-global-routing-helper.h>
#include <ns3/packet-sink-helper.h>
#include <ns3/packet-sink.h>
#include <ns3/point-to-point-helper.h>
#include <ns3/traffic-control-helper.h>
#include <ns3/udp-client-server-helper.h>

using namespace ns3;

/* Bytes of IP and UDP in front of data. */
static const uint64_t HEADERS = 28;
static const uint16_t PORT = 9;

static uint64_t processor_ns()
{
	timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 9) {
		fputs("usage: ns3_bucket SENDERS BYTES GAP RATE BURST QUEUE LINK TIME\n", stderr);
		return 2;
	}
	const auto word = [argv](int at) { return (uint64_t)strtoull(argv[at], nullptr, 10); };
	const uint64_t senders = word(1), bytes = word(2), gap = word(3);

	/* The last one is the sink. */
	NodeContainer ends(senders + 1), router(1);
	InternetStackHelper stack;
	stack.Install(ends);
	stack.Install(router);
	PointToPointHelper link;
	link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(word(7))));
	TrafficControlHelper bucket;
	bucket.SetRootQueueDisc("ns3::TbfQueueDisc", "Rate", DataRateValue(DataRate(word(4))),
		"Burst", UintegerValue(word(5)), "MaxSize",
		QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, word(6))));
	Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
	Ipv4Address sink;
	for (uint64_t at = 0; at <= senders; at++) {
		const NetDeviceContainer devices = link.Install(router.Get(0), ends.Get(at));
		if (at == senders)
			bucket.Install(devices.Get(0));
		sink = addresses.Assign(devices).GetAddress(1);
		addresses.NewNetwork();
	}
	Ipv4GlobalRoutingHelper::PopulateRoutingTables();

	for (uint64_t at = 0; at < senders; at++) {
		UdpClientHelper client(sink, PORT);
		client.SetAttribute("Interval", TimeValue(NanoSeconds(gap)));
		client.SetAttribute("MaxPackets", UintegerValue(UINT32_MAX));
		client.SetAttribute("PacketSize", UintegerValue(bytes - HEADERS));
		client.Install(ends.Get(at)).Start(NanoSeconds(at * gap / senders));
	}
	PacketSinkHelper listener("ns3::UdpSocketFactory", InetSocketAddress(sink, PORT));
	const auto heard = DynamicCast<PacketSink>(listener.Install(ends.Get(senders)).Get(0));

	Simulator::Stop(NanoSeconds(word(8)));
	const uint64_t begun = processor_ns();
	Simulator::Run();
	const uint64_t took = processor_ns() - begun;
	printf("%llu %llu\n", (unsigned long long)took,
		(unsigned long long)(heard->GetTotalRx() / (bytes - HEADERS)));
	Simulator::Destroy();
	return 0;
}
