# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A controller that sets up each flow by OpenFlow 1.3, as an application of os-ken.

It runs under osken-manager. WEIR_SWITCHES names the switches by datapath id, such as {"1": "b1"},
WEIR_HOSTS the end nodes by address; a port's name is the name of the node that it leads to.
WEIR_SOCKET is the Unix socket on which it is asked over HTTP:

    GET    /switches                                                  those that are known
    POST   /flows        {"source", "destination", "port", "avoid"}   sets up a flow of UDP
    PUT    /flows/PORT   {"avoid": ["b2"], "ordered": true}           moves it to another path
    DELETE /flows/PORT                                                removes it

An answer comes once each switch of the path has confirmed by a barrier. With "meter", a rate in
kbit/s, the flow is policed where it enters. A packet of UDP that no flow matches sets one up too,
as a controller does that nobody has asked.
"""

import collections
import json
import os
import socket

import eventlet
from eventlet import wsgi
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.lib.packet import ipv6, packet, udp
from os_ken.ofproto import ofproto_v1_3

UDP = 17
IPV6 = 0x86DD
BARRIER_WITHIN_S = 5
# Packets under way on the old path still find their flow there.
DRAIN_S = 0.05
TABLE_MISS, FLOW = 0, 100


class PerFlow(app_manager.OSKenApp):
    """Flows by addresses and UDP port, each on the shortest path."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        names = json.loads(os.environ["WEIR_SWITCHES"])
        self.names = {int(number): name for number, name in names.items()}
        self.hosts = json.loads(os.environ["WEIR_HOSTS"])
        self.datapaths = {}  # by name of the switch
        self.ports = {}  # by name of the switch, then of the neighbour
        self.flows = {}  # by UDP port
        self.barriers = {}  # events by datapath id and transaction
        listener = eventlet.listen(os.environ["WEIR_SOCKET"], family=socket.AF_UNIX)
        hub.spawn(wsgi.server, listener, self.serve, log_output=False)

    # Messages of switches.

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        datapath = event.msg.datapath
        datapath.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.datapaths[self.names[datapath.id]] = datapath
        datapath.send_msg(datapath.ofproto_parser.OFPPortDescStatsRequest(datapath, 0))

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def described(self, event):
        datapath = event.msg.datapath
        named = {port.name.decode(): port.port_no for port in event.msg.body}
        name = self.names[datapath.id]
        self.ports[name] = named
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        # A packet of UDP that nothing else matches is shown to the controller, whole.
        match = parser.OFPMatch(eth_type=IPV6, ip_proto=UDP)
        output = parser.OFPActionOutput(ofproto.OFPP_CONTROLLER, ofproto.OFPCML_NO_BUFFER)
        self.send_flow(name, TABLE_MISS, match, [output], None)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def confirmed(self, event):
        waiting = self.barriers.pop((event.msg.datapath.id, event.msg.xid), None)
        if waiting is not None:
            waiting.set()

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def unmatched(self, event):
        # A barrier is waited for: not here, where replies are read.
        hub.spawn(self.set_up_by_packet, event.msg)

    def set_up_by_packet(self, message):
        seen = packet.Packet(message.data)
        addresses, ports = seen.get_protocol(ipv6.ipv6), seen.get_protocol(udp.udp)
        known = addresses and ports and addresses.src in self.hosts and addresses.dst in self.hosts
        if not known or ports.dst_port in self.flows:
            return
        flow = {
            "source": addresses.src,
            "destination": addresses.dst,
            "port": ports.dst_port,
        }
        self.set_up(flow)
        datapath = message.datapath
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        actions = [parser.OFPActionOutput(ofproto.OFPP_TABLE)]
        datapath.send_msg(
            parser.OFPPacketOut(
                datapath=datapath,
                buffer_id=ofproto.OFP_NO_BUFFER,
                in_port=message.match["in_port"],
                actions=actions,
                data=message.data,
            )
        )

    # Flows.

    def path(self, flow, avoid):
        """Returns the nodes of the shortest path, ends included."""
        source, destination = self.hosts[flow["source"]], self.hosts[flow["destination"]]
        before, waiting = {source: None}, collections.deque([source])
        while waiting:
            node = waiting.popleft()
            if node == destination:
                found = []
                while node is not None:
                    found.append(node)
                    node = before[node]
                return found[::-1]
            for other in sorted(self.neighbours(node)):
                passable = other == destination or other in self.ports
                if passable and other not in before and other not in avoid:
                    before[other] = node
                    waiting.append(other)
        return None

    def neighbours(self, node):
        if node in self.ports:
            return list(self.ports[node])
        return [name for name, ports in self.ports.items() if node in ports]

    def set_up(self, flow):
        path = self.path(flow, flow.get("avoid", []))
        if path is None:
            return None
        flow["path"] = path
        self.flows[flow["port"]] = flow
        # The entry comes last: no packet leaves it before the others know it.
        self.configure(flow, path, True)
        return path

    def configure(self, flow, path, ordered):
        hops = list(zip(path[1:-1], path[2:]))
        if ordered:
            self.write(flow, hops[:0:-1])
            self.write(flow, hops[:1])
        else:
            self.write(flow, hops)

    def write(self, flow, hops):
        for switch, following in hops:
            datapath = self.datapaths[switch]
            parser = datapath.ofproto_parser
            actions = [parser.OFPActionOutput(self.ports[switch][following])]
            meter = flow.get("meter") if switch == flow["path"][1] else None
            if meter:
                self.send_meter(switch, flow["port"], meter)
            match = self.match(datapath, flow)
            self.send_flow(switch, FLOW, match, actions, meter and flow["port"])
        self.confirm([switch for switch, _ in hops])

    @staticmethod
    def match(datapath, flow):
        return datapath.ofproto_parser.OFPMatch(
            eth_type=IPV6,
            ip_proto=UDP,
            ipv6_src=flow["source"],
            ipv6_dst=flow["destination"],
            udp_dst=flow["port"],
        )

    def send_flow(self, switch, priority, match, actions, meter):
        datapath = self.datapaths[switch]
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        steps = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)]
        if meter:
            steps.insert(0, parser.OFPInstructionMeter(meter))
        datapath.send_msg(
            parser.OFPFlowMod(datapath, priority=priority, match=match, instructions=steps)
        )

    def send_meter(self, switch, number, kbps):
        datapath = self.datapaths[switch]
        parser, ofproto = datapath.ofproto_parser, datapath.ofproto
        bands = [parser.OFPMeterBandDrop(rate=kbps, burst_size=kbps // 50)]
        datapath.send_msg(
            parser.OFPMeterMod(
                datapath, ofproto.OFPMC_ADD, ofproto.OFPMF_KBPS | ofproto.OFPMF_BURST, number, bands
            )
        )

    def confirm(self, switches):
        waiting = []
        for switch in switches:
            datapath = self.datapaths[switch]
            barrier = datapath.ofproto_parser.OFPBarrierRequest(datapath)
            datapath.set_xid(barrier)
            event = hub.Event()
            self.barriers[(datapath.id, barrier.xid)] = event
            datapath.send_msg(barrier)
            waiting.append(event)
        for event in waiting:
            if not event.wait(BARRIER_WITHIN_S):
                raise TimeoutError("no answer to a barrier")

    def remove(self, flow, switches):
        for switch in switches:
            datapath = self.datapaths[switch]
            parser, ofproto = datapath.ofproto_parser, datapath.ofproto
            datapath.send_msg(
                parser.OFPFlowMod(
                    datapath,
                    command=ofproto.OFPFC_DELETE_STRICT,
                    priority=FLOW,
                    out_port=ofproto.OFPP_ANY,
                    out_group=ofproto.OFPG_ANY,
                    match=self.match(datapath, flow),
                )
            )
            if flow.get("meter") and switch == flow["path"][1]:
                datapath.send_msg(
                    parser.OFPMeterMod(datapath, ofproto.OFPMC_DELETE, 0, flow["port"], [])
                )
        self.confirm(switches)

    # Requests.

    def serve(self, environment, start):
        try:
            length = int(environment.get("CONTENT_LENGTH") or 0)
            body = json.loads(environment["wsgi.input"].read(length) or "null")
            status, answer = self.answer(
                environment["REQUEST_METHOD"], environment["PATH_INFO"].strip("/").split("/"), body
            )
        except (KeyError, TypeError, ValueError, TimeoutError) as error:
            status, answer = "500 Internal Server Error", {"error": repr(error)}
        start(status, [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def answer(self, method, path, body):
        if method == "GET":
            return "200 OK", sorted(self.ports)
        if method == "POST":
            found = self.set_up(body)
            return ("201 Created", body) if found else ("409 Conflict", {"error": "no path"})
        flow = self.flows[int(path[1])]
        before = flow["path"][1:-1]
        if method == "DELETE":
            del self.flows[flow["port"]]
            self.remove(flow, before)
            return "200 OK", None
        found = self.path(flow, body["avoid"])
        if found is None:
            return "409 Conflict", {"error": "no path"}
        flow["path"] = found
        self.configure(flow, found, body["ordered"])
        if body["ordered"]:
            hub.sleep(DRAIN_S)
        self.remove(flow, [switch for switch in before if switch not in found])
        return "200 OK", flow
