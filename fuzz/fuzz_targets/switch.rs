// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch under arbitrary frames, times and changes of policy. The input is a list of steps.
//! Always: no panic, no chunk lost or freed twice, the identities of all counters, no wait that
//! ends at once, and no frame of one slice at a vif or under a tag of another.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_fuzz::{Input, Pool};
use weir_policy::{
    Codel, Direction, Kind, MacAddr, Policy, Port, PortId, Slice, SliceId, Vif, VifId,
};
use weir_switch::{Frame, FramePool, IfaceId, Switch, Tally, Transmit};
use weir_units::{BitRate, ByteCount, Instant, Nanos, PacketRate};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let policies = policies();
    let mut run = Run {
        switch: Switch::new(&policies[0], Instant::ZERO).expect("a sound policy"),
        pool: Pool::new(CHUNKS),
        now: Instant::ZERO,
    };
    let mut changes = 0;
    while !input.is_empty() {
        match input.byte() % 8 {
            0 => run.now += Nanos::new(u64::from(input.number()) << (input.byte() % 16)),
            1..=4 => run.receive(&mut input),
            5 => drop(run.transmit(u32::from(input.byte()))),
            6 => run.serve(),
            // A change costs as much as a hundred frames.
            _ if changes == CHANGES_MAX => {}
            _ => {
                changes += 1;
                let policy = &policies[usize::from(input.byte()) % policies.len()];
                run.switch.apply(run.now, policy, &mut run.pool).expect("a sound policy");
            }
        }
        assert_eq!(run.pool.taken(), run.switch.queued() as usize, "chunks");
    }
    run.drain();
});

struct Run {
    switch: Switch,
    pool: Pool,
    now: Instant,
}

impl Run {
    /// Ports and vifs; each has a number below, in the policy's order.
    fn interfaces(&self) -> u32 {
        let policy = self.switch.policy();
        u32::try_from(policy.ports.len() + policy.vifs.len()).expect("a few")
    }

    /// The port, which is 0, or a vif.
    fn iface(&self, number: u32) -> IfaceId {
        match number.checked_sub(1) {
            Some(vif) => self.switch.vif_iface(VifId(vif)),
            None => self.switch.port_iface(PortId(0)),
        }
    }

    /// Hands in a frame whose addresses are, by a byte of the input, made such that it gets far.
    fn receive(&mut self, input: &mut Input<'_>) {
        let Some(id) = self.pool.alloc() else { return };
        let from = u32::from(input.byte()) % self.interfaces();
        let shape = input.byte();
        let length = usize::from(input.number()) % 1600;
        let bytes = input.bytes(length).to_vec();
        let mut frame = Frame {
            id,
            offset: Pool::HEADROOM,
            len: u16::try_from(bytes.len()).expect("at most 1600"),
        };
        let target = u32::from(input.byte()) % (self.interfaces() + 1);
        let policy = self.switch.policy();
        let station = |iface: u32| match iface.checked_sub(1) {
            Some(vif) => policy.vifs.get(vif as usize).map_or([0xff; 6], |vif| vif.macs[0].0),
            None => OUTSIDE,
        };
        let data = self.pool.data(frame);
        data.copy_from_slice(&bytes);
        if data.len() >= 18 {
            if shape & 1 != 0 {
                data[..6].copy_from_slice(&station(target));
            }
            // The port's stations never bear a tenant's address, so that a source tells its slice.
            if shape & 2 != 0 || from == 0 {
                data[6..12].copy_from_slice(&station(from));
            }
            if shape & 4 != 0 && from == 0 {
                data[12..16].copy_from_slice(&[0x81, 0, 0, if shape & 8 == 0 { 100 } else { 200 }]);
            }
        } else if from == 0 {
            frame.len = 0;
        }
        let from = self.iface(from);
        self.switch.receive(self.now, from, frame, &mut self.pool);
    }

    /// Takes a frame for the device of an interface; whether there was one.
    fn transmit(&mut self, iface: u32) -> bool {
        let number = iface % self.interfaces();
        let iface = self.iface(number);
        match self.switch.transmit(self.now, iface, &mut self.pool) {
            Transmit::Frame(frame) => {
                let data = self.pool.data(frame).to_vec();
                assert_eq!(data.len(), usize::from(frame.len));
                self.check_isolation(number, &data);
                self.pool.free(frame.id);
                true
            }
            Transmit::Wait { until, .. } => {
                assert!(until > self.now, "a wait ends later than now");
                false
            }
            Transmit::Idle => false,
        }
    }

