//! Ranks that are threads: every call, blocking and in a scope, with what it must refuse.
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use commstream::{
    scope, start, BucketOptions, Buckets, Communicator, Complex, Config, Element, Error, ErrorKind, Event, Indexed, Layout, Op, Result,
};

mod world;
use world::{kind, text, with, with_ranks};

/// A vector that differs between ranks.
fn of(rank: i32, n: usize) -> Vec<i64> {
    (0..n as i64).map(|i| i + 100 * i64::from(rank)).collect()
}

fn sum(size: i32, n: usize) -> Vec<i64> {
    let below = i64::from(size * (size - 1) / 2);
    (0..n as i64).map(|i| i64::from(size) * i + 100 * below).collect()
}

#[test]
fn reductions() {
    with_ranks(|c| {
        let (rank, size, n) = (c.rank(), c.size(), 1000);
        let mine = of(rank, n);
        let mut out = vec![0; n];
        c.allreduce(&mine, &mut out, Op::Sum)?;
        assert_eq!(out, sum(size, n));
        out.copy_from_slice(&mine);
        c.allreduce_in_place(&mut out, Op::Max)?;
        assert_eq!(out, of(size - 1, n));
        let root = size - 1;
        c.reduce(&mine, Some(&mut out).filter(|_| rank == root).map(|out| &mut out[..]), Op::Sum, root)?;
        assert_eq!(out, if rank == root { sum(size, n) } else { of(size - 1, n) });
        c.scan(&mine, &mut out, Op::Sum)?;
        assert_eq!(out, sum(rank + 1, n));
        out.fill(-1);
        c.exscan(&mine, &mut out, Op::Sum)?;
        assert_eq!(out, if rank == 0 { vec![-1; n] } else { sum(rank, n) });
        Ok(())
    });
}

#[test]
fn blocks() {
    with_ranks(|c| {
        let (rank, size, n) = (c.rank(), c.size(), 5usize);
        let ranks = size as usize;
        let (mine, all): (Vec<i64>, Vec<i64>) = (of(rank, n), (0..size).flat_map(|r| of(r, n)).collect());
        let mut out = vec![0; n * ranks];
        c.allgather(&mine, &mut out)?;
        assert_eq!(out, all);
        out.fill(0);
        c.gather(&mine, (rank == 0).then_some(&mut out[..]), 0)?;
        assert_eq!(out, if rank == 0 { all.clone() } else { vec![0; n * ranks] });
        let mut block = vec![0; n];
        c.scatter((rank == 0).then_some(&all[..]), &mut block, 0)?;
        assert_eq!(block, mine);
        c.reduce_scatter(&all, &mut block, Op::Sum)?;
        assert_eq!(block, mine.iter().map(|x| x * i64::from(size)).collect::<Vec<_>>());
        let out_blocks: Vec<i32> = (0..size).flat_map(|to| [rank, to]).collect();
        let mut back = vec![0; 2 * ranks];
        c.alltoall(&out_blocks, &mut back)?;
        assert_eq!(back, (0..size).flat_map(|from| [from, rank]).collect::<Vec<_>>());
        block.copy_from_slice(&of(rank, n));
        c.broadcast(&mut block, size - 1)?;
        assert_eq!(block, of(size - 1, n));
        Ok(())
    });
}

