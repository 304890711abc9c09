use std::sync::{Mutex, PoisonError};

use commstream_sys as ffi;

use crate::inside::{self, elsewhere};
use crate::{Error, Result};

/// A communicator of the C library. It is closed when the last [`Communicator`](crate::Communicator), scope, plan or window that uses it
/// lets go of it, so no request outlives it.
pub struct Handle {
    raw: *mut ffi::comm_communicator,
    closed: Mutex<bool>, // locked while it is being closed
}

// SAFETY: "Any thread may call" holds for all functions of the C library that get this pointer.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

/// Of a request: nothing to wait for.
pub(crate) const NONE: ffi::comm_request = ffi::comm_request { comm: std::ptr::null_mut(), ticket: 0 };

impl Handle {
    /// Takes over an open communicator.
    pub(crate) fn new(raw: *mut ffi::comm_communicator) -> Handle {
        Handle { raw, closed: Mutex::new(false) }
    }

    pub(crate) fn raw(&self) -> *mut ffi::comm_communicator {
        self.raw
    }

    pub(crate) fn check(&self, result: ffi::comm_result) -> Result<()> {
        if result == ffi::COMM_OK {
            Ok(())
        } else {
            Err(Error::of(self.raw, result))
        }
    }

    /// Makes a call that gives a request. The caller waits for the request before it gives up the buffers of the call.
    pub(crate) fn start(&self, call: impl Call) -> Result<ffi::comm_request> {
        inside::may_start()?;
        let mut request = NONE;
        // SAFETY: a `Call` passes buffers that are valid until the request ends, and the handle is open.
        self.check(unsafe { call.make(self.raw, &mut request) })?;
        Ok(request)
    }

    /// Waits until the request ends, whatever the result, so that nobody touches its buffers any more. [`inside::may_finish`] is true.
    pub(crate) fn finish(&self, request: ffi::comm_request) -> Result<()> {
        if inside::may_wait().is_err() {
            return Ok(()); // it has succeeded
        }
        // SAFETY: a request may be waited for at any time, also if its communicator was closed.
        let result = unsafe { ffi::comm_wait(request, ffi::COMM_FOREVER) };
        if result == ffi::COMM_OK {
            return Ok(());
        }
        let error = Error::of(self.raw, result);
        self.take_back(request);
        Err(error)
    }

    /// MPI and NCCL cannot cancel. What they hold of a failed operation is free when the communicator is closed, not before.
    fn take_back(&self, request: ffi::comm_request) {
        let mut info = ffi::comm_request_info { size: std::mem::size_of::<ffi::comm_request_info>(), ..Default::default() };
        // SAFETY: the structure has its size.
        let known = unsafe { ffi::comm_describe_request(request, &mut info) } == ffi::COMM_OK;
        if known && info.flags & ffi::COMM_INFO_BUFFERS_HELD != 0 {
            let _ = self.close(ffi::COMM_FOREVER); // it has failed: other calls on it return errors only
        }
    }

    /// Makes a call and waits for it.
    pub(crate) fn run(&self, call: impl Call) -> Result<()> {
        inside::may_wait()?; // before it has the buffers
        let request = self.start(call)?;
        self.finish(request)
    }

    pub(crate) fn close(&self, timeout_ns: i64) -> Result<()> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Ok(());
        }
        // SAFETY: it is open, and closed only here, once.
        let result = unsafe { ffi::comm_close(self.raw, timeout_ns) };
        *closed = result != ffi::COMM_ERR_STATE;
        if result == ffi::COMM_OK {
            Ok(())
        } else {
            Err(Error::plain(result))
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if inside::may_wait().is_ok() {
            let _ = self.close(ffi::COMM_DEFAULT_TIMEOUT);
        } else {
            // A callback had the last clone. Whoever closes waits for callbacks.
            let rest = Handle { raw: self.raw, closed: Mutex::new(*self.closed.lock().unwrap_or_else(PoisonError::into_inner)) };
            elsewhere(move || drop(rest));
        }
    }
}

/// A call of the C library with all its arguments but the communicator and the request.
pub trait Call {
    /// # Safety
    /// The buffers stay valid, and nobody else uses them, until the request ends.
    unsafe fn make(self, c: *mut ffi::comm_communicator, request: *mut ffi::comm_request) -> ffi::comm_result;
}

impl<F: FnOnce(*mut ffi::comm_communicator, *mut ffi::comm_request) -> ffi::comm_result> Call for F {
    unsafe fn make(self, c: *mut ffi::comm_communicator, request: *mut ffi::comm_request) -> ffi::comm_result {
        self(c, request)
    }
}

/// Gives a closure the types of a call's arguments.
pub(crate) fn as_call<F: FnOnce(*mut ffi::comm_communicator, *mut ffi::comm_request) -> ffi::comm_result>(make: F) -> F {
    make
}
