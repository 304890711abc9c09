//! The calls of a scope with memory of a device.
use crate::calls::{self, Layout};
use crate::device::{DeviceSlice, DeviceSliceMut};
use crate::lent::{Kept, Received};
use crate::queue::Queue;
use crate::request::Request;
use crate::scope::Scope;
use crate::span::{Span, Units};
#[cfg(doc)]
use crate::Communicator;
use crate::{Element, Reduce, Result};

/// The calls of a [`Scope`] with memory of a device: [`Scope::on_device`].
///
/// Each is the call of the same name with a [`DeviceSlice`] or [`DeviceSliceMut`] where that has a slice.
#[derive(Clone, Copy)]
pub struct OnDevice<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// The calls of this scope with memory of a device.
    ///
    /// With backend nccl the device moves and reduces it, and cuda reduces short sums itself; other backends copy it through memory of the
    /// host. Without a CUDA driver, what the slices name is taken for memory of the host.
    ///
    /// ```no_run
    /// # fn main() -> commstream::Result<()> {
    /// use commstream::{Communicator, DeviceSliceMut, Op, Stream};
    /// # fn allocate() -> (*mut f32, *mut std::os::raw::c_void) { unimplemented!() }
    ///
    /// let world = Communicator::open()?;
    /// let (memory, stream) = allocate(); // by CUDA: 1000 numbers, and a stream that computes them
    /// // SAFETY: both live until the end, and nobody else uses the memory.
    /// let (mut gradient, stream) = unsafe { (DeviceSliceMut::new(memory, 1000), Stream::from_raw(stream)) };
    /// commstream::scope(|s| {
    ///     stream.before(&world)?; // the sum starts when everything on the stream so far is done
    ///     let sum = s.on_device().allreduce_in_place(&world, gradient.reborrow(), Op::Avg)?;
    ///     sum.before_stream(stream) // and what is put on the stream from now on starts after it
    /// })
    /// # }
    /// ```
    pub fn on_device(&'scope self) -> OnDevice<'scope, 'env> {
        OnDevice { scope: self }
    }
}