#[test]
fn blocks_of_any_length() {
    with_ranks(|c| {
        let (rank, ranks) = (c.rank(), c.size() as usize);
        let counts: Vec<usize> = (0..ranks).map(|r| r + 1).collect();
        let total = counts.iter().sum();
        let mine = of(rank, counts[rank as usize]);
        let all: Vec<i64> = (0..ranks).flat_map(|r| of(r as i32, counts[r])).collect();
        let mut out = vec![0; total];
        c.allgather_v(&mine, &mut out, Layout::dense(&counts))?;
        assert_eq!(out, all);
        out.fill(0);
        c.gather_v(&mine, (rank == 0).then_some((&mut out[..], Layout::dense(&counts))), 0)?;
        assert_eq!(out, if rank == 0 { all.clone() } else { vec![0; total] });
        let mut block = vec![0; mine.len()];
        c.scatter_v((rank == 0).then_some((&all[..], Layout::dense(&counts))), &mut block, 0)?;
        assert_eq!(block, mine);
        c.reduce_scatter_v(&all, &mut block, &counts, Op::Max)?;
        assert_eq!(block, mine);
        // Blocks in reverse order, with a gap of one element before each.
        let displacements: Vec<usize> = (0..ranks).map(|r| 1 + (r + 1..ranks).map(|later| counts[later] + 1).sum::<usize>()).collect();
        let mut apart = vec![-1; total + ranks];
        c.allgather_v(&mine, &mut apart, Layout { counts: &counts, displacements: Some(&displacements) })?;
        for r in 0..ranks {
            assert_eq!(apart[displacements[r]..][..counts[r]], of(r as i32, counts[r])[..]);
            assert_eq!(apart[displacements[r] - 1], -1);
        }
        if ranks > 1 {
            let same = Layout { counts: &counts, displacements: Some(&vec![0; ranks]) };
            let overlap = c.allgather_v(&mine, &mut apart, same);
            assert!(text(overlap).contains("expected blocks that do not overlap"));
            commstream::scope(|s| s.scatter_v(c, (rank == 0).then_some((&all[..counts[ranks - 1]], same)), &mut block, 0).map(drop))?;
            assert_eq!(block, all[..mine.len()]); // what is only read may overlap
        }
        // Rank i sends j + 1 elements to rank j.
        let back = vec![rank as usize + 1; ranks];
        let mut into = vec![0; ranks * (rank as usize + 1)];
        c.alltoall_v(&vec![i64::from(rank); total], Layout::dense(&counts), &mut into, Layout::dense(&back))?;
        assert_eq!(into, (0..ranks as i64).flat_map(|from| vec![from; rank as usize + 1]).collect::<Vec<_>>());
        Ok(())
    });
}

/// As counts of a program.
#[test]
fn sizes() {
    with_ranks(|c| {
        let mut counts = [usize::MAX, c.rank() as usize];
        c.allreduce_in_place(&mut counts[1..], Op::Sum)?;
        c.allreduce_in_place(&mut counts[..1], Op::BitAnd)?;
        assert_eq!(counts, [usize::MAX, (0..c.size() as usize).sum()]);
        let mut least = [-(c.rank() as isize)];
        c.allreduce_in_place(&mut least, Op::Min)?;
        assert_eq!(least[0], 1 - c.size() as isize);
        Ok(())
    });
}

#[test]
fn types() {
    with_ranks(|c| {
        let size = c.size() as f32;
        let mut one = [Complex { re: 1.0f32, im: -2.0 }];
        c.allreduce_in_place(&mut one, Op::Sum)?;
        assert_eq!(one[0], Complex { re: size, im: -2.0 * size });
        let mut least = [Indexed { value: -f64::from(c.rank()), index: i64::from(c.rank()) }];
        c.allreduce_in_place(&mut least, Op::MinLoc)?;
        assert_eq!(least[0].index, i64::from(c.size() - 1));
        let mut bits = [1u8 << c.rank()];
        c.allreduce_in_place(&mut bits, Op::BitOr)?;
        assert_eq!(bits[0], ((1u16 << c.size()) - 1) as u8);
        let half = commstream::Half(0x3c00); // 1.0
        let mut sums = [half];
        c.allreduce(&[half], &mut sums, Op::Max)?;
        assert_eq!(sums[0], half);
        c.broadcast::<f64>(&mut [], 0)?; // nothing is a length too
        assert_eq!(kind(c.allreduce_in_place(&mut [1.0f32], Op::BitAnd)), ErrorKind::Unsupported);
        Ok(())
    });
}

