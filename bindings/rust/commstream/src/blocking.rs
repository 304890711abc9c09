//! The calls of a communicator that wait for their result.
use commstream_sys as ffi;

use crate::calls::{self, Layout};
use crate::handle::Call;
use crate::operator::{checked, How};
use crate::span::{Span, Units};
#[cfg(doc)]
use crate::ErrorKind;
use crate::{scope, Communicator, Element, Reduce, Result, Status};

/// Collectives and messages.
impl Communicator {
    /// Makes a reduction and waits for it.
    fn reducing<T: Element, C: Call>(&self, op: impl Reduce<T>, call: impl FnOnce(How) -> C) -> Result<()> {
        let (how, operator) = op.how(&self.handle)?;
        let result = self.handle.run(call(how));
        checked(operator.as_deref(), result)
    }

    /// Waits until every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        self.handle.run(calls::barrier())
    }

    /// Copies the root's elements to every other rank. All buffers have the same length.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: i32) -> Result<()> {
        self.handle.run(calls::broadcast(Span::of_mut(buffer), Units::of::<T>(), root))
    }

    /// Combines the inputs of all ranks element by element; every rank gets the result. All buffers have the same length.
    pub fn allreduce<T: Element>(&self, input: &[T], output: &mut [T], op: impl Reduce<T>) -> Result<()> {
        self.reducing(op, |how| calls::allreduce(Span::of(input), Span::of_mut(output), how))
    }

    /// As [`Communicator::allreduce`], with the input in the buffer that gets the result.
    pub fn allreduce_in_place<T: Element>(&self, buffer: &mut [T], op: impl Reduce<T>) -> Result<()> {
        let to = Span::of_mut(buffer);
        self.reducing(op, |how| calls::allreduce(Span::in_place(to.length), to, how))
    }

    /// Combines the inputs of all ranks on the root, which passes an output of the same length; the others pass `None`.
    pub fn reduce<T: Element>(&self, input: &[T], output: Option<&mut [T]>, op: impl Reduce<T>, root: i32) -> Result<()> {
        let to = output.map(Span::of_mut);
        self.reducing(op, |how| calls::reduce(self.rank(), Span::of(input), to, how, root))
    }

    /// Combines the inputs of ranks 0 to this one.
    pub fn scan<T: Element>(&self, input: &[T], output: &mut [T], op: impl Reduce<T>) -> Result<()> {
        self.reducing(op, |how| calls::scan(Span::of(input), Span::of_mut(output), how, false))
    }

    /// Combines the inputs of the ranks before this one. Rank 0's output is not changed.
    pub fn exscan<T: Element>(&self, input: &[T], output: &mut [T], op: impl Reduce<T>) -> Result<()> {
        self.reducing(op, |how| calls::scan(Span::of(input), Span::of_mut(output), how, true))
    }

    /// Combines inputs that have one block for each rank; each rank gets its block of the result.
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: impl Reduce<T>) -> Result<()> {
        self.reducing(op, |how| calls::reduce_scatter(self.ranks(), Span::of(input), Span::of_mut(output), how))
    }

    /// As [`Communicator::reduce_scatter`], with blocks of `counts[rank]` elements.
    pub fn reduce_scatter_v<T: Element>(&self, input: &[T], output: &mut [T], counts: &[usize], op: impl Reduce<T>) -> Result<()> {
        self.reducing(op, |how| calls::reduce_scatter_v(self.rank(), self.ranks(), Span::of(input), Span::of_mut(output), counts, how))
    }

    /// Collects the inputs of all ranks on the root, in the order of ranks; the others pass `None`.
    pub fn gather<T: Element>(&self, input: &[T], output: Option<&mut [T]>, root: i32) -> Result<()> {
        let to = output.map(Span::of_mut);
        self.handle.run(calls::gather(self.rank(), self.ranks(), Span::of(input), to, Units::of::<T>(), root))
    }

    /// As [`Communicator::gather`], with inputs of any length; the root says where each goes.
    pub fn gather_v<T: Element>(&self, input: &[T], output: Option<(&mut [T], Layout<'_>)>, root: i32) -> Result<()> {
        let to = output.map(|(output, layout)| (Span::of_mut(output), layout));
        self.handle.run(calls::gather_v(self.rank(), self.ranks(), Span::of(input), to, Units::of::<T>(), root))
    }

    /// Distributes the blocks of the root's input, one to each rank; the others pass `None`.
    pub fn scatter<T: Element>(&self, input: Option<&[T]>, output: &mut [T], root: i32) -> Result<()> {
        let from = input.map(Span::of);
        self.handle.run(calls::scatter(self.rank(), self.ranks(), from, Span::of_mut(output), Units::of::<T>(), root))
    }

    /// As [`Communicator::scatter`], with blocks of any length; the root says where each is.
    pub fn scatter_v<T: Element>(&self, input: Option<(&[T], Layout<'_>)>, output: &mut [T], root: i32) -> Result<()> {
        let from = input.map(|(input, layout)| (Span::of(input), layout));
        self.handle.run(calls::scatter_v(self.rank(), self.ranks(), from, Span::of_mut(output), Units::of::<T>(), root))
    }

    /// Collects the inputs of all ranks on every rank, in the order of ranks.
    pub fn allgather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.handle.run(calls::allgather(self.ranks(), Span::of(input), Span::of_mut(output), Units::of::<T>()))
    }

    /// As [`Communicator::allgather`], with inputs of any length. All ranks pass the same layout.
    pub fn allgather_v<T: Element>(&self, input: &[T], output: &mut [T], layout: Layout<'_>) -> Result<()> {
        let to = Span::of_mut(output);
        self.handle.run(calls::allgather_v(self.rank(), self.ranks(), Span::of(input), to, layout, Units::of::<T>()))
    }

    /// Sends block i of the input to rank i, and receives block j of the output from rank j.
    pub fn alltoall<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.handle.run(calls::alltoall(self.ranks(), Span::of(input), Span::of_mut(output), Units::of::<T>()))
    }

    /// As [`Communicator::alltoall`], with blocks of any length.
    pub fn alltoall_v<T: Element>(&self, input: &[T], input_layout: Layout<'_>, output: &mut [T], output_layout: Layout<'_>) -> Result<()> {
        let to = Span::of_mut(output);
        self.handle.run(calls::alltoall_v(self.ranks(), Span::of(input), input_layout, to, output_layout, Units::of::<T>()))
    }

    /// Sends a message. Returns when the buffer may be reused, which does not mean that the message was received.
    pub fn send<T: Element>(&self, buffer: &[T], peer: i32, tag: u32) -> Result<()> {
        self.handle.run(calls::send(Span::of(buffer), Units::of::<T>(), peer, tag))
    }

    /// Receives a message of up to the buffer's length. `None`: from any rank, or with any tag.
    pub fn receive<T: Element>(&self, buffer: &mut [T], peer: Option<i32>, tag: Option<u32>) -> Result<Status> {
        let mut status = ffi::comm_status::default();
        self.handle.run(calls::receive(Span::of_mut(buffer), Units::of::<T>(), peer, tag, &mut status))?;
        Ok(Status::of(status))
    }

    /// Sends to one rank and receives from another, at the same time.
    pub fn send_receive<T: Element>(&self, out: &[T], to: i32, back: &mut [T], from: i32, tag: u32) -> Result<Status> {
        scope(|s| {
            let received = s.receive(self, back, Some(from), Some(tag))?;
            let sent = s.send(self, out, to, tag)?;
            let (_, status) = received.wait()?;
            sent.wait()?;
            Ok(status)
        })
    }

    /// As [`Communicator::reduce`], with the root's input in the buffer that gets the result. The other ranks' buffers are their inputs.
    pub fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: impl Reduce<T>, root: i32) -> Result<()> {
        let to = Span::of_mut(buffer);
        self.reducing(op, |how| calls::reduce_in_place(self.rank(), to, how, root))
    }

    /// As [`Communicator::scan`], with the input in the buffer that gets the result.
    pub fn scan_in_place<T: Element>(&self, buffer: &mut [T], op: impl Reduce<T>) -> Result<()> {
        let to = Span::of_mut(buffer);
        self.reducing(op, |how| calls::scan(Span::in_place(to.length), to, how, false))
    }

    /// As [`Communicator::exscan`], with the input in the buffer that gets the result.
    pub fn exscan_in_place<T: Element>(&self, buffer: &mut [T], op: impl Reduce<T>) -> Result<()> {
        let to = Span::of_mut(buffer);
        self.reducing(op, |how| calls::scan(Span::in_place(to.length), to, how, true))
    }

    /// As [`Communicator::reduce_scatter`], with the input in the buffer; the result replaces this rank's block of it. The other blocks are then
    /// of no use.
    pub fn reduce_scatter_in_place<T: Element>(&self, buffer: &mut [T], op: impl Reduce<T>) -> Result<()> {
        let to = Span::of_mut(buffer);
        self.reducing(op, |how| calls::reduce_scatter_in_place(self.ranks(), to, how))
    }

    /// As [`Communicator::allgather`], with the input in this rank's block of the buffer that gets the result.
    pub fn allgather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let to = Span::of_mut(buffer);
        self.handle.run(calls::allgather_in_place(self.ranks(), to, Units::of::<T>()))
    }

    /// As [`Communicator::alltoall`], with the input in the buffer that gets the result.
    pub fn alltoall_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let to = Span::of_mut(buffer);
        self.handle.run(calls::alltoall(self.ranks(), Span::in_place(to.length), to, Units::of::<T>()))
    }

    /// Broadcasts the root's bytes, however many they are, to ranks that do not know how many. Returns their number: they are at the beginning
    /// of the buffer.
    ///
    /// On the root the buffer is the data. On other ranks it is the room for it; where that is too short the call returns
    /// [`ErrorKind::Truncated`], with the number of bytes in the text, and the other ranks get the data. A root that could not produce its
    /// data passes `None`: then every rank gets [`ErrorKind::Aborted`], and the communicator goes on.
    ///
    /// ```
    /// # fn main() -> commstream::Result<()> {
    /// let world = commstream::Communicator::open()?;
    /// let mut text = [0; 1000];
    /// if world.rank() == 0 {
    ///     text[..5].copy_from_slice(b"hello");
    /// }
    /// let room = if world.rank() == 0 { 5 } else { text.len() };
    /// let bytes = world.broadcast_bytes(Some(&mut text[..room]), 0)?;
    /// assert_eq!(text[..bytes], *b"hello");
    /// # Ok(()) }
    /// ```
    pub fn broadcast_bytes(&self, buffer: Option<&mut [u8]>, root: i32) -> Result<usize> {
        scope(|s| Ok(s.broadcast_bytes(self, buffer, root)?.wait()?.len()))
    }
}
