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
    /// What [`Request::again`](crate::Request::again) returns: the buffer alone.
    type Buffer;
    #[doc(hidden)]
    fn buffer(self) -> Self::Buffer;
    /// The error of the operation, with what this output knows about it.
    #[doc(hidden)]
    fn explain(&self, error: Error) -> Error {
        error
    }
}

impl Output for () {
    type Value = ();
    fn value(self) {}
    type Buffer = ();
    fn buffer(self) {}
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
    type Buffer = &'scope mut [T];
    fn buffer(self) -> &'scope mut [T] {
        self.value()
    }
}

impl<O: Output> Output for Option<O> {
    type Value = Option<O::Value>;
    fn value(self) -> Option<O::Value> {
        self.map(Output::value)
    }
    type Buffer = Option<O::Buffer>;
    fn buffer(self) -> Option<O::Buffer> {
        self.map(Output::buffer)
    }
}

/// What the C library writes beside a buffer. The scope keeps it for as long.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) status: ffi::comm_status,
    pub(crate) bytes: usize, // of a receive: how long its buffer is
}

/// The rank in the status of a receive that has got nothing yet.
const NOBODY: i32 = i32::MIN;

impl Kept<Written> {
    /// For a receive: what it writes, and where.
    pub(crate) fn receive(room: usize) -> (Kept<Written>, *mut ffi::comm_status) {
        let status = ffi::comm_status { peer: NOBODY, ..Default::default() };
        let written = Kept::new(Written { status, bytes: room });
        // SAFETY: it is there.
        let at = unsafe { std::ptr::addr_of_mut!((*written.at()).status) };
        (written, at)
    }

    /// Before a receive that was recorded starts once more.
    ///
    /// # Safety
    /// It is not running.
    pub(crate) unsafe fn forget(&self) {
        // SAFETY: the caller's.
        unsafe { (*self.at()).status.peer = NOBODY };
    }

    /// What a receive that was recorded got. Otherwise the length of a message that was too long; `None`: none came.
    ///
    /// # Safety
    /// It is not running.
    pub(crate) unsafe fn got(&self) -> std::result::Result<Status, Option<usize>> {
        // SAFETY: the caller's.
        let Written { status, bytes } = unsafe { &*self.at() };
        let length = Some(status.bytes as usize).filter(|_| status.peer != NOBODY);
        length.filter(|length| length <= bytes).map(|_| Status::of(*status)).ok_or(length)
    }
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
    type Buffer = B::Buffer;
    fn buffer(self) -> B::Buffer {
        self.buffer.buffer()
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
    type Buffer = Option<&'scope mut [u8]>;
    fn buffer(self) -> Option<&'scope mut [u8]> {
        self.buffer.map(Output::buffer)
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