/// A call that this crate refuses is refused in the library too, so the others do not wait for it.
#[test]
fn wrong_lengths_reach_the_others() {
    type Wrong = fn(&Communicator, bool) -> Result<()>;
    let calls: [Wrong; 6] = [
        |c, wrong| c.allreduce(&[1u8; 3], &mut vec![0; 3 - usize::from(wrong)], Op::Sum),
        |c, wrong| c.gather(&[1u8], Some(&mut vec![0; 3 - usize::from(wrong)]), 1),
        |c, wrong| c.reduce_scatter_v(&[1u8; 3], &mut [0], if wrong { &[1, 1] } else { &[1, 1, 1] }, Op::Sum),
        |c, wrong| c.allgather_v(&[1u8], &mut [0; 3], Layout::dense(if wrong { &[1] } else { &[1, 1, 1] })),
        |c, wrong| c.alltoall(&[1u8; 3], &mut vec![0; if wrong { 2 } else { 3 }]),
        |c, wrong| c.scan(&[1u8; 3], &mut vec![0; 3 - usize::from(wrong)], Op::Sum),
    ];
    for call in calls {
        with(3, &|c| {
            let rank = c.rank();
            let error = call(c, rank == 1).and_then(|()| c.barrier()).unwrap_err();
            if rank == 1 {
                assert_eq!(error.kind, ErrorKind::Argument, "{error}");
                assert!(error.text.contains("expected"), "{error}");
            } else {
                assert_eq!((error.kind, error.rank), (ErrorKind::Refused, Some(1)), "{error}");
            }
            Ok(())
        });
    }
}

#[test]
fn scopes_overlap_and_wait() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let (a, b) = (of(rank, 100), of(rank, 3000));
        let (mut x, mut y, mut z) = (vec![0; 100], vec![0; 3000], vec![7u8; 10]);
        let first = commstream::scope(|s| {
            let first = s.allreduce(c, &a, &mut x, Op::Sum)?;
            let _ = s.allreduce(c, &b, &mut y, Op::Sum)?; // the scope waits for it
            let third = s.broadcast(c, &mut z, 0)?;
            while !third.is_complete()? {}
            let x = first.wait()?;
            x[0] = -5;
            Ok(x[1])
        })?;
        assert_eq!((first, x[0], y), (sum(size, 100)[1], -5, sum(size, 3000)));
        Ok(())
    });
}

#[test]
fn a_scope_waits_when_its_body_fails() {
    with(2, &|c| {
        let mine = of(c.rank(), 1 << 16);
        let mut out = vec![0; 1 << 16];
        let failed: Result<()> = commstream::scope(|s| {
            let _ = s.allreduce(c, &mine, &mut out, Op::Sum)?;
            let () = s.send(c, &mine, 5, 0).map(drop)?; // there is no rank 5
            Ok(())
        });
        assert_eq!(kind(failed), ErrorKind::Argument);
        assert_eq!(out, sum(2, 1 << 16));
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut never = [0u8; 4];
            commstream::scope(|s| -> Result<()> {
                let _ = s.allreduce(c, &mine, &mut out, Op::Max)?;
                let _ = s.receive(c, &mut never, Some(1 - c.rank()), Some(9))?; // nobody sends it: it is cancelled
                panic!("on purpose");
            })
        }));
        assert!(panics.is_err());
        assert_eq!(out, of(1, 1 << 16));
        Ok(())
    });
}

#[test]
fn messages() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut got = [0i64; 8];
        let status = c.send_receive(&of(rank, 5), right, &mut got, left, 3)?;
        assert_eq!((status.peer, status.tag, status.count::<i64>()), (left, 3, 5));
        assert_eq!(status.count::<[u8; 0]>(), 0);
        assert_eq!(got[..5], of(left, 5)[..]);
        commstream::scope(|s| {
            let mut late = [0u16; 2];
            let _ = s.send(c, &[4u16, 5], right, 1).map(drop);
            let found = c.probe(None, None, Duration::from_secs(10))?.expect("the message of the left rank");
            assert_eq!((found.peer, found.tag, found.bytes), (left, 1, 4));
            assert_eq!(c.receive(&mut late, None, Some(1))?, found);
            assert_eq!(late, [4, 5]);
            Ok(())
        })?;
        assert_eq!(c.probe(Some(left), Some(77), Duration::ZERO)?, None);
        let mut never = [0u8; 4];
        let cancelled = commstream::scope(|s| {
            let request = s.receive(c, &mut never, Some(left), Some(8))?;
            assert!(!request.wait_for(Duration::from_millis(1))?);
            request.cancel()?;
            Ok(request.wait().map(drop))
        })?;
        assert_eq!(kind(cancelled), ErrorKind::Cancelled);
        if size > 1 {
            let mut short = [0u8; 4];
            let longer = commstream::scope(|s| {
                let request = s.receive(c, &mut short, Some(left), Some(5))?;
                let _ = s.send(c, &[1u8; 5], right, 5)?;
                Ok(request.wait().map(drop))
            })?;
            assert_eq!(kind(longer), ErrorKind::Truncated);
        }
        c.barrier()
    });
}

