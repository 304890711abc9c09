//! Operators of the program's own, on ranks that are threads: every reduction, panics, and how long an operator lives.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use commstream::{commstream_sys as ffi, start, BucketOptions, Buckets, Communicator, Config, Element, ErrorKind, Event};
use commstream::{Layout, Op, Operator, Progress, Result};

mod world;
use world::{kind, text, with, with_progress, with_ranks};

/// A 2x2 matrix modulo 2^64: its product is associative and not commutative.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Matrix([[u64; 2]; 2]);

// SAFETY: it is four u64.
unsafe impl Element for Matrix {
    const TYPE: ffi::comm_type = ffi::COMM_U64;
    const COUNT: usize = 4;
}

impl Matrix {
    /// Of a rank and a place; no two of them commute.
    fn of(rank: i32, i: usize) -> Matrix {
        let (rank, i) = (rank as u64, i as u64);
        Matrix([[1 + rank, 2 + i], [3 * rank + i, 1]])
    }

    fn times(self, other: Matrix) -> Matrix {
        let (Matrix(a), Matrix(b)) = (self, other);
        let cell = |i: usize, j: usize| (0..2).fold(0u64, |sum, k| sum.wrapping_add(a[i][k].wrapping_mul(b[k][j])));
        Matrix([[cell(0, 0), cell(0, 1)], [cell(1, 0), cell(1, 1)]])
    }

    fn product(ranks: std::ops::Range<i32>, i: usize) -> Matrix {
        ranks.map(|rank| Matrix::of(rank, i)).reduce(Matrix::times).expect("a rank")
    }
}

fn products(ranks: std::ops::Range<i32>, n: usize) -> Vec<Matrix> {
    (0..n).map(|i| Matrix::product(ranks.clone(), i)).collect()
}

#[test]
fn every_reduction_takes_an_operator() {
    with_ranks(|c| {
        let (rank, size, n) = (c.rank(), c.size(), 300);
        let times = Operator::associative(c, "times", Matrix::times)?;
        let mine: Vec<Matrix> = (0..n).map(|i| Matrix::of(rank, i)).collect();
        let mut out = mine.clone();
        c.allreduce_in_place(&mut out, &times)?;
        assert_eq!(out, products(0..size, n));
        c.scan(&mine, &mut out, &times)?;
        assert_eq!(out, products(0..rank + 1, n));
        out.copy_from_slice(&mine);
        c.exscan(&mine, &mut out, &times)?;
        assert_eq!(out, if rank == 0 { mine.clone() } else { products(0..rank, n) });
        c.reduce(&mine, (rank == size - 1).then_some(&mut out[..]), &times, size - 1)?;
        assert!(rank != size - 1 || out == products(0..size, n));
        let mut all: Vec<Matrix> = (0..size as usize * 5).map(|i| Matrix::of(rank, i)).collect();
        let mut block = vec![mine[0]; 5];
        c.reduce_scatter(&all, &mut block, &times)?;
        let expected: Vec<Matrix> = (0..5).map(|i| Matrix::product(0..size, 5 * rank as usize + i)).collect();
        assert_eq!(block, expected);
        block.fill(mine[0]);
        c.reduce_scatter_v(&all, &mut block, &vec![5; size as usize], &times)?;
        assert_eq!(block, expected);
        c.reduce_scatter_in_place(&mut all, &times)?;
        assert_eq!(all[5 * rank as usize..][..5], expected[..]);
        Ok(())
    });
}

#[test]
fn elements_of_several_numbers_travel() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let mine = [Matrix::of(rank, 0), Matrix::of(rank, 1)];
        let mut all = vec![Matrix::of(99, 99); 2 * size as usize];
        c.allgather(&mine, &mut all)?;
        assert_eq!(all[2 * size as usize - 1], Matrix::of(size - 1, 1));
        let counts: Vec<usize> = (0..size as usize).map(|r| r + 1).collect();
        let (some, total) = (vec![[rank, -rank]; counts[rank as usize]], counts.iter().sum());
        let mut pairs = vec![[9, 9]; total];
        c.allgather_v(&some, &mut pairs, Layout::dense(&counts))?;
        assert_eq!((pairs[0], pairs[total - 1]), ([0, 0], [size - 1, 1 - size]));
        let mut got = [Matrix::of(99, 99); 3];
        let status = c.send_receive(&mine, (rank + 1) % size, &mut got, (rank + size - 1) % size, 0)?;
        assert_eq!((status.count::<Matrix>(), got[1]), (2, Matrix::of((rank + size - 1) % size, 1)));
        let mut sums = [[1u32, 2], [3, 4]];
        c.allreduce_in_place(&mut sums, Op::Sum)?; // number by number
        assert_eq!(sums[1], [3 * size as u32, 4 * size as u32]);
        Ok(())
    });
}