impl<'scope, 'env> OnDevice<'scope, 'env> {
    /// Starts [`Communicator::barrier`].
    pub fn barrier(self, c: &impl Queue) -> Result<Request<'scope>> {
        self.scope.begin(c, calls::barrier(), ())
    }

    /// Starts [`Communicator::broadcast`].
    pub fn broadcast<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
        root: i32,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let call = calls::broadcast(buffer.span(), Units::of::<T>(), root);
        self.scope.begin(c, call, buffer)
    }

    /// Starts [`Communicator::allreduce`].
    pub fn allreduce<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = output.span();
        self.scope.begin_with(c, op, |how| calls::allreduce(input.span(), to, how), output)
    }

    /// Starts [`Communicator::allreduce_in_place`].
    pub fn allreduce_in_place<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = buffer.span();
        self.scope.begin_with(c, op, |how| calls::allreduce(Span::in_place(to.length), to, how), buffer)
    }

    /// Starts [`Communicator::reduce`].
    pub fn reduce<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: Option<DeviceSliceMut<'scope, T>>,
        op: impl Reduce<T>,
        root: i32,
    ) -> Result<Request<'scope, Option<DeviceSliceMut<'scope, T>>>> {
        let to = output.as_ref().map(DeviceSliceMut::span);
        self.scope.begin_with(c, op, |how| calls::reduce(c.rank(), input.span(), to, how, root), output)
    }

    /// Starts [`Communicator::scan`].
    pub fn scan<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = output.span();
        self.scope.begin_with(c, op, |how| calls::scan(input.span(), to, how, false), output)
    }

    /// Starts [`Communicator::exscan`].
    pub fn exscan<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = output.span();
        self.scope.begin_with(c, op, |how| calls::scan(input.span(), to, how, true), output)
    }

    /// Starts [`Communicator::reduce_scatter`].
    pub fn reduce_scatter<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = output.span();
        self.scope.begin_with(c, op, |how| calls::reduce_scatter(c.ranks(), input.span(), to, how), output)
    }

    /// Starts [`Communicator::reduce_scatter_v`].
    pub fn reduce_scatter_v<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
        counts: &[usize],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = output.span();
        self.scope.begin_with(c, op, |how| calls::reduce_scatter_v(c.rank(), c.ranks(), input.span(), to, counts, how), output)
    }

    /// Starts [`Communicator::gather`].
    pub fn gather<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: Option<DeviceSliceMut<'scope, T>>,
        root: i32,
    ) -> Result<Request<'scope, Option<DeviceSliceMut<'scope, T>>>> {
        let call = calls::gather(c.rank(), c.ranks(), input.span(), output.as_ref().map(DeviceSliceMut::span), Units::of::<T>(), root);
        self.scope.begin(c, call, output)
    }

    /// Starts [`Communicator::gather_v`].
    pub fn gather_v<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: Option<(DeviceSliceMut<'scope, T>, Layout<'_>)>,
        root: i32,
    ) -> Result<Request<'scope, Option<DeviceSliceMut<'scope, T>>>> {
        let (buffer, layout) = output.map_or((None, None), |(buffer, layout)| (Some(buffer), Some(layout)));
        let to = buffer.as_ref().map(DeviceSliceMut::span).zip(layout);
        let call = calls::gather_v(c.rank(), c.ranks(), input.span(), to, Units::of::<T>(), root);
        self.scope.begin(c, call, buffer)
    }

    /// Starts [`Communicator::scatter`].
    pub fn scatter<T: Element>(
        self,
        c: &impl Queue,
        input: Option<DeviceSlice<'scope, T>>,
        output: DeviceSliceMut<'scope, T>,
        root: i32,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let call = calls::scatter(c.rank(), c.ranks(), input.map(|input| input.span()), output.span(), Units::of::<T>(), root);
        self.scope.begin(c, call, output)
    }

    /// Starts [`Communicator::scatter_v`].
    pub fn scatter_v<T: Element>(
        self,
        c: &impl Queue,
        input: Option<(DeviceSlice<'scope, T>, Layout<'_>)>,
        output: DeviceSliceMut<'scope, T>,
        root: i32,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let from = input.map(|(input, layout)| (input.span(), layout));
        let call = calls::scatter_v(c.rank(), c.ranks(), from, output.span(), Units::of::<T>(), root);
        self.scope.begin(c, call, output)
    }

    /// Starts [`Communicator::allgather`].
    pub fn allgather<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let call = calls::allgather(c.ranks(), input.span(), output.span(), Units::of::<T>());
        self.scope.begin(c, call, output)
    }

    /// Starts [`Communicator::allgather_v`].
    pub fn allgather_v<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
        layout: Layout<'_>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let call = calls::allgather_v(c.rank(), c.ranks(), input.span(), output.span(), layout, Units::of::<T>());
        self.scope.begin(c, call, output)
    }

    /// Starts [`Communicator::alltoall`].
    pub fn alltoall<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        output: DeviceSliceMut<'scope, T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let call = calls::alltoall(c.ranks(), input.span(), output.span(), Units::of::<T>());
        self.scope.begin(c, call, output)
    }

    /// Starts [`Communicator::alltoall_v`].
    pub fn alltoall_v<T: Element>(
        self,
        c: &impl Queue,
        input: DeviceSlice<'scope, T>,
        input_layout: Layout<'_>,
        output: DeviceSliceMut<'scope, T>,
        output_layout: Layout<'_>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = output.span();
        let call = calls::alltoall_v(c.ranks(), input.span(), input_layout, to, output_layout, Units::of::<T>());
        self.scope.begin(c, call, output)
    }

    /// Starts [`Communicator::send`].
    pub fn send<T: Element>(self, c: &impl Queue, buffer: DeviceSlice<'scope, T>, peer: i32, tag: u32) -> Result<Request<'scope>> {
        self.scope.begin(c, calls::send(buffer.span(), Units::of::<T>(), peer, tag), ())
    }

    /// Starts [`Communicator::receive`].
    pub fn receive<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
        peer: Option<i32>,
        tag: Option<u32>,
    ) -> Result<Request<'scope, Received<DeviceSliceMut<'scope, T>>>> {
        let (written, status) = Kept::receive(buffer.len() * std::mem::size_of::<T>());
        let call = calls::receive(buffer.span(), Units::of::<T>(), peer, tag, status);
        self.scope.begin_writing(c, call, Received { buffer, written: written.at() }, Some(written))
    }

    /// Starts [`Communicator::reduce_in_place`].
    pub fn reduce_in_place<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
        root: i32,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = buffer.span();
        self.scope.begin_with(c, op, |how| calls::reduce_in_place(c.rank(), to, how, root), buffer)
    }

    /// Starts [`Communicator::scan_in_place`].
    pub fn scan_in_place<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = buffer.span();
        self.scope.begin_with(c, op, |how| calls::scan(Span::in_place(to.length), to, how, false), buffer)
    }

    /// Starts [`Communicator::exscan_in_place`].
    pub fn exscan_in_place<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = buffer.span();
        self.scope.begin_with(c, op, |how| calls::scan(Span::in_place(to.length), to, how, true), buffer)
    }

    /// Starts [`Communicator::reduce_scatter_in_place`].
    pub fn reduce_scatter_in_place<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = buffer.span();
        self.scope.begin_with(c, op, |how| calls::reduce_scatter_in_place(c.ranks(), to, how), buffer)
    }

    /// Starts [`Communicator::allgather_in_place`].
    pub fn allgather_in_place<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = buffer.span();
        let call = calls::allgather_in_place(c.ranks(), to, Units::of::<T>());
        self.scope.begin(c, call, buffer)
    }

    /// Starts [`Communicator::alltoall_in_place`].
    pub fn alltoall_in_place<T: Element>(
        self,
        c: &impl Queue,
        buffer: DeviceSliceMut<'scope, T>,
    ) -> Result<Request<'scope, DeviceSliceMut<'scope, T>>> {
        let to = buffer.span();
        let call = calls::alltoall(c.ranks(), Span::in_place(to.length), to, Units::of::<T>());
        self.scope.begin(c, call, buffer)
    }
}
