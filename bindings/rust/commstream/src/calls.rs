//! The collective and message calls: lengths are checked here, once for the blocking form and the one of a scope.
use std::borrow::Cow;

use commstream_sys as ffi;

use crate::handle::{as_call, Call};
use crate::operator::How;
use crate::span::{Span, Units};
use crate::{Error, ErrorKind, Result};

fn expect(good: bool, text: impl FnOnce() -> String) -> Result<()> {
    if good {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Argument, text()))
    }
}

fn same_length(call: &str, input: usize, output: usize) -> Result<()> {
    expect(input == output, || format!("{call}: output has {output} elements; expected as many as input, {input}"))
}

fn as_counted(call: &str, what: &str, rank: i32, counts: &[usize], length: usize) -> Result<()> {
    let count = usize::try_from(rank).ok().and_then(|rank| counts.get(rank)).copied().unwrap_or(0);
    expect(length == count, || format!("{call}: {what} has {length} elements; expected counts[{rank}], {count}"))
}

fn blocks(call: &str, what: &str, longer: usize, size: usize, shorter: usize) -> Result<()> {
    expect(longer == size * shorter, || format!("{call}: {what} has {longer} elements; expected {size} blocks of {shorter}"))
}

/// A collective whose lengths are known here. If they are wrong, the library is given the same call without a type: it refuses that, tells
/// the other ranks, and a plan or group that is recorded ends with an error too.
struct Checked<F> {
    right: Result<()>,
    of: ffi::comm_type,
    make: F,
}

impl<F> Call for Checked<F>
where
    F: FnOnce(*mut ffi::comm_communicator, ffi::comm_type, *mut ffi::comm_request) -> ffi::comm_result,
{
    unsafe fn make(self, c: *mut ffi::comm_communicator, request: *mut ffi::comm_request) -> ffi::comm_result {
        (self.make)(c, if self.right.is_ok() { self.of } else { NO_TYPE }, request)
    }

    fn wrong(&self) -> Option<Error> {
        self.right.as_ref().err().cloned()
    }
}

const NO_TYPE: ffi::comm_type = ffi::comm_type::MAX;

fn checked<F>(right: Result<()>, of: ffi::comm_type, make: F) -> Checked<F>
where
    F: FnOnce(*mut ffi::comm_communicator, ffi::comm_type, *mut ffi::comm_request) -> ffi::comm_result,
{
    Checked { right, of, make }
}

/// Counts and displacements of a v form, which must lie within a buffer, and not overlap if that is written.
fn layout(call: &str, what: &str, size: usize, counts: &[usize], displs: Option<&[usize]>, length: usize) -> Result<()> {
    expect(counts.len() == size, || format!("{call}: {what} has {} counts; expected one for each of {size} ranks", counts.len()))?;
    let mut dense = 0usize;
    if let Some(displs) = displs {
        expect(displs.len() == size, || {
            format!("{call}: {what} has {} displacements; expected one for each of {size} ranks", displs.len())
        })?;
    }
    for (rank, count) in counts.iter().enumerate() {
        let from = displs.map_or(dense, |displs| displs[rank]);
        let end = from.checked_add(*count).filter(|end| *end <= length);
        expect(end.is_some(), || format!("{call}: {what}'s block of rank {rank} is {count} elements at {from}; the buffer has {length}"))?;
        dense = dense.saturating_add(*count);
    }
    displs.filter(|_| what == "output").map_or(Ok(()), |displs| apart(call, counts, displs))
}

/// Blocks that are written do not overlap.
fn apart(call: &str, counts: &[usize], displs: &[usize]) -> Result<()> {
    let mut blocks: Vec<_> = (0..counts.len()).filter(|rank| counts[*rank] > 0).collect();
    blocks.sort_by_key(|rank| displs[*rank]);
    for (one, next) in blocks.iter().zip(blocks.iter().skip(1)) {
        expect(displs[*one] + counts[*one] <= displs[*next], || {
            format!(
                "{call}: output's block of rank {next} begins at {} in that of rank {one}; expected blocks that do not overlap",
                displs[*next]
            )
        })?;
    }
    Ok(())
}

/// Where the blocks of a v form are: one count for each rank, and where each block begins, in elements.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The length of each rank's block.
    pub counts: &'a [usize],
    /// Where each block begins; `None`: one after another, in the order of ranks.
    pub displacements: Option<&'a [usize]>,
}

impl<'a> Layout<'a> {
    /// Blocks one after another.
    pub fn dense(counts: &'a [usize]) -> Layout<'a> {
        Layout { counts, displacements: None }
    }

    /// NULL if it is wrong: then its slices may be shorter than the library expects.
    fn in_units(&self, units: Units, right: &Result<()>) -> Blocks<'a> {
        let layout = Some(self).filter(|_| right.is_ok());
        Blocks {
            counts: layout.map(|layout| units.all(layout.counts)),
            displacements: layout.and_then(|layout| layout.displacements).map(|displs| units.all(displs)),
        }
    }
}

