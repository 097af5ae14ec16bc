//! A front end's connection: its negotiation and its orders to the reactor.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use super::abi::Disk;
use super::inflight::{self, InflightQueue, InflightRegion};
use super::memory::{GuestMemory, RegionAt, Segment};
use super::queue::{QueueAddresses, QueuePlaces, SplitQueue};
use super::{CHAIN_MAX, QUEUE_SIZE_MAX, QUEUES_MAX, eventfd};
use crate::messages::{ReactorError, ReactorHandle, ReactorMessage, ReplyTo};

/// A message of a front end's connection to the reactor.
pub struct GuestMessage {
    /// The number of the disk.
    pub(crate) export: u16,
    pub(crate) order: GuestOrder,
    /// Receives the reply, which is sent at once. The reply to the stop of a queue is the next
    /// entry, sent when all its requests have been given back.
    pub(crate) reply: ReplyTo<std::result::Result<u16, ReactorError>>,
}

impl std::fmt::Debug for GuestMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Guest({}, {:?})", self.export, self.order)
    }
}

/// An order of a front end's connection to the reactor.
pub(crate) enum GuestOrder {
    /// A front end has connected. The reactor uses this stream to hang up.
    Connect { stream: UnixStream, disk: Disk },
    /// The guest has this memory from now on. `places` are the places of its running queues.
    Memory { memory: Arc<GuestMemory>, places: Vec<(u16, QueuePlaces)> },
    /// A queue runs from now on.
    Start { queue: u16, opened: Box<OpenQueue> },
    /// A queue's calls go to this counter or nowhere.
    Call { queue: u16, call: Option<OwnedFd> },
    /// A queue is to be served or ignored.
    Enable { queue: u16, enabled: bool },
    /// A queue stops. The reply is the next entry, sent when all its requests have been given
    /// back.
    Stop { queue: u16 },
    /// The front end has gone.
    Disconnect,
}

impl std::fmt::Debug for GuestOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GuestOrder::Connect { disk, .. } => write!(f, "Connect({})", disk.name),
            GuestOrder::Memory { memory, .. } => write!(f, "Memory({} bytes)", memory.bytes()),
            GuestOrder::Start { queue, .. } => write!(f, "Start({queue})"),
            GuestOrder::Call { queue, .. } => write!(f, "Call({queue})"),
            GuestOrder::Enable { queue, enabled } => write!(f, "Enable({queue}, {enabled})"),
            GuestOrder::Stop { queue } => write!(f, "Stop({queue})"),
            GuestOrder::Disconnect => write!(f, "Disconnect"),
        }
    }
}

/// A queue that is ready to run.
#[derive(Debug)]
pub(crate) struct OpenQueue {
    pub(crate) queue: SplitQueue,
    pub(crate) inflight: Option<InflightQueue>,
    /// The requests that a previous server took and did not give back, in order.
    pub(crate) again: Vec<u16>,
    /// Space for the chains of its requests, one for each descriptor.
    pub(crate) slots: Vec<Vec<Segment>>,
    pub(crate) kick: OwnedFd,
    pub(crate) call: Option<OwnedFd>,
    pub(crate) enabled: bool,
}

/// The state of a queue.
#[derive(Debug)]
struct QueueState {
    size: u16,
    base: u16,
    addresses: Option<QueueAddresses>,
    call: Option<OwnedFd>,
    /// True unless the front end has disabled it: qemu before 7.2 never enables the queues of a disk.
    enabled: bool,
    runs: bool,
}

impl Default for QueueState {
    fn default() -> QueueState {
        QueueState {
            size: QUEUE_SIZE_MAX,
            base: 0,
            addresses: None,
            call: None,
            enabled: true,
            runs: false,
        }
    }
}

/// The state of a connection.
pub(super) struct Session {
    export: u16,
    disk: Disk,
    reactor: ReactorHandle,
    features: u64,
    memory: Arc<GuestMemory>,
    inflight: Option<InflightRegion>,
    queues: Vec<QueueState>,
    /// The reason to end the connection.
    refusal: Option<String>,
}

