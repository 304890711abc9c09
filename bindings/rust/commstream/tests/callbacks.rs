//! Callbacks of requests, tasks and plans, on ranks that are threads: when they run, and what may be done inside.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use commstream::{start, BucketOptions, Buckets, Callbacks, Communicator, Config, ErrorKind, Op, Operator, Plan, Progress, Result};

mod world;
use world::{kind, run, with, with_progress, with_ranks};

/// Makes progress until something is received.
fn received<T>(c: &Communicator, from: &Receiver<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        c.progress().unwrap();
        match from.recv_timeout(Duration::from_millis(1)) {
            Ok(value) => return value,
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(error) => panic!("no callback: {error}"),
        }
    }
}

#[test]
fn each_runs_once() {
    for progress in [Progress::Caller, Progress::Thread] {
        with_progress(3, progress, &|c: &Communicator| {
            let (done, ended) = channel();
            let mut a = [c.rank()];
            let mut never = [0u8];
            commstream::scope(|s| {
                let sum = s.allreduce_in_place(c, &mut a, Op::Sum)?;
                for i in 0..3 {
                    let done = done.clone();
                    sum.on_complete(move |result| done.send((i, result)).unwrap())?;
                }
                let receive = s.receive(c, &mut never, None, Some(1))?;
                let last = done.clone();
                receive.on_complete(move |result| last.send((9, result)).unwrap())?;
                assert_eq!(sum.wait()?[0], 3);
                receive.cancel()?;
                assert_eq!(kind(receive.wait().map(drop)), ErrorKind::Cancelled);
                Ok(())
            })?;
            drop(done);
            let mut all: Vec<_> = (0..4).map(|_| received(c, &ended)).collect();
            all.sort_by_key(|(i, _)| *i);
            assert!(all[..3].iter().enumerate().all(|(at, (i, result))| at == *i && result.is_ok()), "{all:?}");
            assert_eq!((all[3].0, all[3].1.as_ref().unwrap_err().kind), (9, ErrorKind::Cancelled));
            assert!(ended.recv().is_err()); // all are gone
            c.barrier()
        });
    }
}

#[test]
fn of_tasks_and_plans() {
    with_ranks(|c| {
        let (done, ended) = channel();
        let mut task = start(([c.rank(); 2], [1u8; 3]), |s, (a, b)| {
            let _ = s.allreduce_in_place(c, a, Op::Max)?;
            let _ = s.broadcast(c, b, 0)?;
            Ok(())
        })?;
        let of_task = done.clone();
        task.on_complete(move |result| of_task.send(result).unwrap())?;
        while !task.is_complete() {}
        received(c, &ended)?;
        let again = done.clone();
        task.on_complete(move |result| again.send(result).unwrap())?;
        ended.try_recv().expect("everything has ended: it ran at once")?;
        assert_eq!(task.wait()?.0, [c.size() - 1; 2]);
        let failing = start([0u8; 1], |s, buffer| s.receive(c, buffer, None, Some(3)).map(drop))?;
        let of_task = done.clone();
        failing.on_complete(move |result| of_task.send(result).unwrap())?;
        drop(failing); // cancels it
        assert_eq!(kind(received(c, &ended)), ErrorKind::Cancelled);
        let recorded = c.plan([0u8; 1], |s, recorder, buffer| {
            let request = s.broadcast(recorder, buffer, 0)?;
            assert_eq!(kind(request.on_complete(drop)), ErrorKind::State);
            Ok(())
        });
        drop(recorded?);
        c.barrier()
    });
}

/// Starts a plan, and again whenever it has ended.
fn keep_going(plan: Arc<Mutex<Plan<[i64; 4]>>>, left: usize, done: std::sync::mpsc::Sender<i64>) -> Result<()> {
    let copy = Arc::clone(&plan);
    let mut own = plan.lock().unwrap();
    own.start()?;
    own.on_complete(move |result| {
        result.unwrap();
        if left == 0 {
            done.send(copy.lock().unwrap().buffers().unwrap()[3]).unwrap();
        } else {
            keep_going(copy, left - 1, done).unwrap();
        }
    })
}

#[test]
fn a_callback_starts_what_comes_next() {
    for progress in [Progress::Caller, Progress::Thread] {
        with_progress(2, progress, &|c: &Communicator| {
            let (done, ended) = channel();
            let plan = c.plan([1i64; 4], |s, recorder, a| s.allreduce_in_place(recorder, a, Op::Sum).map(drop))?;
            keep_going(Arc::new(Mutex::new(plan)), 20, done)?;
            assert_eq!(received(c, &ended), 1 << 21);
            let (done, ended) = channel();
            let copy = c.clone();
            let first = start([5u8; 1], |s, a| s.broadcast(c, a, 0).map(drop))?;
            first.on_complete(move |_| {
                let next = start(vec![1u64; 40_000], |s, b| s.allreduce_in_place(&copy, b, Op::Sum).map(drop));
                done.send(next).unwrap();
            })?;
            first.wait()?;
            assert_eq!(received(c, &ended)?.wait()?[39_999], 2);
            c.barrier()
        });
    }
}

