use std::sync::atomic::AtomicPtr;
use std::sync::Arc;
use std::time::Duration;

use commstream_sys as ffi;

use crate::handle::Handle;
use crate::inside;
use crate::{nanoseconds, Communicator, Error, Result};

/// A point in the work of a communicator that other communicators, and the host, can wait for.
///
/// Or one that the program sets: after [`Event::reset`], what waits for it goes on when [`Event::set`] is called.
pub struct Event {
    raw: *mut ffi::comm_event,
    _world: Arc<Handle>, // stays open as long
}

// SAFETY: any thread may call the functions of events.
unsafe impl Send for Event {}
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event for the world of `c`. It is reached until it is recorded or reset.
    pub fn new(c: &Communicator) -> Result<Event> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is open.
        c.handle.ask(|c| unsafe { ffi::comm_event_create(c, &mut raw) })?;
        Ok(Event { raw, _world: Arc::clone(&c.handle) })
    }

    pub(crate) fn raw(&self) -> *mut ffi::comm_event {
        self.raw
    }

    pub(crate) fn check(&self, result: ffi::comm_result) -> Result<()> {
        if result == ffi::COMM_OK {
            Ok(())
        } else {
            Err(Error::plain(result))
        }
    }

    /// Marks everything issued on `c` so far: the event is reached when that is complete.
    pub fn record(&self, c: &Communicator) -> Result<()> {
        // SAFETY: the event lives until it is dropped.
        c.handle.ask(|c| unsafe { ffi::comm_event_record(self.raw, c) })
    }

    /// From now on it is reached by [`Event::set`].
    pub fn reset(&self) -> Result<()> {
        inside::may_start()?;
        // SAFETY: as for record.
        self.check(unsafe { ffi::comm_event_reset(self.raw) })
    }

    /// Reaches an event that was reset.
    pub fn set(&self) -> Result<()> {
        inside::may_start()?;
        // SAFETY: as for record.
        self.check(unsafe { ffi::comm_event_set(self.raw) })
    }

    /// Whether it is reached. The error of what it waits for, if that failed.
    pub fn is_reached(&self) -> Result<bool> {
        inside::may_start()?;
        // SAFETY: as for record.
        match unsafe { ffi::comm_event_query(self.raw) } {
            ffi::COMM_PENDING => Ok(false),
            result => self.check(result).map(|()| true),
        }
    }

    /// Waits until it is reached. `false`: `timeout` passed first.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        inside::may_start()?;
        // SAFETY: as for record.
        match unsafe { ffi::comm_event_sync(self.raw, nanoseconds(timeout)) } {
            ffi::COMM_PENDING => Ok(false),
            result => self.check(result).map(|()| true),
        }
    }

    /// Lets everything issued on `c` afterwards start only when the event is reached. Returns at once.
    pub fn before(&self, c: &Communicator) -> Result<()> {
        // SAFETY: as for record; the queue copies the point.
        c.handle.ask(|c| unsafe { ffi::comm_queue_wait_event(c, self.raw) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let raw = AtomicPtr::new(self.raw);
        // SAFETY: it is freed once, and its world is open or closed.
        inside::outside(move || unsafe { ffi::comm_event_free(raw.into_inner()) });
    }
}
