//! Ranks that are processes: comm-run starts this file's own tests, which then find themselves to be a rank.
use std::process::Command;
use std::sync::mpsc::{channel, TryRecvError};
use std::time::Instant;

use commstream::{Communicator, Config, ErrorKind, Op, Operator, Progress, Result};

/// Runs test `name` of this file on ranks, unless it already is one of them. COMMSTREAM_RUN names comm-run if it is not in PATH.
fn on_ranks(name: &str, ranks: u32, backend: &str, body: fn() -> Result<()>) {
    if std::env::var("COMMSTREAM_TEST_RANK").as_deref() == Ok(name) {
        return body().unwrap_or_else(|error| panic!("{error}"));
    }
    if std::env::var("COMMSTREAM_TEST_RANK").is_ok() {
        return;
    }
    let run = std::env::var("COMMSTREAM_RUN").unwrap_or_else(|_| "comm-run".into());
    let output = Command::new(&run)
        .args(["-n", &ranks.to_string()])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("COMMSTREAM_TEST_RANK", name)
        .env("COMM_BACKEND", backend)
        .output()
        .unwrap_or_else(|why| panic!("{run} does not run: {why}; COMMSTREAM_RUN names comm-run if it is not in PATH"));
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let good = said.matches("it is as it must be").count() as u32;
    assert_eq!(good, ranks - u32::from(name.starts_with("death")), "{said}");
}

fn sums() -> Result<()> {
    let world = Communicator::open()?;
    let mine = vec![world.rank(); 100_000];
    let mut sum = vec![0; 100_000];
    world.allreduce(&mine, &mut sum, Op::Sum)?;
    assert!(sum.iter().all(|x| *x == (0..world.size()).sum::<i32>()));
    assert_eq!(world.info()?.launcher, "comm-run");
    println!("it is as it must be");
    Ok(())
}

fn death() -> Result<()> {
    let world = Communicator::open()?;
    let work = world.duplicate()?;
    if world.rank() == 1 {
        for other in [0, 2] {
            world.receive(&mut [0u8; 0], Some(other), Some(0))?; // it has the duplicate
        }
        std::process::abort();
    }
    world.send(&[0u8; 0], 1, 0)?;
    let began = Instant::now();
    let mut one = vec![1i32; 10];
    let error = work.allreduce_in_place(&mut one, Op::Sum).unwrap_err();
    assert_eq!((error.kind, error.rank), (ErrorKind::Peer, Some(1)), "{error}");
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    let rest = work.shrink()?;
    let mut one = [1];
    rest.allreduce_in_place(&mut one, Op::Sum)?;
    assert_eq!(one[0], 2);
    println!("it is as it must be");
    Ok(())
}

/// An operator of several numbers, on threads of the library too; callbacks; then a panic in the operator of rank 1, which fails every rank.
fn operators() -> Result<()> {
    let world = Config::new().progress(Progress::Thread).open()?;
    let (rank, size) = (world.rank(), world.size());
    let then = Operator::associative(&world, "then", move |[a, b]: [i64; 2], [c, d]: [i64; 2]| {
        assert!(rank != 1 || d != i64::MAX, "on purpose");
        [a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d)]
    })?;
    let mut all = vec![[2, 1]; 40_000];
    let (done, ended) = channel();
    commstream::scope(|s| {
        let request = s.allreduce_in_place(&world, &mut all, &then)?;
        request.on_complete(move |result| done.send(result).unwrap())
    })?;
    assert!(all.iter().all(|x| *x == [1 << size, (1 << size) - 1]));
    while let Err(TryRecvError::Empty) = ended.try_recv() {
        world.progress()?;
    }
    let mut bytes = vec![rank as u8; if rank == 2 { 100_000 } else { 200_000 }];
    assert_eq!(world.broadcast_bytes(Some(&mut bytes), 2)?, 100_000);
    assert!(bytes[..100_000].iter().all(|b| *b == 2));
    all.fill([1, i64::MAX]);
    let began = Instant::now();
    let error = loop {
        match world.allreduce_in_place(&mut all, &then) {
            Err(error) => break error,
            Ok(()) => assert!(began.elapsed().as_secs() < 20),
        }
    };
    assert_eq!(error.kind, ErrorKind::Aborted, "{error}");
    println!("it is as it must be");
    Ok(())
}

#[test]
fn operators_over_shared_memory() {
    on_ranks("operators_over_shared_memory", 3, "shm", operators);
}

#[test]
fn operators_over_tcp() {
    on_ranks("operators_over_tcp", 3, "tcp", operators);
}

#[test]
fn sums_over_shared_memory() {
    on_ranks("sums_over_shared_memory", 3, "shm", sums);
}

#[test]
fn sums_over_tcp() {
    on_ranks("sums_over_tcp", 3, "tcp", sums);
}

#[test]
fn death_over_shared_memory() {
    on_ranks("death_over_shared_memory", 3, "shm", death);
}

#[test]
fn death_over_tcp() {
    on_ranks("death_over_tcp", 3, "tcp", death);
}