    /// Everything that may leave now, in turn.
    fn serve(&mut self) {
        self.switch.advance(self.now, &mut self.pool);
        for iface in 0..self.interfaces() {
            while self.transmit(iface) {}
        }
    }

    /// Waits for every event until nothing is queued; then nothing is held, and the counters agree.
    fn drain(&mut self) {
        for _ in 0..STEPS_MAX {
            self.serve();
            match self.switch.next_event() {
                Some(next) => self.now = self.now.max(next),
                None if self.switch.queued() == 0 => break,
                None => {}
            }
        }
        assert_eq!((self.pool.taken(), self.switch.queued()), (0, 0), "drained");
        for iface in (0..self.interfaces()).map(|number| self.iface(number)) {
            for direction in Direction::ALL {
                let counters = self.switch.counters(iface, direction).expect("it exists");
                assert!(
                    counters.balanced(Tally::default()),
                    "{iface:?} {direction:?} {counters:?}"
                );
            }
        }
    }

    /// A tenant's address in the source names the slice that sent the frame.
    fn check_isolation(&self, to: u32, data: &[u8]) {
        let policy = self.switch.policy();
        let Some(source) = data.get(6..12) else { return };
        let Some(sender) = policy.vifs.iter().find(|vif| vif.macs[0].0 == source) else { return };
        match to.checked_sub(1) {
            Some(vif) => assert_eq!(policy.vifs[vif as usize].slice, sender.slice),
            None => {
                let tag = policy[sender.slice].vlan.map(u16::to_be_bytes);
                let [high, low] = tag.expect("every slice has a VLAN");
                assert_eq!(data.get(12..16), Some(&[0x81, 0, high, low][..]));
            }
        }
    }
}

/// One port, two slices with two vifs each: guarantees, limits, policers, AQM, filters; then other
/// values, another scheduler, a vif less.
fn policies() -> Vec<Policy> {
    let mut first = Policy::new("fuzz");
    first.node.frames = CHUNKS;
    let mut port = Port::new("up", BitRate::from_mbps(10));
    port.kind = Kind::Memory;
    first.add_port(port);
    for (name, vlan) in [("gold", 100), ("silver", 200)] {
        let mut slice = Slice::new(name);
        slice.vlan = Some(vlan);
        slice.receive.max_pps = Some(PacketRate::from_pps(5_000));
        first.add_slice(slice);
    }
    for n in 0..4u8 {
        let mut vif = Vif::new(&format!("v{n}"), SliceId(u32::from(n / 2)), PortId(0));
        vif.kind = Kind::Packet;
        vif.macs = vec![MacAddr([2, 0, 0, 0, 0, n + 1])];
        vif.send.min_rate = BitRate::from_mbps(u64::from(n));
        vif.send.rate = (n == 1).then_some(BitRate::from_mbps(2));
        vif.receive.rate = (n == 2).then_some(BitRate::from_mbps(3));
        vif.send.max_pps = (n == 3).then_some(PacketRate::from_pps(1_000));
        vif.storm = (n == 0).then_some(PacketRate::from_pps(100));
        vif.send_queue.packets = 8;
        vif.receive_queue.packets = 8;
        vif.send_queue.codel = (n == 2).then(Codel::default);
        vif.receive_queue.bytes = ByteCount::new(4_000);
        first.add_vif(vif);
    }
    first.vifs[0].addresses = vec!["10.0.0.1".parse().expect("an address")];
    let rule = weir_policy::Filter {
        protocol: Some(17),
        port: Some(53),
        ..weir_policy::Filter::new(weir_policy::FilterAction::Drop)
    };
    first.vifs[1].filter = vec![rule];
    let mut second = first.clone();
    second.ports[0].rate = BitRate::from_mbps(100);
    second.vifs.pop();
    second.vifs[0].send.rate = Some(BitRate::from_mbps(1));
    second.vifs[2].send_queue.packets = 2;
    let mut third = first.clone();
    third.ports[0].scheduler = weir_policy::SchedulerKind::Drr;
    third.vifs.swap(0, 3);
    vec![first, second, third]
}

/// Fewer than the queues could hold, so that the pool runs dry too.
const CHUNKS: u32 = 64;
/// Changes of policy in one input.
const CHANGES_MAX: u32 = 8;
/// More than there can be events for so few frames.
const STEPS_MAX: u32 = 10_000;
/// A station on the wire.
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 9, 9];
