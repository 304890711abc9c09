//! The calls of a scope.
use crate::calls::{self, Layout};
use crate::lent::{Kept, Lent, Received};
use crate::queue::Queue;
use crate::request::Request;
use crate::scope::Scope;
use crate::span::{Span, Units};
#[cfg(doc)]
use crate::Communicator;
use crate::{Element, Reduce, Result};

/// Collectives and messages.
impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts [`Communicator::barrier`].
    pub fn barrier(&'scope self, c: &impl Queue) -> Result<Request<'scope>> {
        self.begin(c, calls::barrier(), ())
    }

    /// Starts [`Communicator::broadcast`].
    pub fn broadcast<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        root: i32,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let call = calls::broadcast(buffer.span(), Units::of::<T>(), root);
        self.begin(c, call, buffer)
    }

    /// Starts [`Communicator::allreduce`].
    pub fn allreduce<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let to = output.span();
        self.begin_with(c, op, |how| calls::allreduce(Span::of(input), to, how), output)
    }

    /// Starts [`Communicator::allreduce_in_place`].
    pub fn allreduce_in_place<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let buffer = Lent::new(buffer);
        let to = buffer.span();
        self.begin_with(c, op, |how| calls::allreduce(Span::in_place(to.length), to, how), buffer)
    }

    /// Starts [`Communicator::reduce`].
    pub fn reduce<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: Option<&'scope mut [T]>,
        op: impl Reduce<T>,
        root: i32,
    ) -> Result<Request<'scope, Option<Lent<'scope, T>>>> {
        let output = output.map(Lent::new);
        let to = output.as_ref().map(Lent::span);
        self.begin_with(c, op, |how| calls::reduce(c.rank(), Span::of(input), to, how, root), output)
    }

    /// Starts [`Communicator::scan`].
    pub fn scan<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let to = output.span();
        self.begin_with(c, op, |how| calls::scan(Span::of(input), to, how, false), output)
    }

    /// Starts [`Communicator::exscan`].
    pub fn exscan<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let to = output.span();
        self.begin_with(c, op, |how| calls::scan(Span::of(input), to, how, true), output)
    }

    /// Starts [`Communicator::reduce_scatter`].
    pub fn reduce_scatter<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let to = output.span();
        self.begin_with(c, op, |how| calls::reduce_scatter(c.ranks(), Span::of(input), to, how), output)
    }

    /// Starts [`Communicator::reduce_scatter_v`].
    pub fn reduce_scatter_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        counts: &[usize],
        op: impl Reduce<T>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let to = output.span();
        self.begin_with(c, op, |how| calls::reduce_scatter_v(c.rank(), c.ranks(), Span::of(input), to, counts, how), output)
    }

    /// Starts [`Communicator::gather`].
    pub fn gather<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: Option<&'scope mut [T]>,
        root: i32,
    ) -> Result<Request<'scope, Option<Lent<'scope, T>>>> {
        let output = output.map(Lent::new);
        let call = calls::gather(c.rank(), c.ranks(), Span::of(input), output.as_ref().map(Lent::span), Units::of::<T>(), root);
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::gather_v`].
    pub fn gather_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: Option<(&'scope mut [T], Layout<'_>)>,
        root: i32,
    ) -> Result<Request<'scope, Option<Lent<'scope, T>>>> {
        let (buffer, layout) = output.map_or((None, None), |(buffer, layout)| (Some(Lent::new(buffer)), Some(layout)));
        let to = buffer.as_ref().map(Lent::span).zip(layout);
        let call = calls::gather_v(c.rank(), c.ranks(), Span::of(input), to, Units::of::<T>(), root);
        self.begin(c, call, buffer)
    }

    /// Starts [`Communicator::scatter`].
    pub fn scatter<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: Option<&'scope [T]>,
        output: &'scope mut [T],
        root: i32,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let call = calls::scatter(c.rank(), c.ranks(), input.map(Span::of), output.span(), Units::of::<T>(), root);
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::scatter_v`].
    pub fn scatter_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: Option<(&'scope [T], Layout<'_>)>,
        output: &'scope mut [T],
        root: i32,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let from = input.map(|(input, layout)| (Span::of(input), layout));
        let call = calls::scatter_v(c.rank(), c.ranks(), from, output.span(), Units::of::<T>(), root);
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::allgather`].
    pub fn allgather<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let call = calls::allgather(c.ranks(), Span::of(input), output.span(), Units::of::<T>());
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::allgather_v`].
    pub fn allgather_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
        layout: Layout<'_>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let call = calls::allgather_v(c.rank(), c.ranks(), Span::of(input), output.span(), layout, Units::of::<T>());
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::alltoall`].
    pub fn alltoall<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        output: &'scope mut [T],
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let call = calls::alltoall(c.ranks(), Span::of(input), output.span(), Units::of::<T>());
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::alltoall_v`].
    pub fn alltoall_v<T: Element>(
        &'scope self,
        c: &impl Queue,
        input: &'scope [T],
        input_layout: Layout<'_>,
        output: &'scope mut [T],
        output_layout: Layout<'_>,
    ) -> Result<Request<'scope, Lent<'scope, T>>> {
        let output = Lent::new(output);
        let to = output.span();
        let call = calls::alltoall_v(c.ranks(), Span::of(input), input_layout, to, output_layout, Units::of::<T>());
        self.begin(c, call, output)
    }

    /// Starts [`Communicator::send`].
    pub fn send<T: Element>(&'scope self, c: &impl Queue, buffer: &'scope [T], peer: i32, tag: u32) -> Result<Request<'scope>> {
        self.begin(c, calls::send(Span::of(buffer), Units::of::<T>(), peer, tag), ())
    }

    /// Starts [`Communicator::receive`].
    pub fn receive<T: Element>(
        &'scope self,
        c: &impl Queue,
        buffer: &'scope mut [T],
        peer: Option<i32>,
        tag: Option<u32>,
    ) -> Result<Request<'scope, Received<Lent<'scope, T>>>> {
        let (written, status) = Kept::receive(std::mem::size_of_val(buffer));
        let buffer = Lent::new(buffer);
        let call = calls::receive(buffer.span(), Units::of::<T>(), peer, tag, status);
        self.begin_writing(c, call, Received { buffer, written: written.at() }, Some(written))
    }
}