/// A layout as the C library gets it, which copies it during the call.
struct Blocks<'a> {
    counts: Option<Cow<'a, [usize]>>,
    displacements: Option<Cow<'a, [usize]>>,
}

impl Blocks<'_> {
    fn counts(&self) -> *const usize {
        self.counts.as_ref().map_or(std::ptr::null(), |counts| counts.as_ptr())
    }

    fn displacements(&self) -> *const usize {
        self.displacements.as_ref().map_or(std::ptr::null(), |displs| displs.as_ptr())
    }
}

pub(crate) fn barrier() -> impl Call {
    as_call(move |c, request| unsafe { ffi::comm_barrier(c, request) })
}

pub(crate) fn broadcast(buffer: Span, units: Units, root: i32) -> impl Call {
    let n = buffer.length * units.each;
    as_call(move |c, request| unsafe { ffi::comm_broadcast(c, buffer.at, n, units.of, root, request) })
}

/// `length`: on the root the number of bytes; elsewhere what the buffer holds, and then what came.
pub(crate) fn broadcast_bytes(buffer: Span, length: *mut usize, root: i32) -> impl Call {
    as_call(move |c, request| unsafe { ffi::comm_broadcast_bytes(c, buffer.at, length, root, request) })
}

pub(crate) fn allreduce(from: Span, to: Span, how: How) -> impl Call {
    let right = same_length("allreduce", from.length, to.length);
    let n = to.length * how.units.each;
    checked(right, how.units.of, move |c, of, request| unsafe { ffi::comm_allreduce(c, from.at, to.at, n, of, how.op, request) })
}

/// `to`: the output, on the root; other ranks pass none.
pub(crate) fn reduce(rank: i32, from: Span, to: Option<Span>, how: How, root: i32) -> impl Call {
    let right = on_root("reduce", "output", rank, root, to, |to| same_length("reduce", from.length, to.length));
    let (n, to) = (from.length * how.units.each, to.filter(|_| rank == root).unwrap_or(Span::NONE));
    checked(right, how.units.of, move |c, of, request| unsafe { ffi::comm_reduce(c, from.at, to.at, n, of, how.op, root, request) })
}

/// The root's input is where the result goes.
pub(crate) fn reduce_in_place(rank: i32, buffer: Span, how: How, root: i32) -> impl Call {
    let from = if rank == root { Span::in_place(buffer.length) } else { buffer };
    reduce(rank, from, Some(buffer), how, root)
}

/// Checks the buffer that the root passes. What other ranks pass is not used.
fn on_root<B>(call: &str, what: &str, rank: i32, root: i32, buffer: Option<B>, check: impl FnOnce(B) -> Result<()>) -> Result<()> {
    match buffer {
        _ if rank != root => Ok(()),
        Some(buffer) => check(buffer),
        None => expect(false, || format!("{call}: {what} is None on rank {rank}; expected a buffer on the root")),
    }
}

pub(crate) fn scan(from: Span, to: Span, how: How, exclusive: bool) -> impl Call {
    let right = same_length(if exclusive { "exscan" } else { "scan" }, from.length, to.length);
    let n = to.length * how.units.each;
    checked(right, how.units.of, move |c, of, request| unsafe {
        if exclusive {
            ffi::comm_exscan(c, from.at, to.at, n, of, how.op, request)
        } else {
            ffi::comm_scan(c, from.at, to.at, n, of, how.op, request)
        }
    })
}

/// `to` has all blocks.
pub(crate) fn reduce_scatter_in_place(size: usize, to: Span, how: How) -> impl Call {
    let all = Span::in_place(to.length);
    reduce_scatter(size, all, Span { at: to.at, length: to.length / size }, how)
}

pub(crate) fn reduce_scatter(size: usize, from: Span, to: Span, how: How) -> impl Call {
    let right = blocks("reduce_scatter", "input", from.length, size, to.length);
    let n = to.length * how.units.each;
    checked(right, how.units.of, move |c, of, request| unsafe { ffi::comm_reduce_scatter(c, from.at, to.at, n, of, how.op, request) })
}

pub(crate) fn reduce_scatter_v(rank: i32, size: usize, from: Span, to: Span, counts: &[usize], how: How) -> impl Call + '_ {
    let right = layout("reduce_scatter_v", "input", size, counts, None, from.length)
        .and_then(|()| as_counted("reduce_scatter_v", "output", rank, counts, to.length));
    let blocks = Layout::dense(counts).in_units(how.units, &right);
    checked(right, how.units.of, move |c, of, request| unsafe {
        ffi::comm_reduce_scatter_v(c, from.at, to.at, blocks.counts(), of, how.op, request)
    })
}

pub(crate) fn gather(rank: i32, size: usize, from: Span, to: Option<Span>, units: Units, root: i32) -> impl Call {
    let right = on_root("gather", "output", rank, root, to, |to| blocks("gather", "output", to.length, size, from.length));
    let (n, to) = (from.length * units.each, to.filter(|_| rank == root).unwrap_or(Span::NONE));
    checked(right, units.of, move |c, of, request| unsafe { ffi::comm_gather(c, from.at, to.at, n, of, root, request) })
}