#[test]
fn communicators() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let twin = c.duplicate_with("twin", 1)?;
        assert_eq!((twin.rank(), twin.size(), twin.translate(rank, c)), (rank, size, Some(rank)));
        let half = c.split(Some(rank % 2), -rank)?.expect("every rank has a color");
        assert_eq!(half.size(), (size + 1 - rank % 2) / 2);
        assert_eq!(half.translate(0, c), Some((size - 1) - ((size - 1 - rank) % 2)));
        assert!(c.split(None, 0)?.is_none());
        assert_eq!(c.split_place(commstream::Place::Node)?.size(), size);
        if rank == 0 || rank == size - 1 {
            let ends: Vec<i32> = if size == 1 { vec![0] } else { vec![size - 1, 0] };
            let ends = c.subset(&ends, 4)?;
            let mut sum = [1];
            ends.allreduce_in_place(&mut sum, Op::Sum)?;
            assert_eq!(sum[0], ends.size());
        }
        assert_eq!(c.agree(!(1 << rank))?, !0 << size);
        assert_eq!(c.info()?.backend, "local");
        let copy = twin.clone();
        assert_eq!(kind(twin.close(Duration::from_secs(1))), ErrorKind::State);
        copy.close(Duration::from_secs(1))
    });
}

#[test]
fn revoked_then_shrunk() {
    with(3, &|c| {
        let work = c.duplicate()?;
        if work.rank() == 0 {
            work.revoke()?;
        }
        let mut one = [1];
        while work.allreduce_in_place(&mut one, Op::Min).map_err(|error| error.kind) != Err(ErrorKind::Revoked) {}
        let again = work.shrink()?;
        again.allreduce_in_place(&mut one, Op::Sum)?;
        assert_eq!(one[0], 3);
        Ok(())
    });
}

#[test]
fn events_and_queue_waits() {
    with_ranks(|c| {
        let other = c.duplicate()?;
        let gate = Event::new(c)?;
        gate.reset()?;
        assert!(!gate.is_reached()?);
        let (mut a, mut b) = ([c.rank()], [0]);
        commstream::scope(|s| {
            gate.before(c)?;
            let held = s.allreduce_in_place(c, &mut a, Op::Sum)?;
            held.before(&other)?;
            let behind = s.broadcast(&other, &mut b, 0)?;
            assert!(!behind.wait_for(Duration::from_millis(20))?);
            gate.set()?;
            behind.wait()?;
            assert!(held.is_complete()?);
            Ok(())
        })?;
        assert_eq!(a[0], (0..c.size()).sum::<i32>());
        gate.record(c)?;
        assert!(gate.wait(Duration::from_secs(10))?);
        Ok(())
    });
}

#[test]
fn tasks_own_their_buffers() {
    with_ranks(|c| {
        let mut task = start((of(c.rank(), 50), vec![0; 50]), |s, (input, output)| {
            let _ = s.allreduce(c, input, output, Op::Sum)?;
            Ok(())
        })?;
        while !task.is_complete() {}
        let (_, output) = task.wait()?;
        assert_eq!(output, sum(c.size(), 50));
        drop(start([0u8; 4], |s, buffer| s.receive(c, buffer, None, Some(6)).map(drop))?); // cancelled
        let refused = start(vec![0u8; 4], |s, buffer| s.broadcast(c, buffer, c.size()).map(drop));
        assert_eq!(kind(refused.map(drop)), ErrorKind::Argument);
        let mut short = start(vec![1u8; 2], |s, buffer| s.receive(c, buffer, Some(c.rank()), Some(8)).map(drop))?;
        c.send(&[2u8; 3], c.rank(), 8)?;
        assert_eq!(kind(short.finish()), ErrorKind::Truncated);
        let (done, ended) = std::sync::mpsc::channel();
        short.on_complete(move |result| done.send(result).unwrap())?;
        assert_eq!(kind(ended.recv().unwrap()), ErrorKind::Truncated);
        assert_eq!(kind(short.finish()), ErrorKind::Truncated);
        assert_eq!(short.wait()?.len(), 2);
        c.barrier()
    });
}

