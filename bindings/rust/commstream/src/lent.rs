use std::marker::PhantomData;
use std::ptr::NonNull;

use commstream_sys as ffi;

use crate::span::Span;
use crate::{Error, ErrorKind, Status};

/// What a request gives back once its operation is complete.
pub trait Output {
    /// What [`Request::wait`](crate::Request::wait) returns.
    type Value;
    #[doc(hidden)]
    fn value(self) -> Self::Value;
    /// The error of the operation, with what this output knows about it.
    #[doc(hidden)]
    fn explain(&self, error: Error) -> Error {
        error
    }
}

impl Output for () {
    type Value = ();
    fn value(self) {}
}

/// An output that an operation may be writing. It is a pointer, since nobody may hold a reference to it meanwhile.
pub struct Lent<'scope, T> {
    at: NonNull<T>,
    length: usize,
    of: PhantomData<&'scope mut [T]>,
}

impl<'scope, T> Lent<'scope, T> {
    pub(crate) fn new(slice: &'scope mut [T]) -> Lent<'scope, T> {
        let length = slice.len();
        Lent { at: NonNull::from(slice).cast(), length, of: PhantomData }
    }

    pub(crate) fn span(&self) -> Span {
        Span::new(self.at.as_ptr(), self.length)
    }
}

impl<'scope, T> Output for Lent<'scope, T> {
    type Value = &'scope mut [T];
    fn value(self) -> &'scope mut [T] {
        // SAFETY: it is borrowed for 'scope, and the operation is complete.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.length) }
    }
}

impl<O: Output> Output for Option<O> {
    type Value = Option<O::Value>;
    fn value(self) -> Option<O::Value> {
        self.map(Output::value)
    }
}

/// What the C library writes beside a buffer. The scope keeps it for as long.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) status: ffi::comm_status,
    pub(crate) bytes: usize,
}

/// The output of a receive, until it is complete.
pub struct Received<B> {
    pub(crate) buffer: B,
    pub(crate) written: *const Written,
}

impl<B: Output> Output for Received<B> {
    /// The whole buffer, and what came: its first [`Status::count`] elements.
    type Value = (B::Value, Status);
    fn value(self) -> Self::Value {
        // SAFETY: the scope keeps it, and the operation that wrote it is complete.
        let status = unsafe { (*self.written).status };
        (self.buffer.value(), Status::of(status))
    }
}

/// The output of [`Scope::broadcast_bytes`](crate::Scope::broadcast_bytes), until it is complete.
pub struct LentBytes<'scope> {
    pub(crate) buffer: Option<Lent<'scope, u8>>,
    pub(crate) written: *const Written,
}

impl<'scope> Output for LentBytes<'scope> {
    /// The bytes that came: the beginning of the buffer.
    type Value = &'scope mut [u8];
    fn value(self) -> &'scope mut [u8] {
        // SAFETY: as for a receive.
        let bytes = unsafe { (*self.written).bytes };
        self.buffer.map_or(&mut [][..], |buffer| &mut buffer.value()[..bytes])
    }
    fn explain(&self, mut error: Error) -> Error {
        if error.kind == ErrorKind::Truncated {
            // SAFETY: as for a receive; it has ended.
            let bytes = unsafe { (*self.written).bytes };
            let room = self.buffer.as_ref().map_or(0, |buffer| buffer.span().length);
            error.text = format!("broadcast_bytes: the root sent {bytes} bytes; the buffer has {room}");
        }
        error
    }
}

/// A box whose contents operations may be using: a pointer, for the same reason.
pub(crate) struct Kept<B>(NonNull<B>);

impl<B> Kept<B> {
    pub(crate) fn new(value: B) -> Kept<B> {
        Kept(NonNull::from(Box::leak(Box::new(value))))
    }

    pub(crate) fn at(&self) -> *mut B {
        self.0.as_ptr()
    }

    /// Nobody may be using it.
    pub(crate) fn into_inner(self) -> B {
        let at = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: it came from a box, and is freed only here or in drop.
        *unsafe { Box::from_raw(at.as_ptr()) }
    }
}

impl<B> Drop for Kept<B> {
    fn drop(&mut self) {
        // SAFETY: as in into_inner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
