//! Callbacks of requests: a closure that the C library calls once.
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use commstream_sys as ffi;

use crate::inside;
use crate::{Error, Plan, Request, Result, Task};

/// Has `function` called once when the request ends.
fn on_complete(request: ffi::comm_request, function: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
    inside::may_start()?;
    if request.comm.is_null() {
        run(request, request.ticket as ffi::comm_result, function); // it had ended when it was started
        return Ok(());
    }
    let (call, argument) = boxed(function);
    // SAFETY: the box is the library's from here on, if it takes it.
    match unsafe { ffi::comm_notify(request, Some(call.0), argument) } {
        ffi::COMM_OK => Ok(()),
        result => {
            // SAFETY: it was not taken.
            unsafe { (call.1)(argument) };
            Err(Error::plain(result))
        }
    }
}

type Functions = (unsafe extern "C" fn(ffi::comm_request, ffi::comm_result, *mut c_void), unsafe fn(*mut c_void));

/// A function in a box, and what runs and what drops it.
fn boxed<F: FnOnce(Result<()>) + Send + 'static>(function: F) -> (Functions, *mut c_void) {
    ((call::<F>, discard::<F>), Box::into_raw(Box::new(function)).cast())
}

/// # Safety
/// `argument` is from `boxed`, and used once.
unsafe fn discard<F>(argument: *mut c_void) {
    // SAFETY: the caller's.
    drop(unsafe { Box::from_raw(argument.cast::<F>()) });
}

/// # Safety
/// The C library's contract of a callback; `argument` is from `boxed`, and used once.
unsafe extern "C" fn call<F: FnOnce(Result<()>) + Send + 'static>(
    request: ffi::comm_request,
    result: ffi::comm_result,
    argument: *mut c_void,
) {
    // SAFETY: the caller's.
    let function = unsafe { Box::from_raw(argument.cast::<F>()) };
    run(request, result, *function);
}

fn run(request: ffi::comm_request, result: ffi::comm_result, function: impl FnOnce(Result<()>)) {
    let outcome = if result == ffi::COMM_OK { Ok(()) } else { Err(Error::of(request.comm, result)) };
    inside::callback(|| {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || function(outcome))) {
            let _ = inside::text_of(payload);
        }
    });
}

/// Callbacks.
impl<O> Request<'_, O> {
    /// Has `function` called once when the operation has ended, also if it has ended already.
    ///
    /// Any thread that makes progress calls it, also the library's own: in a later call that waits, tests, closes or makes progress, never
    /// in this one. (An operation of a window that had ended when it was started is an exception: then this call does.) A wait that finds
    /// its operation complete makes no progress; [`Communicator::progress`](crate::Communicator::progress) always does. The callbacks of a
    /// communicator run one at a time. [`Config::callbacks`](crate::Config::callbacks) says where.
    ///
    /// Inside a callback, operations can be started ([`start`](crate::start), [`Plan::start`]). Nothing may wait there: what waits returns
    /// [`ErrorKind::State`](crate::ErrorKind::State). What is dropped there and would wait, such as the last clone of a communicator, is
    /// waited for by a thread of its own. A panic in a callback is reported as any other, and goes no further.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, Op};
    /// use std::sync::mpsc;
    ///
    /// let world = Communicator::open()?;
    /// let (done, ended) = mpsc::channel();
    /// let mut sum = [1];
    /// commstream::scope(|s| {
    ///     let request = s.allreduce_in_place(&world, &mut sum, Op::Sum)?;
    ///     request.on_complete(move |result| done.send(result).unwrap())?;
    ///     while world.progress()? {} // or a thread of the library does
    ///     Ok(())
    /// })?;
    /// # while world.progress()? {}
    /// ended.recv().unwrap()?;
    /// # Ok(()) }
    /// ```
    ///
    /// It may run after the scope, so it borrows nothing:
    ///
    /// ```compile_fail
    /// # fn main() -> commstream::Result<()> {
    /// # let world = commstream::Communicator::open()?;
    /// let mut count = 0;
    /// commstream::scope(|s| {
    ///     s.barrier(&world)?.on_complete(|_| count += 1) // error: it borrows count
    /// })
    /// # }
    /// ```
    ///
    /// [`ErrorKind::State`](crate::ErrorKind::State) if the call was only recorded.
    pub fn on_complete(&self, function: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        on_complete(self.raw()?, function)
    }
}

impl<B: 'static> Task<B> {
    /// Has `function` called once when all operations that are still going have ended, with the first error among them. As
    /// [`Request::on_complete`]; if all have ended and [`Task::is_complete`] or [`Task::finish`] has said so, this call calls it.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// # use std::sync::mpsc;
    /// let world = commstream::Communicator::open()?;
    /// let (done, ended) = mpsc::channel();
    /// let task = commstream::start([1.0; 10], |s, sum| {
    ///     let _ = s.allreduce_in_place(&world, sum, commstream::Op::Sum)?;
    ///     let _ = s.barrier(&world)?;
    ///     Ok(())
    /// })?;
    /// task.on_complete(move |result| done.send(result).unwrap())?;
    /// let sum = task.wait()?;
    /// # while world.progress()? {}
    /// ended.recv().unwrap()?;
    /// # assert_eq!(sum[0], f64::from(world.size()));
    /// # Ok(()) }
    /// ```
    pub fn on_complete(&self, function: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let requests = match self.running() {
            Ok(requests) => requests,
            Err(ended) => return on_complete(crate::handle::NONE, move |_| function(ended)),
        };
        let all = Arc::new(Mutex::new(Last { left: requests.len(), first: Ok(()), function: Some(function) }));
        for request in requests {
            let one = Arc::clone(&all);
            // One that cannot be waited for has ended.
            on_complete(request, move |result| ended(&one, result)).or_else(|error| {
                on_complete(crate::handle::NONE, {
                    let one = Arc::clone(&all);
                    move |_| ended(&one, Err(error))
                })
            })?;
        }
        Ok(())
    }
}

/// The operations of a task that have not ended.
struct Last<F> {
    left: usize,
    first: Result<()>,
    function: Option<F>,
}

fn ended<F: FnOnce(Result<()>)>(all: &Mutex<Last<F>>, result: Result<()>) {
    let mut last = all.lock().unwrap_or_else(PoisonError::into_inner);
    last.left -= 1;
    let first = std::mem::replace(&mut last.first, Ok(()));
    last.first = first.and(result);
    if last.left > 0 {
        return;
    }
    let (function, result) = (last.function.take(), std::mem::replace(&mut last.first, Ok(())));
    drop(last); // the function runs without the lock
    if let Some(function) = function {
        function(result);
    }
}

impl<B: 'static> Plan<B> {
    /// Has `function` called once when the last start has ended. As [`Request::on_complete`]; if [`Plan::wait`] has waited for it, this call
    /// calls it. The error of a receive that ended alone is not told here before that wait.
    pub fn on_complete(&self, function: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        match self.running() {
            Ok(request) => on_complete(request, function),
            Err(ended) => on_complete(crate::handle::NONE, move |_| function(ended)),
        }
    }
}