/// What `record` started on another communicator does not outlive the buffers.
#[test]
fn a_plan_whose_recording_panics_waits() {
    with_ranks(|c| {
        let other = c.duplicate()?;
        let to = (c.rank() + 1) % c.size();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = c.plan(vec![0u64; 512], |s, _recorder, buffer| {
                let _ = s.receive(&other, buffer, None, None)?;
                panic!("the program's own")
            });
        }));
        assert!(panicked.is_err());
        c.barrier()?; // all receives that were under way are cancelled now: these get the messages
        let mut got = vec![0u64; 512];
        let sent = [42u64; 512];
        let count = scope(|s| {
            let receive = s.receive(&other, &mut got, None, None)?;
            let _ = s.send(&other, &sent, to, 0)?;
            Ok(receive.wait()?.1.count::<u64>())
        })?;
        assert_eq!(count, 512);
        assert_eq!(got, [42; 512]);
        let grouped = catch_unwind(AssertUnwindSafe(|| scope(|s| s.group(c, |_recorder| panic!("the program's own")).map(drop))));
        assert!(grouped.is_err());
        c.barrier()
    });
}

#[test]
fn plans_show_slices() {
    with_ranks(|c| {
        let mut plan = c.plan((vec![0i64; 600], [0.0f32; 2], 0u8), |s, recorder, (numbers, _pair, _flag)| {
            let _ = s.allreduce_in_place(recorder, numbers, Op::Sum)?;
            Ok(())
        })?;
        for step in 1..=3 {
            let (numbers, pair, flag) = plan.buffers()?;
            numbers.fill(step);
            pair[1] = 0.5;
            *flag = 7;
            plan.start()?;
            assert_eq!(plan.buffers()?.0[599], step * i64::from(c.size()));
        }
        let (numbers, pair, flag) = plan.into_buffers()?;
        assert_eq!((numbers.len(), pair[1], flag), (600, 0.5, 7));
        c.barrier()
    });
}

#[test]
fn gradients_that_cannot_be() {
    #[derive(Clone, Copy)]
    #[repr(C, align(128))]
    struct Line([f32; 32]);
    unsafe impl Element for Line {
        const TYPE: commstream::commstream_sys::comm_type = f32::TYPE;
        const COUNT: usize = 32;
    }
    with_ranks(|c| {
        let long = Buckets::<[f32; 4]>::new(c, &[(1usize << 62) + 1], Default::default());
        assert_eq!(kind(long.map(drop)), ErrorKind::Argument);
        let aligned = Buckets::<Line>::new(c, &[1], Default::default());
        assert_eq!(kind(aligned.map(drop)), ErrorKind::Argument);
        c.barrier()
    });
}

#[test]
fn plans_run_again_and_again() {
    with_ranks(|c| {
        let (right, left) = ((c.rank() + 1) % c.size(), (c.rank() + c.size() - 1) % c.size());
        let mut plan = c.plan(([0i32; 4], [0i32; 4], [0i32; 1]), |s, recorder, (input, output, message)| {
            let request = s.allreduce(recorder, &input[..], output, Op::Sum)?;
            assert_eq!(kind(request.wait().map(drop)), ErrorKind::State);
            let _ = s.send(recorder, &input[..1], right, 0)?;
            let _ = s.receive(recorder, message, Some(left), Some(0))?;
            Ok(())
        })?;
        for step in 1..=20 {
            *plan.buffers()?.0 = [step * (c.rank() + 1); 4];
            plan.start()?;
            while !plan.is_complete() {}
            let (_, output, message) = plan.buffers()?;
            assert_eq!(output[3], step * c.size() * (c.size() + 1) / 2);
            assert_eq!(message[0], step * (left + 1));
        }
        assert_eq!(plan.into_buffers()?.0[0], 20 * (c.rank() + 1));
        let refused = c.plan(vec![0u8; 2], |s, recorder, buffer| {
            let _ = s.broadcast(recorder, buffer, 0)?;
            Err(Error::from(std::io::Error::new(std::io::ErrorKind::Other, "the program's own")))
        });
        assert!(text(refused.map(drop)).contains("the program's own"));
        c.barrier()
    });
}