#[test]
fn nothing_waits_inside() {
    with(2, &|world: &Communicator| {
        let (done, ended) = channel();
        let c = &world.duplicate()?; // another thread closes it, perhaps, when `held` has ended
        let copy = c.clone();
        let held = start([0u8; 1], |s, a| s.receive(c, a, Some(1 - c.rank()), Some(4)).map(drop))?;
        let task = start([0u8; 1], |s, a| s.broadcast(c, a, 0).map(drop))?;
        let held = Mutex::new(held);
        let mut buckets = Buckets::<f32>::new(c, &[3], BucketOptions::default())?;
        task.on_complete(move |_| {
            let mut buffer = [7u8; 2];
            let mut kinds = vec![
                kind(copy.broadcast(&mut buffer, 0)),
                kind(copy.barrier()),
                kind(copy.duplicate().map(drop)),
                kind(copy.sync()),
                kind(commstream::scope(|_| -> Result<()> { panic!("it does not run") })),
                kind(copy.plan((), |_, _, ()| Ok(())).map(drop)),
                kind(copy.window(8, 0).map(drop)),
                kind(start([0u8; 1], |s, b| s.receive(&copy, b, None, Some(5))?.wait().map(drop)).map(drop)),
                kind(held.into_inner().unwrap().wait()),
            ];
            kinds.push(kind(buckets.wait()));
            kinds.dedup();
            buckets.gradient(0).unwrap()[2] = 1.0; // they have not failed
            drop(buckets);
            let twice = Operator::commutative(&copy, "twice", |a: u8, b: u8| a.max(b)).unwrap();
            drop(twice);
            done.send((kinds, buffer)).unwrap();
        })?;
        assert_eq!(received(c, &ended), (vec![ErrorKind::State], [7; 2]));
        drop(task);
        c.barrier()
    });
}

/// What is dropped inside a callback and would wait is closed by another thread.
#[test]
fn the_last_clone_is_dropped_inside() {
    let worlds = Config::new().backend("local").open_ranks(2).unwrap();
    std::thread::scope(|threads| {
        for world in worlds {
            threads.spawn(move || {
                let (done, ended) = channel();
                let own = world.duplicate().unwrap();
                let going = start([1u8; 8], |s, a| s.receive(&own, a, None, Some(0)).map(drop)).unwrap();
                let task = start([1u8; 8], |s, a| s.broadcast(&own, a, 0).map(drop)).unwrap();
                task.on_complete(move |_| {
                    drop(going); // leaks its buffer and is cancelled
                    drop(own);
                    done.send(()).unwrap();
                })
                .unwrap();
                drop(task);
                received(&world, &ended);
                world.barrier().unwrap();
                world.close(Duration::from_secs(10)).unwrap();
            });
        }
    });
}

#[test]
fn a_panic_goes_no_further() {
    with(2, &|c: &Communicator| {
        let (done, ended) = channel();
        let mut a = [c.rank()];
        commstream::scope(|s| {
            let request = s.allreduce_in_place(c, &mut a, Op::Sum)?;
            request.on_complete(|_| panic!("on purpose"))?;
            request.on_complete(move |result| done.send(result).unwrap())
        })?;
        received(c, &ended)?;
        assert_eq!(a, [1]);
        c.barrier()
    });
}

#[test]
fn only_in_progress() {
    let config = Config::new().backend("local").callbacks(Callbacks::InProgress).progress(Progress::Thread);
    // One rank: progress of another rank of this process would run them too.
    run(config.open_ranks(1).unwrap(), &|c: &Communicator| {
        let calls = Arc::new(AtomicUsize::new(0));
        for at_close in [false, true] {
            let counted = Arc::clone(&calls);
            let task = start([0u8; 4], |s, a| s.broadcast(c, a, 0).map(drop))?;
            task.on_complete(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            })?;
            task.wait()?;
            c.barrier()?;
            assert_eq!(calls.load(Ordering::SeqCst), 0);
            while !at_close && calls.load(Ordering::SeqCst) == 0 {
                c.progress()?;
            }
            assert_eq!(calls.swap(0, Ordering::SeqCst), usize::from(!at_close));
        }
        Ok(())
    });
}
