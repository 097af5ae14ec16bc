//! Simulated clients: connections that send their planned requests, with a bounded number in flight
//! and pauses in between.

use hemi_units::{Extent, Instant};

use crate::events::Event;
use crate::plan::{Plan, PlannedRequest};
use crate::world::{VERIFIER, World};

#[derive(Default)]
struct Client {
    /// The requests still to be sent, the next one last.
    queue: Vec<PlannedRequest>,
    under_way: u32,
    depth: u32,
    /// The time at which it sent its last request.
    sent: Instant,
    /// An event will wake it.
    asleep: bool,
    /// It waits for room in the engine.
    starved: bool,
}

/// All clients of a run.
#[derive(Default)]
pub struct Clients {
    all: Vec<Client>,
    /// Nobody sends, because hemi is down or the simulator verifies.
    pub(crate) paused: bool,
    /// One more than the highest number of a request sent, by which faults are timed.
    pub(crate) progress: u32,
    /// The number of requests not sent yet.
    pub(crate) left: usize,
}

impl Clients {
    /// Resets to the clients of a plan.
    pub(crate) fn reset(&mut self, plan: &Plan) {
        self.all.resize_with(plan.shape.clients, Client::default);
        for (client, &depth) in self.all.iter_mut().zip(&plan.shape.depths) {
            client.queue.clear();
            (client.under_way, client.depth, client.sent) = (0, depth, Instant(0));
            (client.asleep, client.starved) = (false, false);
        }
        for request in plan.requests.iter().rev() {
            self.all[usize::from(request.client)].queue.push(*request);
        }
        (self.paused, self.progress, self.left) = (false, 0, plan.requests.len());
    }

    pub(crate) fn wakes(&mut self, client: u8) {
        if let Some(client) = self.all.get_mut(usize::from(client)) {
            client.asleep = false;
        }
    }

    /// Drops the requests in flight, which will not be answered any more.
    pub(crate) fn disconnect(&mut self) {
        for client in &mut self.all {
            client.under_way = 0;
            (client.starved, client.asleep) = (false, false);
        }
    }
}

impl World {
    /// Lets every client send the requests it may send now.
    pub(crate) fn let_clients_go_on(&mut self) {
        for client in 0..self.clients.all.len() {
            self.let_client_go_on(client as u8);
        }
    }

    /// Lets a client send the requests it may send now.
    pub(crate) fn let_client_go_on(&mut self, number: u8) {
        while !self.clients.paused && self.engine.is_some() && self.violation.is_none() {
            let client = &mut self.clients.all[usize::from(number)];
            let Some(next) = client.queue.last().copied() else { return };
            if client.under_way >= client.depth || client.asleep {
                return;
            }
            let due = client.sent + next.gap;
            if due > self.now {
                client.asleep = true;
                self.events.at(due, Event::Client(number));
                return;
            }
            if !self.has_room(next.sectors) {
                self.clients.all[usize::from(number)].starved = true;
                return;
            }
            let client = &mut self.clients.all[usize::from(number)];
            client.queue.pop();
            client.under_way += 1;
            client.sent = self.now;
            self.clients.left -= 1;
            self.clients.progress = self.clients.progress.max(next.number + 1);
            let extent = Extent::new(next.start, next.sectors);
            self.submit(number, next.operation, extent, next.fua);
        }
    }

    /// Lets a client that has an answer go on, and those that wait for room. This happens in an
    /// event of its own, because the engine is still handing out its actions.
    pub(crate) fn client_answered(&mut self, number: u8) {
        if number != VERIFIER {
            let client = &mut self.clients.all[usize::from(number)];
            client.under_way -= 1;
            if !client.asleep && !client.queue.is_empty() {
                client.asleep = true;
                self.events.at(self.now, Event::Client(number));
            }
        }
        for other in 0..self.clients.all.len() {
            let client = &mut self.clients.all[other];
            if std::mem::take(&mut client.starved) && !client.asleep {
                client.asleep = true;
                self.events.at(self.now, Event::Client(other as u8));
            }
        }
    }
}