impl Session {
    /// Begins a session of the export with this number. The reactor uses `stream` to hang up.
    ///
    /// # Errors
    /// Returns the reactor's error if the volume is closing.
    pub(super) fn begin(
        export: u16,
        disk: Disk,
        reactor: ReactorHandle,
        stream: UnixStream,
    ) -> std::result::Result<Session, ReactorError> {
        let session = Session {
            export,
            disk,
            reactor,
            features: 0,
            memory: Arc::default(),
            inflight: None,
            queues: (0..QUEUES_MAX).map(|_| QueueState::default()).collect(),
            refusal: None,
        };
        session.order(GuestOrder::Connect { stream, disk: session.disk.clone() })?;
        Ok(session)
    }

    /// Returns the reason why the connection has to end, if it has to.
    pub(super) fn take_refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    /// Ends the session. Nothing of it is left in the reactor.
    pub(super) fn end(&self) {
        // Nothing of it is left in a reactor that has ended, either.
        let _ = self.order(GuestOrder::Disconnect);
    }

    fn order(&self, order: GuestOrder) -> std::result::Result<u16, ReactorError> {
        let export = self.export;
        let message = |reply| ReactorMessage::Guest(GuestMessage { export, order, reply });
        self.reactor.wait_in_line(message)
    }

    /// Sends the reactor an order. If it fails, ends the connection.
    fn tell(&mut self, order: GuestOrder) -> Result<u16> {
        match self.order(order) {
            Ok(answer) => Ok(answer),
            Err(error) => self.refuse(error.to_string()),
        }
    }

    /// Refuses a message, and with it the connection.
    fn refuse<T>(&mut self, reason: String) -> Result<T> {
        self.refusal.get_or_insert(reason);
        Err(Error::InvalidParam)
    }

