//! What may be done inside a callback or an operator: the library runs them, so a wait there would wait for itself.
use std::any::Any;
use std::cell::Cell;

use commstream_sys as ffi;

use crate::{Error, ErrorKind, Result};

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Outside,
    Callback,
    Operator,
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Outside) };
}

/// Runs the body of a callback.
pub(crate) fn callback<R>(body: impl FnOnce() -> R) -> R {
    at(Place::Callback, body)
}

/// Runs the body of an operator.
pub(crate) fn operator<R>(body: impl FnOnce() -> R) -> R {
    at(Place::Operator, body)
}

/// `body` does not unwind.
fn at<R>(place: Place, body: impl FnOnce() -> R) -> R {
    let before = PLACE.with(|now| now.replace(place));
    let result = body();
    PLACE.with(|now| now.set(before));
    result
}

/// Nothing may wait inside a callback.
pub(crate) fn may_wait() -> Result<()> {
    match PLACE.with(Cell::get) {
        Place::Outside => Ok(()),
        Place::Callback => Err(Error::new(ErrorKind::State, "this call waits; inside a callback nothing may wait: use start() there")),
        Place::Operator => Err(in_operator()),
    }
}

/// An operator must not call the library.
pub(crate) fn may_start() -> Result<()> {
    match PLACE.with(Cell::get) {
        Place::Operator => Err(in_operator()),
        _ => Ok(()),
    }
}

fn in_operator() -> Error {
    Error::new(ErrorKind::State, "a call was made inside an operator, which must not call the library")
}

/// Whether a wait for the request gives its buffers back. Inside a callback it does only if the operation has succeeded: nothing waits
/// there, and what MPI or NCCL hold of a failed operation comes back by a close.
pub(crate) fn may_finish(request: ffi::comm_request) -> bool {
    // SAFETY: a request may be tested at any time.
    may_wait().is_ok() || (may_start().is_ok() && unsafe { ffi::comm_test(request) } == ffi::COMM_OK)
}

/// Does work that waits on a thread of its own. If there is none, the work is leaked.
pub(crate) fn elsewhere(work: impl FnOnce() + Send + 'static) {
    let work = std::mem::ManuallyDrop::new(work);
    let _ = std::thread::Builder::new().name("commstream-close".into()).spawn(move || std::mem::ManuallyDrop::into_inner(work)());
}

/// Frees something, which the library may not be asked for inside an operator: a thread of its own does it then.
pub(crate) fn outside(work: impl FnOnce() + Send + 'static) {
    if may_start().is_ok() {
        work();
    } else {
        elsewhere(work);
    }
}

/// What a panic said.
pub(crate) fn text_of(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&str>() {
            Ok(text) => (*text).into(),
            Err(payload) => {
                std::mem::forget(payload); // its drop could panic
                "no text".into()
            }
        },
    }
}