#[test]
fn groups_are_one_batch() {
    with_ranks(|c| {
        let (mut a, mut b) = ([c.rank()], [1.5f64; 3]);
        commstream::scope(|s| {
            let group = s.group(c, |recorder| {
                let _ = s.allreduce_in_place(recorder, &mut a, Op::Sum)?;
                let _ = s.allreduce_in_place(recorder, &mut b, Op::Sum)?;
                Ok(())
            })?;
            group.wait()
        })?;
        assert_eq!((a[0], b[2]), ((0..c.size()).sum::<i32>(), 1.5 * f64::from(c.size())));
        let mut never = [0u8; 1];
        let refused: Result<()> = commstream::scope(|s| {
            let _ = s.group(c, |recorder| {
                let _ = s.broadcast(recorder, &mut never, 0)?;
                Err(Error::from(std::io::Error::new(std::io::ErrorKind::Other, "the program's own")))
            })?;
            Ok(())
        });
        assert!(text(refused).contains("the program's own"));
        c.barrier()
    });
}

#[test]
fn a_recorder_takes_calls_of_its_own_scope() {
    with(1, &|c| {
        let mut outer = [1u8];
        let refused = commstream::scope(|s| {
            let mut outer = Some(&mut outer[..]);
            c.plan((), |_, recorder, ()| s.broadcast(recorder, outer.take().expect("once"), 0).map(drop))
        });
        assert_eq!(kind(refused.map(drop)), ErrorKind::State);
        Ok(())
    });
}

#[test]
fn windows() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let window = c.window(64, 1)?;
        let right = (rank + 1) % size;
        window.put(&[rank; 2], right, 8)?;
        window.fence()?;
        let mut got = [0i32; 2];
        window.get(&mut got, rank, 8)?;
        assert_eq!(got, [(rank + size - 1) % size; 2]);
        window.accumulate(&[1i64], Op::Sum, 0, 32)?;
        window.flush(None)?;
        window.fence()?;
        let mut old = [0i64];
        window.fetch_op(&[0i64], &mut old, Op::NoOp, 0, 32)?;
        assert_eq!(old[0], i64::from(size));
        c.barrier()?;
        if rank == size - 1 {
            assert_eq!(window.compare_swap(size as i64, -1, 0, 32)?, i64::from(size));
            assert_eq!(window.compare_swap(size as i64, -2, 0, 32)?, -1);
        }
        window.signal(right, 0, 1)?;
        window.wait_signal(0, 1)?;
        let (at, bytes) = window.pointer(rank)?;
        assert!(!at.is_null() && bytes == 64);
        let mut early = [0i32; 2];
        commstream::scope(|s| {
            let read = s.get(&window, &mut early, right, 8)?;
            let _ = s.flush(&window, Some(right))?;
            assert_eq!(read.wait()?[0], rank);
            Ok(())
        })?;
        assert_eq!(kind(window.put(&[0u8; 65], right, 0)), ErrorKind::Argument);
        window.free()
    });
}