    /// Returns the value of a result. If it is an error, refuses the message.
    fn good<T>(&mut self, result: std::result::Result<T, String>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(reason) => self.refuse(reason),
        }
    }

    /// Returns a queue's index. With `idle` the queue must not be running.
    fn queue(&mut self, index: u32, idle: bool) -> Result<usize> {
        match self.queues.get(index as usize) {
            None => self.refuse(format!("queue {index} of {QUEUES_MAX}")),
            Some(queue) if idle && queue.runs => {
                self.refuse(format!("queue {index} is changed while it runs"))
            }
            Some(_) => Ok(index as usize),
        }
    }

    /// Prepares a queue to run.
    fn open(&mut self, index: usize, kick: File) -> std::result::Result<OpenQueue, String> {
        let kick = eventfd::check(kick)?;
        let state = &mut self.queues[index];
        let addresses = state.addresses.ok_or("a queue begins before its addresses are known")?;
        let places = QueuePlaces::find(&self.memory, &addresses, state.size)?;
        let inflight = match &self.inflight {
            Some(region) => region.queue(index as u16, state.size)?,
            None => None,
        };
        let (used, again, inflight) = match inflight {
            Some(mut inflight) => {
                // Requests not marked as in flight have been given back, whatever the front end
                // counted.
                let used = places.used_index();
                let again = inflight.recover(used).map_err(|broken| broken.to_string())?;
                (used, again, Some(inflight))
            }
            None => (state.base, Vec::new(), None),
        };
        let taken = again.len() as u16;
        Ok(OpenQueue {
            queue: SplitQueue::new(places, state.size, self.features, used, taken),
            inflight,
            again,
            slots: (0..state.size).map(|_| Vec::with_capacity(CHAIN_MAX + 1)).collect(),
            kick,
            call: state.call.take(),
            enabled: state.enabled,
        })
    }

    /// Stops a queue. Waits until all its requests have been given back.
    fn stop(&mut self, index: usize) -> Result<()> {
        if self.queues[index].runs {
            let base = self.tell(GuestOrder::Stop { queue: index as u16 })?;
            self.queues[index] = QueueState { base, ..QueueState::default() };
        }
        Ok(())
    }

    fn stop_all(&mut self) -> Result<()> {
        (0..self.queues.len()).try_for_each(|index| self.stop(index))
    }

    /// Takes over a new table of memory.
    fn set_memory(
        &mut self,
        table: &[(RegionAt, File)],
    ) -> std::result::Result<GuestOrder, String> {
        let memory = Arc::new(GuestMemory::map(table)?);
        let mut places = Vec::new();
        for (index, queue) in self.queues.iter().enumerate() {
            if let (true, Some(addresses)) = (queue.runs, &queue.addresses) {
                let found = QueuePlaces::find(&memory, addresses, queue.size)?;
                places.push((index as u16, found));
            }
        }
        Ok(GuestOrder::Memory { memory, places })
    }
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all()
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.disk.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.disk.features();
        if unknown != 0 {
            return self.refuse(format!("features {unknown:#x}, which were not offered"));
        }
        if features != self.features && self.queues.iter().any(|queue| queue.runs) {
            return self.refuse("features change while a queue runs".into());
        }
        self.features = features;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<vhost::VhostUserMemoryRegionBase>>> {
        let table: Vec<(RegionAt, File)> = regions.iter().map(region).zip(files).collect();
        let order = self.set_memory(&table);
        let order = self.good(order)?;
        let memory = match &order {
            GuestOrder::Memory { memory, .. } => Arc::clone(memory),
            _ => Arc::default(),
        };
        self.tell(order)?;
        // The old memory is unmapped here, on a thread that may wait.
        self.memory = memory;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, entries: u32) -> Result<()> {
        let queue = self.queue(index, true)?;
        match u16::try_from(entries) {
            Ok(size) if size.is_power_of_two() && size <= QUEUE_SIZE_MAX => {
                self.queues[queue].size = size;
                Ok(())
            }
            _ => self.refuse(format!(
                "a queue of {entries} entries; it has a power of two, at most {QUEUE_SIZE_MAX}"
            )),
        }
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let queue = self.queue(index, true)?;
        self.queues[queue].addresses = Some(QueueAddresses { descriptors, available, used });
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let queue = self.queue(index, true)?;
        // The index of a split queue has two bytes.
        self.queues[queue].base = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let queue = self.queue(index, false)?;
        self.stop(queue)?;
        Ok(VhostUserVringState::new(index, self.queues[queue].base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let queue = self.queue(index.into(), true)?;
        let Some(file) = file else {
            return self.refuse("a queue without a kick: hemi does not poll queues".into());
        };
        let opened = self.open(queue, file);
        let opened = Box::new(self.good(opened)?);
        self.tell(GuestOrder::Start { queue: queue as u16, opened })?;
        self.queues[queue].runs = true;
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let queue = self.queue(index.into(), false)?;
        let call = self.good(file.map(eventfd::check).transpose())?;
        if self.queues[queue].runs {
            self.tell(GuestOrder::Call { queue: queue as u16, call })?;
        } else {
            self.queues[queue].call = call;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.queue(index.into(), false).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enabled: bool) -> Result<()> {
        let queue = self.queue(index, false)?;
        self.queues[queue].enabled = enabled;
        if self.queues[queue].runs {
            self.tell(GuestOrder::Enable { queue: queue as u16, enabled })?;
        }
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        Ok(self.disk.configuration(offset as usize, size as usize))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("nothing of the configuration can be written"))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("it is a disk"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("it is a disk"))
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (wanted.num_queues, wanted.queue_size);
        let made = inflight::create(queues, size);
        let (file, bytes) = self.good(made)?;
        Ok((VhostUserInflight::new(bytes, 0, queues, size), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        if self.queues.iter().any(|queue| queue.runs) {
            return self.refuse("an inflight region comes while a queue runs".into());
        }
        let &VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = given;
        let opened = InflightRegion::open(&file, mmap_offset, mmap_size, num_queues, queue_size);
        self.inflight = Some(self.good(opened)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(Error::InvalidOperation("slots of memory were not offered"))
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<vhost::VhostUserMemoryRegionBase>> {
        Err(Error::InvalidOperation("slots of memory were not offered"))
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(Error::InvalidOperation("slots of memory were not offered"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("the device's state cannot be moved"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("the device's state cannot be moved"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("it has no shared memory of its own"))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("a log of changed memory was not offered"))
    }
}

fn region(region: &VhostUserMemoryRegion) -> RegionAt {
    RegionAt {
        guest: region.guest_phys_addr,
        front_end: region.user_addr,
        length: region.memory_size,
        offset: region.mmap_offset,
    }
}
