//! The collective and message calls: lengths are checked here, once for the blocking form and the one of a scope.
use commstream_sys as ffi;

use crate::handle::{as_call, input, output, Call};
use crate::{Element, Error, ErrorKind, Op, Result};

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

/// Counts and displacements of a v form, which must lie within a buffer and not overlap where they are written.
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
    Ok(())
}

fn pointer(displs: Option<&[usize]>) -> *const usize {
    displs.map_or(std::ptr::null(), <[usize]>::as_ptr)
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
}

pub(crate) fn barrier() -> impl Call {
    as_call(move |c, request| unsafe { ffi::comm_barrier(c, request) })
}

pub(crate) fn broadcast<T: Element>(buffer: &mut [T], root: i32) -> impl Call {
    let (at, n) = (output(buffer), buffer.len());
    as_call(move |c, request| unsafe { ffi::comm_broadcast(c, at, n, T::TYPE, root, request) })
}

pub(crate) fn allreduce<T: Element>(from: &[T], to: &mut [T], op: Op) -> Result<impl Call> {
    same_length("allreduce", from.len(), to.len())?;
    let (from, to, n) = (input(from), output(to), to.len());
    Ok(as_call(move |c, request| unsafe { ffi::comm_allreduce(c, from, to, n, T::TYPE, op as u32, request) }))
}

pub(crate) fn allreduce_in_place<T: Element>(buffer: &mut [T], op: Op) -> impl Call {
    let (at, n) = (output(buffer), buffer.len());
    as_call(move |c, request| unsafe { ffi::comm_allreduce(c, ffi::COMM_IN_PLACE, at, n, T::TYPE, op as u32, request) })
}

/// `to`: the output, on the root; other ranks pass none.
pub(crate) fn reduce<T: Element>(rank: i32, from: &[T], to: Option<&mut [T]>, op: Op, root: i32) -> Result<impl Call> {
    let (at, n) = (on_root("reduce", "output", rank, root, to)?, from.len());
    if let Some((_, length)) = at {
        same_length("reduce", n, length)?;
    }
    let (from, to) = (input(from), at.map_or(std::ptr::null_mut(), |(at, _)| at));
    Ok(as_call(move |c, request| unsafe { ffi::comm_reduce(c, from, to, n, T::TYPE, op as u32, root, request) }))
}

/// The buffer that only the root passes.
fn on_root<T>(
    call: &str,
    what: &str,
    rank: i32,
    root: i32,
    buffer: Option<&mut [T]>,
) -> Result<Option<(*mut std::os::raw::c_void, usize)>> {
    expect(buffer.is_some() || rank != root, || format!("{call}: {what} is None on rank {rank}; expected a buffer on the root"))?;
    Ok(buffer.filter(|_| rank == root).map(|buffer| (output(buffer), buffer.len())))
}

pub(crate) fn scan<T: Element>(from: &[T], to: &mut [T], op: Op, exclusive: bool) -> Result<impl Call> {
    same_length(if exclusive { "exscan" } else { "scan" }, from.len(), to.len())?;
    let (from, to, n) = (input(from), output(to), to.len());
    Ok(as_call(move |c, request| unsafe {
        if exclusive {
            ffi::comm_exscan(c, from, to, n, T::TYPE, op as u32, request)
        } else {
            ffi::comm_scan(c, from, to, n, T::TYPE, op as u32, request)
        }
    }))
}

pub(crate) fn reduce_scatter<T: Element>(size: usize, from: &[T], to: &mut [T], op: Op) -> Result<impl Call> {
    blocks("reduce_scatter", "input", from.len(), size, to.len())?;
    let (from, to, n) = (input(from), output(to), to.len());
    Ok(as_call(move |c, request| unsafe { ffi::comm_reduce_scatter(c, from, to, n, T::TYPE, op as u32, request) }))
}

pub(crate) fn reduce_scatter_v<T: Element>(
    rank: i32,
    size: usize,
    from: &[T],
    to: &mut [T],
    counts: &[usize],
    op: Op,
) -> Result<impl Call> {
    layout("reduce_scatter_v", "input", size, counts, None, from.len())?;
    as_counted("reduce_scatter_v", "output", rank, counts, to.len())?;
    let (from, to, counts) = (input(from), output(to), counts.as_ptr());
    Ok(as_call(move |c, request| unsafe { ffi::comm_reduce_scatter_v(c, from, to, counts, T::TYPE, op as u32, request) }))
}

pub(crate) fn gather<T: Element>(rank: i32, size: usize, from: &[T], to: Option<&mut [T]>, root: i32) -> Result<impl Call> {
    let (at, n) = (on_root("gather", "output", rank, root, to)?, from.len());
    if let Some((_, length)) = at {
        blocks("gather", "output", length, size, n)?;
    }
    let (from, to) = (input(from), at.map_or(std::ptr::null_mut(), |(at, _)| at));
    Ok(as_call(move |c, request| unsafe { ffi::comm_gather(c, from, to, n, T::TYPE, root, request) }))
}

