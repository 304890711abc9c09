//! The calls of a scope in place, and of bytes.
use commstream_sys as ffi;

use crate::calls;
use crate::lent::{Kept, Lent, LentBytes, Written};
use crate::queue::Queue;
use crate::request::Request;
use crate::scope::Scope;
use crate::span::{Span, Units};
use crate::{Communicator, Element, Reduce, Result};

/// Calls whose input is where the result goes, and broadcasts of unknown length.
impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts [`Communicator::reduce_in_place`].
    pub fn reduce_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        op: impl Reduce<T>,
        root: i32,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let to = buffer.span();
        self.begin_with(c, op, |how| calls::reduce_in_place(c.rank(), to, how, root), buffer)
    }

    /// Starts [`Communicator::scan_in_place`].
    pub fn scan_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let to = buffer.span();
        self.begin_with(c, op, |how| calls::scan(Span::in_place(to.length), to, how, false), buffer)
    }

    /// Starts [`Communicator::exscan_in_place`].
    pub fn exscan_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let to = buffer.span();
        self.begin_with(c, op, |how| calls::scan(Span::in_place(to.length), to, how, true), buffer)
    }

    /// Starts [`Communicator::reduce_scatter_in_place`].
    pub fn reduce_scatter_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let to = buffer.span();
        self.begin_with(c, op, |how| calls::reduce_scatter_in_place(c.ranks(), to, how), buffer)
    }

    /// Starts [`Communicator::allgather_in_place`].
    pub fn allgather_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let to = buffer.span();
        let call = calls::allgather_in_place(c.ranks(), to, Units::of::<T>());
        self.begin(c, call, buffer)
    }

    /// Starts [`Communicator::alltoall_in_place`].
    pub fn alltoall_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let to = buffer.span();
        let call = calls::alltoall(c.ranks(), Span::in_place(to.length), to, Units::of::<T>());
        self.begin(c, call, buffer)
    }

    /// Starts [`Communicator::broadcast_bytes`].
    pub fn broadcast_bytes(
        &'scope self,
        c: &Communicator,
        buffer: Option<&'scope mut [u8]>,
        root: i32,
    ) -> Result<Request<'scope, LentBytes<'scope>>> {
        let buffer = buffer.map(Lent::new);
        let span = buffer.as_ref().map(Lent::span);
        let given_up = if c.rank() == root { ffi::COMM_ROOT_FAILED } else { 0 };
        let written = Kept::new(Written { bytes: span.map_or(given_up, |span| span.length), ..Default::default() });
        // SAFETY: it is there.
        let length = unsafe { std::ptr::addr_of_mut!((*written.at()).bytes) };
        let call = calls::broadcast_bytes(span.unwrap_or(Span::NONE), length, root);
        self.begin_writing(c, call, LentBytes { buffer, written: written.at() }, Some(written))
    }
}
