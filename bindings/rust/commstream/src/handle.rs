use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use commstream_sys as ffi;

use crate::error::text_of;
use crate::inside::{self, elsewhere};
use crate::{Error, ErrorKind, Result};

/// A communicator of the C library. It is closed when the last [`Communicator`](crate::Communicator), scope, plan or window that uses it
/// lets go of it, so no request outlives it.
pub struct Handle {
    /// NULL once it is closed: the next communicator may have the same address. "Any thread may call" holds for all functions of the C
    /// library that get it.
    raw: AtomicPtr<ffi::comm_communicator>,
    closed: Mutex<Option<ffi::comm_result>>, // what the close returned; locked while it is being closed
}

/// Of a request: nothing to wait for.
pub(crate) const NONE: ffi::comm_request = ffi::comm_request { comm: std::ptr::null_mut(), ticket: 0 };

impl Handle {
    /// Takes over an open communicator.
    pub(crate) fn new(raw: *mut ffi::comm_communicator) -> Handle {
        Handle { raw: AtomicPtr::new(raw), closed: Mutex::new(None) }
    }

    pub(crate) fn raw(&self) -> *mut ffi::comm_communicator {
        self.raw.load(Ordering::Acquire)
    }

    /// To be called now, not inside an operator.
    fn open(&self) -> Result<*mut ffi::comm_communicator> {
        inside::may_start()?;
        let text = "this communicator was closed to have the buffers of an operation that failed back from MPI or NCCL";
        Some(self.raw()).filter(|raw| !raw.is_null()).ok_or_else(|| Error::new(ErrorKind::Closed, text))
    }

    /// Makes a call that has no request.
    pub(crate) fn ask(&self, call: impl FnOnce(*mut ffi::comm_communicator) -> ffi::comm_result) -> Result<()> {
        let raw = self.open()?;
        self.check(call(raw))
    }

    /// The same for a call that may say that something is pending: `false`.
    pub(crate) fn ask_pending(&self, call: impl FnOnce(*mut ffi::comm_communicator) -> ffi::comm_result) -> Result<bool> {
        match call(self.open()?) {
            ffi::COMM_PENDING => Ok(false),
            result => self.check(result).map(|()| true),
        }
    }

    pub(crate) fn check(&self, result: ffi::comm_result) -> Result<()> {
        if result == ffi::COMM_OK {
            Ok(())
        } else {
            Err(Error::of(self.raw(), result))
        }
    }

    /// Makes a call that gives a request. The caller waits for the request before it gives up the buffers of the call.
    pub(crate) fn start(&self, call: impl Call) -> Result<ffi::comm_request> {
        let (raw, mut request) = (self.open()?, NONE);
        // SAFETY: a `Call` passes buffers that are valid until the request ends, and the handle is open.
        unsafe { self.make(call, raw, &mut request) }.map(|()| request)
    }

    /// Makes a call on this communicator or a recorder of it, also if it is known to be wrong: then the library refuses it.
    ///
    /// # Safety
    /// That of [`Call::make`].
    pub(crate) unsafe fn make(&self, call: impl Call, raw: *mut ffi::comm_communicator, request: *mut ffi::comm_request) -> Result<()> {
        let wrong = call.wrong();
        // SAFETY: the caller promises it.
        let result = unsafe { call.make(raw, request) };
        wrong.map_or_else(|| self.check(result), Err)
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
        let error = Error::of(self.raw(), result);
        self.take_back(request);
        Err(error)
    }

    /// MPI and NCCL cannot cancel. What they hold of a failed operation is free when the communicator is closed, not before.
    fn take_back(&self, request: ffi::comm_request) {
        let mut info = ffi::comm_request_info { size: std::mem::size_of::<ffi::comm_request_info>(), ..Default::default() };
        // SAFETY: the structure has its size.
        let known = unsafe { ffi::comm_describe_request(request, &mut info) } == ffi::COMM_OK;
        let held = if known { info.flags & ffi::COMM_INFO_BUFFERS_HELD != 0 } else { self.may_hold() };
        if !held {
            return;
        }
        // It has failed: other calls on it return errors only.
        if let Err(error) = self.close(ffi::COMM_FOREVER) {
            // The program will use and free the buffers, which nobody can prevent.
            eprintln!("commstream: MPI or NCCL keeps buffers of an operation that failed, and they cannot be had back: {error}");
            std::process::abort();
        }
    }

    /// Whether MPI, NCCL or a device may have buffers of an operation that the library has forgotten, because there were many since.
    fn may_hold(&self) -> bool {
        let raw = self.raw();
        let mut info = ffi::comm_info { size: std::mem::size_of::<ffi::comm_info>(), ..Default::default() };
        // SAFETY: the handle is open, or NULL, which is refused; the structure has its size.
        let (last, known) = unsafe { (ffi::comm_last(raw), ffi::comm_describe(raw, &mut info) == ffi::COMM_OK) };
        let failed =
            last.comm.is_null() && ![ffi::COMM_OK, ffi::COMM_ERR_FULL, ffi::COMM_ERR_FORKED].contains(&(last.ticket as ffi::comm_result));
        failed && (!known || info.device_buffers != 0 || text_of(&info.backend).contains("mpi"))
    }

    /// Makes a call and waits for it.
    pub(crate) fn run(&self, call: impl Call) -> Result<()> {
        inside::may_wait()?; // before it has the buffers
        let request = self.start(call)?;
        self.finish(request)
    }

    pub(crate) fn close(&self, timeout_ns: i64) -> Result<()> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let result = closed.unwrap_or_else(|| {
            // SAFETY: it is open, and closed only here, once.
            let result = unsafe { ffi::comm_close(self.raw(), timeout_ns) };
            if result != ffi::COMM_ERR_STATE {
                *closed = Some(result);
                self.raw.store(std::ptr::null_mut(), Ordering::Release);
            }
            result
        });
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
            let closed = *self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = Handle { raw: AtomicPtr::new(self.raw()), closed: Mutex::new(closed) };
            elsewhere(move || drop(rest));
        }
    }
}

/// A call of the C library with all its arguments but the communicator and the request.
pub trait Call {
    /// # Safety
    /// The buffers stay valid, and nobody else uses them, until the request ends.
    unsafe fn make(self, c: *mut ffi::comm_communicator, request: *mut ffi::comm_request) -> ffi::comm_result;

    /// Why the library will refuse it; `None`: no reason is known here.
    fn wrong(&self) -> Option<Error> {
        None
    }
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