/// `to`: on the root, the output and where each rank's block goes.
pub(crate) fn gather_v<T: Element>(rank: i32, size: usize, from: &[T], to: Option<(&mut [T], Layout<'_>)>, root: i32) -> Result<impl Call> {
    let (buffer, place) = to.map_or((None, None), |(buffer, place)| (Some(buffer), Some(place)));
    let (at, n) = (on_root("gather_v", "output", rank, root, buffer)?, from.len());
    let (mut counts, mut displs) = (std::ptr::null(), std::ptr::null());
    if let (Some((_, length)), Some(place)) = (at, place) {
        layout("gather_v", "output", size, place.counts, place.displacements, length)?;
        (counts, displs) = (place.counts.as_ptr(), pointer(place.displacements));
    }
    let (from, to) = (input(from), at.map_or(std::ptr::null_mut(), |(at, _)| at));
    Ok(as_call(move |c, request| unsafe { ffi::comm_gather_v(c, from, n, to, counts, displs, T::TYPE, root, request) }))
}

/// `from`: the input, on the root; other ranks pass none.
pub(crate) fn scatter<T: Element>(rank: i32, size: usize, from: Option<&[T]>, to: &mut [T], root: i32) -> Result<impl Call> {
    expect(from.is_some() || rank != root, || format!("scatter: input is None on rank {rank}; expected a buffer on the root"))?;
    let from = from.filter(|_| rank == root);
    if let Some(from) = from {
        blocks("scatter", "input", from.len(), size, to.len())?;
    }
    let (from, to, n) = (from.map_or(std::ptr::null(), input), output(to), to.len());
    Ok(as_call(move |c, request| unsafe { ffi::comm_scatter(c, from, to, n, T::TYPE, root, request) }))
}

/// `from`: on the root, the input and where each rank's block is.
pub(crate) fn scatter_v<T: Element>(
    rank: i32,
    size: usize,
    from: Option<(&[T], Layout<'_>)>,
    to: &mut [T],
    root: i32,
) -> Result<impl Call> {
    expect(from.is_some() || rank != root, || format!("scatter_v: input is None on rank {rank}; expected a buffer on the root"))?;
    let (mut at, mut counts, mut displs) = (std::ptr::null(), std::ptr::null(), std::ptr::null());
    if let Some((buffer, place)) = from.filter(|_| rank == root) {
        layout("scatter_v", "input", size, place.counts, place.displacements, buffer.len())?;
        (at, counts, displs) = (input(buffer), place.counts.as_ptr(), pointer(place.displacements));
    }
    let (to, n) = (output(to), to.len());
    Ok(as_call(move |c, request| unsafe { ffi::comm_scatter_v(c, at, counts, displs, to, n, T::TYPE, root, request) }))
}

pub(crate) fn allgather<T: Element>(size: usize, from: &[T], to: &mut [T]) -> Result<impl Call> {
    blocks("allgather", "output", to.len(), size, from.len())?;
    let (from, to, n) = (input(from), output(to), from.len());
    Ok(as_call(move |c, request| unsafe { ffi::comm_allgather(c, from, to, n, T::TYPE, request) }))
}

pub(crate) fn allgather_v<T: Element>(rank: i32, size: usize, from: &[T], to: &mut [T], place: Layout<'_>) -> Result<impl Call> {
    layout("allgather_v", "output", size, place.counts, place.displacements, to.len())?;
    as_counted("allgather_v", "input", rank, place.counts, from.len())?;
    let (from, to, counts, displs) = (input(from), output(to), place.counts.as_ptr(), pointer(place.displacements));
    Ok(as_call(move |c, request| unsafe { ffi::comm_allgather_v(c, from, to, counts, displs, T::TYPE, request) }))
}

pub(crate) fn alltoall<T: Element>(size: usize, from: &[T], to: &mut [T]) -> Result<impl Call> {
    same_length("alltoall", from.len(), to.len())?;
    blocks("alltoall", "input", from.len(), size, from.len() / size)?;
    let (n, from, to) = (from.len() / size, input(from), output(to));
    Ok(as_call(move |c, request| unsafe { ffi::comm_alltoall(c, from, to, n, T::TYPE, request) }))
}

pub(crate) fn alltoall_v<T: Element>(size: usize, from: &[T], out: Layout<'_>, to: &mut [T], back: Layout<'_>) -> Result<impl Call> {
    layout("alltoall_v", "input", size, out.counts, out.displacements, from.len())?;
    layout("alltoall_v", "output", size, back.counts, back.displacements, to.len())?;
    let (from, to) = (input(from), output(to));
    let (out_counts, out_displs) = (out.counts.as_ptr(), pointer(out.displacements));
    let (back_counts, back_displs) = (back.counts.as_ptr(), pointer(back.displacements));
    Ok(as_call(move |c, request| unsafe {
        ffi::comm_alltoall_v(c, from, out_counts, out_displs, to, back_counts, back_displs, T::TYPE, request)
    }))
}

pub(crate) fn send<T: Element>(buffer: &[T], peer: i32, tag: u32) -> impl Call {
    let (at, n) = (input(buffer), buffer.len());
    as_call(move |c, request| unsafe { ffi::comm_send(c, at, n, T::TYPE, peer, tag, request) })
}

pub(crate) fn receive<T: Element>(buffer: &mut [T], peer: Option<i32>, tag: Option<u32>, status: *mut ffi::comm_status) -> impl Call {
    let (at, n) = (output(buffer), buffer.len());
    let (peer, tag) = (peer.unwrap_or(ffi::COMM_ANY_PEER), tag.unwrap_or(ffi::COMM_ANY_TAG));
    as_call(move |c, request| unsafe { ffi::comm_recv(c, at, n, T::TYPE, peer, tag, status, request) })
}