#[test]
fn slices_and_borrowed_functions() {
    fn longer(a: u32, b: u32) -> u32 {
        a.max(b)
    }
    with_ranks(|c| {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let xor = Operator::of_slices(c, "xor", true, move |left: &[u16], right: &mut [u16]| {
            assert_eq!(left.len(), right.len());
            counted.fetch_add(left.len(), Ordering::Relaxed);
            left.iter().zip(right).for_each(|(l, r)| *r ^= l);
        })?;
        let mut bits = vec![1u16 << c.rank(); 5000];
        c.allreduce_in_place(&mut bits, &xor)?;
        assert!(bits.iter().all(|b| *b == (1 << c.size()) - 1));
        let greatest = Operator::commutative(c, "greatest", longer)?;
        let mut one = [c.rank() as u32];
        c.duplicate()?.allreduce_in_place(&mut one, &greatest)?; // another communicator of the world
        assert_eq!((one[0], greatest.name()), (c.size() as u32 - 1, "greatest"));
        c.barrier()
    });
}

#[test]
fn an_operator_lives_as_long_as_what_uses_it() {
    /// Counts drops of what the function has.
    struct Gone(Arc<AtomicUsize>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn adder(c: &Communicator, gone: &Arc<AtomicUsize>) -> Result<Operator<i64>> {
        let gone = Gone(Arc::clone(gone));
        Operator::commutative(c, "adder", move |a: i64, b: i64| {
            assert_eq!(gone.0.load(Ordering::SeqCst), 0, "it runs after its end");
            a + b
        })
    }
    for progress in [Progress::Caller, Progress::Thread] {
        with_progress(3, progress, &|c: &Communicator| {
            let gone = Arc::new(AtomicUsize::new(0));
            let mut a = vec![1i64; 50_000];
            commstream::scope(|s| {
                let op = adder(c, &gone)?;
                let request = s.allreduce_in_place(c, &mut a, &op)?;
                drop(op);
                request.wait().map(drop)?;
                assert_eq!(gone.load(Ordering::SeqCst), 0); // the scope has it
                Ok(())
            })?;
            assert_eq!((a[49_999], gone.swap(0, Ordering::SeqCst)), (3, 1));
            let op = adder(c, &gone)?;
            let task = start(vec![2i64; 50_000], |s, b| s.allreduce_in_place(c, b, &op).map(drop))?;
            drop(op);
            assert_eq!(task.wait()?[7], 6);
            assert_eq!(gone.swap(0, Ordering::SeqCst), 1);
            let op = adder(c, &gone)?;
            let mut b = [4i64];
            commstream::scope(|s| s.group(c, |group| s.allreduce_in_place(group, &mut b, &op).map(drop))?.wait())?;
            assert_eq!(b, [12]);
            let mut plan = c.plan([0i64; 2], |s, recorder, b| s.allreduce_in_place(recorder, b, &op).map(drop))?;
            drop(op);
            for step in 0..5 {
                *plan.buffers()? = [step; 2];
                plan.start()?;
                assert_eq!(plan.buffers()?[1], 3 * step);
            }
            assert_eq!(gone.load(Ordering::SeqCst), 0);
            drop(plan);
            assert_eq!(gone.load(Ordering::SeqCst), 1);
            c.barrier()
        });
    }
}

#[test]
fn a_panic_fails_the_world() {
    for progress in [Progress::Caller, Progress::Thread] {
        with_progress(3, progress, &|c: &Communicator| {
            let picky = Operator::commutative(c, "picky", |a: i32, b: i32| if a + b == 7 { panic!("it is {}", a + b) } else { a + b })?;
            let mut fine = [1; 10];
            c.allreduce_in_place(&mut fine, &picky)?;
            assert_eq!(fine, [3; 10]);
            let mut bad = vec![[3, 4, 5][c.rank() as usize]; 10];
            let mut seen = None;
            for _ in 0..1000 {
                if let Err(error) = c.allreduce_in_place(&mut bad, &picky) {
                    seen = Some(error);
                    break;
                }
                std::thread::sleep(Duration::from_millis(1)); // another rank's operator has panicked, which is told soon
            }
            let error = seen.expect("an error on every rank");
            assert_eq!(error.kind, ErrorKind::Aborted, "{error}");
            assert!(error.text == "operator \"picky\" panicked: it is 7" || error.text.contains("abort"), "{error}");
            assert_eq!(kind(c.barrier()), ErrorKind::Aborted);
            Ok(())
        });
    }
}

#[test]
fn what_an_operator_must_not_do_is_refused() {
    with(2, &|c: &Communicator| {
        let copy = c.clone();
        let inner = Operator::commutative(c, "inner", move |a: u8, b: u8| {
            let error = copy.allreduce_in_place(&mut [1u8], Op::Sum).unwrap_err();
            a.max(b) + u8::from(error.kind == ErrorKind::State && error.text.contains("inside an operator"))
        })?;
        let mut one = [1];
        c.allreduce_in_place(&mut one, &inner)?;
        assert_eq!(one[0], 2);
        let copy = c.duplicate()?; // what is dropped in the operator has clones of it for a while
        let event = Event::new(&copy)?;
        let task = Mutex::new(Some(start([0u8; 1], |s, x| s.receive(&copy, x, Some(c.rank()), Some(5)).map(drop))?));
        let plan = Mutex::new(Some(copy.plan([0u8; 1], |s, recorder, x| s.broadcast(recorder, x, 0).map(drop))?));
        let buckets = Mutex::new(Some(Buckets::<f32>::new(&copy, &[4], BucketOptions::default())?));
        let all = Operator::of_slices(c, "all", true, move |_: &[u8], right| {
            let (mut task, mut plan, mut buckets) = (task.lock().unwrap(), plan.lock().unwrap(), buckets.lock().unwrap());
            let refused = [
                copy.progress().map(drop),
                copy.sync(),
                copy.sync_all(),
                copy.arm().map(drop),
                copy.descriptor().map(drop),
                copy.info().map(drop),
                copy.statistics().map(drop),
                copy.machine().map(drop),
                copy.peer(0).map(drop),
                copy.probe(None, None, Duration::ZERO).map(drop),
                copy.abort(1),
                copy.revoke(),
                copy.clone().close(Duration::ZERO),
                event.record(&copy),
                event.before(&copy),
                event.reset(),
                event.set(),
                event.is_reached().map(drop),
                event.wait(Duration::ZERO).map(drop),
                Event::new(&copy).map(drop),
                Operator::commutative(&copy, "other", |a: u8, _| a).map(drop),
                Config::new().backend("local").open_ranks(1).map(drop),
                buckets.as_mut().map_or(Ok(()), |buckets| buckets.gradient(0).map(drop)),
                buckets.as_mut().map_or(Ok(()), |buckets| buckets.ready(0)),
                buckets.as_mut().map_or(Ok(()), |buckets| buckets.wait()),
                plan.as_mut().map_or(Ok(()), |plan| plan.start()),
            ];
            let states = refused.iter().filter(|result| matches!(result, Err(error) if error.kind == ErrorKind::State)).count();
            assert!(!task.as_mut().map_or(false, |task| task.is_complete()));
            assert_eq!((copy.rank() >= 0, states), (true, refused.len()), "{refused:?}");
            drop((task.take(), plan.take(), buckets.take()));
            right[0] += 1;
        })?;
        let mut calls = [0];
        c.allreduce_in_place(&mut calls, &all)?;
        assert_eq!(calls[0], 1);
        drop(all);
        c.barrier()?;
        drop(inner); // and with it the communicator that it has
        let other = commstream::Config::new().backend("local").open_ranks(1)?.remove(0);
        let foreign = Operator::commutative(&other, "foreign", |a: u8, b: u8| a | b)?;
        assert!(text(c.allreduce_in_place(&mut one, &foreign)).contains("of another world"));
        assert_eq!(kind(Operator::commutative(c, "a\0b", |a: u8, _| a).map(drop)), ErrorKind::Argument);
        let wide = Operator::commutative(c, "wide", |a: [u8; 4097], _| a).map(drop);
        assert!(text(wide).contains("element_bytes=4097"));
        assert_eq!(kind(other.close(Duration::from_secs(1))), ErrorKind::State); // the operator has it
        Ok(())
    });
}

#[test]
fn ranks_whose_operators_differ_are_named() {
    with(2, &|c: &Communicator| {
        let op = Operator::commutative(c, ["min", "max"][c.rank() as usize], |a: i8, b: i8| a.min(b))?;
        assert_eq!(kind(c.duplicate()?.allreduce_in_place(&mut [1], &op)), ErrorKind::Mismatch);
        Ok(())
    });
}

#[test]
fn pre_multiplied_sums() {
    with(3, &|c: &Communicator| {
        let rank = c.rank();
        let op = Operator::premul_sum(c, (rank + 1) as i64)?;
        let mut out = [0; 2];
        c.allreduce(&[1, 2], &mut out, &op)?;
        assert_eq!((out, op.name()), ([6, 12], "premul_sum"));
        let sums = Operator::premul_sum(c, [1.5f32, 0.5, -1.0][rank as usize])?;
        let mut plan = c.plan([0f32; 1], |s, recorder, b| s.allreduce_in_place(recorder, b, &sums).map(drop))?;
        drop(sums);
        for step in 0..3 {
            *plan.buffers()? = [4.0 * step as f32];
            plan.start()?;
            assert_eq!(plan.buffers()?[0], 4.0 * step as f32);
        }
        assert!(text(Operator::premul_sum(c, [1.0f32; 2]).map(drop)).contains("2 numbers; expected one"));
        assert_eq!(kind(Operator::premul_sum(c, commstream::Bool(1)).map(drop)), ErrorKind::Unsupported);
        let other = Operator::premul_sum(c, 1u16)?;
        let copy = c.duplicate()?;
        let differs = if rank == 0 { copy.allreduce_in_place(&mut [1u16], Op::Sum) } else { copy.allreduce_in_place(&mut [1u16], &other) };
        assert_eq!(kind(differs), ErrorKind::Mismatch);
        Ok(())
    });
}