#[test]
fn wrong_lengths_are_named() {
    with(1, &|c| {
        let (a, mut b) = ([0u8; 4], [0u8; 3]);
        assert_eq!(text(c.allreduce(&a, &mut b, Op::Sum)), "allreduce: output has 3 elements; expected as many as input, 4");
        assert_eq!(text(c.allgather(&a, &mut b)), "allgather: output has 3 elements; expected 1 blocks of 4");
        assert_eq!(text(c.gather(&a, None, 0)), "gather: output is None on rank 0; expected a buffer on the root");
        let refused = text(c.allgather_v(&a, &mut b, Layout::dense(&[4])));
        assert_eq!(refused, "allgather_v: output's block of rank 0 is 4 elements at 0; the buffer has 3");
        let refused = text(c.allgather_v(&a, &mut [0; 9], Layout { counts: &[4], displacements: Some(&[usize::MAX]) }));
        assert!(refused.contains("output's block of rank 0 is 4 elements at 18446744073709551615"));
        assert_eq!(
            text(c.allgather_v(&a[..3], &mut [0; 9], Layout::dense(&[4]))),
            "allgather_v: input has 3 elements; expected counts[0], 4"
        );
        assert!(text(c.broadcast(&mut b, 3)).contains("root"));
        Ok(())
    });
}

#[test]
fn ranks_that_differ_are_named() {
    with(2, &|c| {
        let work = c.duplicate()?;
        let mut buffer = vec![0u8; 4 + c.rank() as usize];
        let error = work.allreduce_in_place(&mut buffer, Op::Max).unwrap_err();
        assert_eq!((error.kind, error.sequence), (ErrorKind::Mismatch, Some(1)));
        assert!(error.to_string().starts_with("Mismatch: "), "{error}");
        assert!(error.text.contains("allreduce n=4") && error.text.contains("allreduce n=5"), "{error}");
        Ok(())
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    assert_eq!(kind(Config::new().backend("pigeon").open().map(drop)), ErrorKind::Config);
    assert_eq!(kind(Config::new().option("windo", "4").open().map(drop)), ErrorKind::Config);
    assert_eq!(kind(Config::new().backend("lo\0cal").open().map(drop)), ErrorKind::Argument);
    assert_eq!(kind(Config::new().backend("local").open_ranks(0).map(drop)), ErrorKind::Argument);
}

#[test]
fn a_descriptor_wakes_an_event_loop() {
    static LOOPS: AtomicUsize = AtomicUsize::new(0);
    with(2, &|c| {
        let fd = c.descriptor()?;
        assert!(fd >= 0);
        let mut task = start([c.rank()], |s, sum| s.allreduce_in_place(c, sum, Op::Sum).map(drop))?;
        while !task.is_complete() {
            while c.progress()? {}
            LOOPS.fetch_add(usize::from(c.arm()?), Ordering::Relaxed);
        }
        assert_eq!(task.wait()?, [1]);
        Ok(())
    });
}

#[test]
fn buckets_reduce_gradients() {
    with_ranks(|c| {
        let lengths = [700, 0, 30, 5000];
        let options = BucketOptions { bytes: 4096, first_bytes: 1024, op: Op::Sum };
        let mut buckets = Buckets::<f32>::new(c, &lengths, options)?;
        let (rank, size) = (c.rank() as f32, c.size() as f32);
        let ranks: f32 = (0..c.size()).map(|rank| rank as f32).sum();
        for step in 1..=5 {
            for i in (0..lengths.len()).rev().filter(|i| *i != 2) {
                assert_eq!(buckets.gradient(i)?.len(), lengths[i]);
                buckets.gradient(i)?.fill(rank + step as f32);
                buckets.ready(i)?;
                assert_eq!(kind(buckets.gradient(i).map(drop)), ErrorKind::State);
                assert_eq!(kind(buckets.ready(i)), ErrorKind::State);
            }
            buckets.wait()?;
            assert_eq!(buckets.gradient(0)?[699], ranks + size * step as f32);
            assert_eq!(buckets.gradient(3)?[0], ranks + size * step as f32);
            assert!(buckets.gradient(2)?.iter().all(|x| *x == 0.0)); // it was not reported
        }
        buckets.hold(true)?;
        buckets.gradient(0)?.fill(2.0);
        buckets.ready(0)?;
        buckets.wait()?;
        assert_eq!(buckets.gradient(0)?[0], 2.0); // nothing was reduced
        buckets.hold(false)?;
        buckets.wait()?;
        assert_eq!(buckets.gradient(0)?[0], 2.0 * size); // and it counts in the next step
        assert_eq!(kind(buckets.gradient(4).map(drop)), ErrorKind::Argument);
        Ok(())
    });
}