/// `to`: on the root, the output and where each rank's block goes.
pub(crate) fn gather_v<'a>(rank: i32, size: usize, from: Span, to: Option<(Span, Layout<'a>)>, units: Units, root: i32) -> impl Call + 'a {
    let right = on_root("gather_v", "output", rank, root, to, |(buffer, place)| {
        layout("gather_v", "output", size, place.counts, place.displacements, buffer.length)
    });
    let (to, place) = to.filter(|_| rank == root).unwrap_or((Span::NONE, Layout::dense(&[])));
    let (n, place) = (from.length * units.each, place.in_units(units, &right));
    checked(right, units.of, move |c, of, request| unsafe {
        ffi::comm_gather_v(c, from.at, n, to.at, place.counts(), place.displacements(), of, root, request)
    })
}

/// `from`: the input, on the root; other ranks pass none.
pub(crate) fn scatter(rank: i32, size: usize, from: Option<Span>, to: Span, units: Units, root: i32) -> impl Call {
    let right = on_root("scatter", "input", rank, root, from, |from| blocks("scatter", "input", from.length, size, to.length));
    let (from, n) = (from.filter(|_| rank == root).unwrap_or(Span::NONE), to.length * units.each);
    checked(right, units.of, move |c, of, request| unsafe { ffi::comm_scatter(c, from.at, to.at, n, of, root, request) })
}

/// `from`: on the root, the input and where each rank's block is.
pub(crate) fn scatter_v<'a>(rank: i32, size: usize, from: Option<(Span, Layout<'a>)>, to: Span, units: Units, root: i32) -> impl Call + 'a {
    let right = on_root("scatter_v", "input", rank, root, from, |(buffer, place)| {
        layout("scatter_v", "input", size, place.counts, place.displacements, buffer.length)
    });
    let (from, place) = from.filter(|_| rank == root).unwrap_or((Span::NONE, Layout::dense(&[])));
    let (n, place) = (to.length * units.each, place.in_units(units, &right));
    checked(right, units.of, move |c, of, request| unsafe {
        ffi::comm_scatter_v(c, from.at, place.counts(), place.displacements(), to.at, n, of, root, request)
    })
}

pub(crate) fn allgather_in_place(size: usize, to: Span, units: Units) -> impl Call {
    allgather(size, Span::in_place(to.length / size), to, units)
}

pub(crate) fn allgather(size: usize, from: Span, to: Span, units: Units) -> impl Call {
    let right = blocks("allgather", "output", to.length, size, from.length);
    let n = from.length * units.each;
    checked(right, units.of, move |c, of, request| unsafe { ffi::comm_allgather(c, from.at, to.at, n, of, request) })
}

pub(crate) fn allgather_v(rank: i32, size: usize, from: Span, to: Span, place: Layout<'_>, units: Units) -> impl Call + '_ {
    let right = layout("allgather_v", "output", size, place.counts, place.displacements, to.length)
        .and_then(|()| as_counted("allgather_v", "input", rank, place.counts, from.length));
    let place = place.in_units(units, &right);
    checked(right, units.of, move |c, of, request| unsafe {
        ffi::comm_allgather_v(c, from.at, to.at, place.counts(), place.displacements(), of, request)
    })
}

pub(crate) fn alltoall(size: usize, from: Span, to: Span, units: Units) -> impl Call {
    let right =
        same_length("alltoall", from.length, to.length).and_then(|()| blocks("alltoall", "input", from.length, size, from.length / size));
    let n = from.length / size * units.each;
    checked(right, units.of, move |c, of, request| unsafe { ffi::comm_alltoall(c, from.at, to.at, n, of, request) })
}

pub(crate) fn alltoall_v<'a>(size: usize, from: Span, out: Layout<'a>, to: Span, back: Layout<'a>, units: Units) -> impl Call + 'a {
    let right = layout("alltoall_v", "input", size, out.counts, out.displacements, from.length)
        .and_then(|()| layout("alltoall_v", "output", size, back.counts, back.displacements, to.length));
    let (out, back) = (out.in_units(units, &right), back.in_units(units, &right));
    checked(right, units.of, move |c, of, request| unsafe {
        let (counts, displs) = (out.counts(), out.displacements());
        ffi::comm_alltoall_v(c, from.at, counts, displs, to.at, back.counts(), back.displacements(), of, request)
    })
}

pub(crate) fn send(buffer: Span, units: Units, peer: i32, tag: u32) -> impl Call {
    let n = buffer.length * units.each;
    as_call(move |c, request| unsafe { ffi::comm_send(c, buffer.at, n, units.of, peer, tag, request) })
}

pub(crate) fn receive(buffer: Span, units: Units, peer: Option<i32>, tag: Option<u32>, status: *mut ffi::comm_status) -> impl Call {
    let n = buffer.length * units.each;
    let (peer, tag) = (peer.unwrap_or(ffi::COMM_ANY_PEER), tag.unwrap_or(ffi::COMM_ANY_TAG));
    as_call(move |c, request| unsafe { ffi::comm_recv(c, buffer.at, n, units.of, peer, tag, status, request) })
}
