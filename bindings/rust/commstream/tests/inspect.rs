//! What the library knows about itself and its work.
use std::time::Duration;

use commstream::{algorithms, backends, options, version, wait_any, Call, Config, ErrorKind, LogLevel, Op, Order, FOREVER};

mod world;
use world::{kind, run, text, with, with_ranks};

#[test]
fn counters_peers_and_requests() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let mut a = [0.5f64; 100];
        commstream::scope(|s| {
            let request = s.allreduce_in_place(c, &mut a, Op::Sum)?;
            while !request.is_complete()? {}
            let what = request.describe()?;
            assert_eq!((what.sequence, what.bytes, what.staged), (Some(1), 800, false));
            assert!(size == 1 || !what.algorithm.is_empty());
            assert!(what.queued <= what.completed.expect("it is complete"));
            request.wait().map(drop)
        })?;
        c.send_receive(&[1u8], (rank + 1) % size, &mut [0u8], (rank + size - 1) % size, 0)?;
        let counts = c.statistics()?;
        assert_eq!((counts.operations, counts.messages, counts.network_out), (1, 2, 0));
        let peer = c.peer(size - 1)?;
        assert!(peer.local && peer.node == 0 && peer.host == c.info()?.host, "{peer:?}");
        assert_eq!(kind(c.peer(size)), ErrorKind::Argument);
        let info = c.info()?;
        assert!(info.fixed_order && info.cpus >= 1 && info.homogeneous && info.queue_max >= info.window && info.memory_bytes > 0);
        c.sync_all()
    });
}

#[test]
fn traces_and_predictions() {
    with(2, &|c: &commstream::Communicator| {
        c.barrier()?;
        let path = std::env::temp_dir().join(format!("commstream-trace-{}-{}.json", std::process::id(), c.rank()));
        c.write_trace(&path)?;
        assert!(std::fs::read_to_string(&path)?.contains("barrier"));
        std::fs::remove_file(&path)?;
        assert_eq!(kind(c.write_trace("/nowhere/at/all")), ErrorKind::System);
        let call = Call::new::<f32>("allreduce", 1 << 20).ranks(4).op(Op::Max);
        assert!(c.explain(&call)?.contains("allreduce"));
        let (long, short) = (c.predict(&call, None, None)?, c.predict(&Call::new::<f32>("allreduce", 1).ranks(4), None, None)?);
        assert!(long > short && short > Duration::ZERO);
        assert_eq!(c.predict(&call, None, Some(&c.machine()?))?, long);
        assert_eq!(kind(c.predict(&call, None, Some("pigeons = 4"))), ErrorKind::Config);
        assert_eq!(kind(c.predict(&Call::new::<u8>("pigeon", 1), None, None)), ErrorKind::Argument);
        Ok(())
    });
}

#[test]
fn lists() {
    assert_eq!(version().0, 0);
    let all = backends();
    assert!(all.iter().any(|backend| backend.name == "shm" && backend.missing.is_none()), "{all:?}");
    assert!(options().iter().any(|option| option.key == "queue" && option.environment == "COMM_QUEUE" && !option.help.is_empty()));
    assert!(all.iter().all(|backend| backend.threads || backend.missing.is_some()), "{all:?}");
    let slices = algorithms().into_iter().find(|known| (&known.collective[..], &known.name[..]) == ("allreduce", "slices"));
    assert!(slices.map_or(false, |slices| slices.ranks.0 <= 2 && slices.ranks.1 > 2 && !slices.help.is_empty()));
}

#[test]
fn meshes() {
    with(4, &|c: &commstream::Communicator| {
        let axes = c.split_mesh(&[2, 2])?;
        let (rows, columns) = (&axes[0], &axes[1]);
        assert_eq!((rows.rank(), columns.rank(), rows.size(), columns.size()), (c.rank() / 2, c.rank() % 2, 2, 2));
        let mut one = [c.rank()];
        columns.allreduce_in_place(&mut one, Op::Sum)?;
        assert_eq!(one[0], if c.rank() < 2 { 1 } else { 5 });
        assert_eq!(kind(c.split_mesh(&[3]).map(drop)), ErrorKind::Argument);
        assert_eq!(kind(c.split_mesh(&[]).map(drop)), ErrorKind::Argument);
        Ok(())
    });
}

/// An engine has 16,384 communicators: there is room for one axis of two, which is closed again.
#[test]
fn a_mesh_with_an_axis_that_fails() {
    with(1, &|c| {
        let mut made = Vec::new();
        while let Ok(one) = c.duplicate() {
            made.push(one);
        }
        made.pop();
        assert_eq!(kind(c.split_mesh(&[1, 1])), ErrorKind::Full);
        made.push(c.duplicate()?);
        Ok(())
    });
}

#[test]
fn the_first_of_several() {
    with(2, &|c: &commstream::Communicator| {
        let other = 1 - c.rank();
        let mut buffers = [[0u8; 1]; 3];
        commstream::scope(|s| {
            let mut requests = Vec::new();
            for (tag, buffer) in buffers.iter_mut().enumerate() {
                requests.push((tag, s.receive(c, buffer, Some(other), Some(tag as u32))?));
            }
            let (mut tags, mut requests): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
            assert_eq!(wait_any(&requests, Duration::from_millis(5))?, None);
            c.barrier()?;
            for tag in [2, 0, 1] {
                c.send(&[tag as u8], other, tag)?;
                let first = wait_any(&requests, FOREVER)?.expect("the one of this tag");
                assert_eq!(tags.swap_remove(first), tag as usize);
                assert_eq!(requests.swap_remove(first).wait()?.0, [tag as u8]);
                c.barrier()?;
            }
            assert_eq!(wait_any(&requests, FOREVER)?, None);
            Ok(())
        })
    });
}

#[test]
fn what_a_config_sets() {
    let first = Config::new().backend("local").order(Order::Free).log_level(LogLevel::Off).open_ranks(1).unwrap();
    let second = Config::new().backend("local").engine_of(&first[0]).open_ranks(1).unwrap();
    run(second, &|c: &commstream::Communicator| {
        c.barrier()?;
        c.sync_all()
    });
    run(first, &|c: &commstream::Communicator| c.barrier());
}

#[test]
fn an_empty_secret_is_refused() {
    let config = Config::new().rank(0, 2).backend("tcp").address("127.0.0.1:0").open_timeout(Duration::from_millis(200));
    let error = config.log_level(LogLevel::Off).secret(b"").open().map(drop).expect_err("a world without a secret");
    assert_eq!(error.kind, ErrorKind::Config, "{error}");
    assert!(error.text.contains("secret_bytes=0"), "{error}");
}

#[test]
fn calls_in_place() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let (me, ranks) = (rank as usize, size as usize);
        let below = |r: i32| (0..r).sum::<i32>();
        let mut a = [rank; 3];
        c.reduce_in_place(&mut a, Op::Sum, 0)?;
        assert_eq!(a, if rank == 0 { [below(size); 3] } else { [rank; 3] });
        a = [rank; 3];
        c.scan_in_place(&mut a, Op::Sum)?;
        assert_eq!(a, [below(rank + 1); 3]);
        a = [rank; 3];
        c.exscan_in_place(&mut a, Op::Sum)?;
        assert_eq!(a, [below(rank); 3]);
        let mut all = vec![rank; 2 * ranks];
        c.reduce_scatter_in_place(&mut all, Op::Sum)?;
        assert_eq!(all[2 * me..][..2], [below(size); 2]);
        all.fill(-1);
        all[2 * me..][..2].fill(rank);
        c.allgather_in_place(&mut all)?;
        assert_eq!(all, (0..size).flat_map(|r| [r, r]).collect::<Vec<_>>());
        all = (0..size).flat_map(|to| [rank, to]).collect();
        c.alltoall_in_place(&mut all)?;
        assert_eq!(all, (0..size).flat_map(|from| [from, rank]).collect::<Vec<_>>());
        assert!(size == 1 || text(c.allgather_in_place(&mut all[1..])).contains("expected"));
        assert!(size == 1 || text(c.reduce_scatter_in_place(&mut all[1..], Op::Sum)).contains("expected"));
        c.barrier()
    });
}

#[test]
fn bytes_of_unknown_length() {
    with_ranks(|c| {
        let (rank, size) = (c.rank(), c.size());
        let root = size - 1;
        for length in [0, 1, 5000, 300_000] {
            let mut buffer = vec![if rank == root { 7u8 } else { 0 }; if rank == root { length } else { 300_000 }];
            assert_eq!(c.broadcast_bytes(Some(&mut buffer), root)?, length);
            assert!(buffer[..length].iter().all(|b| *b == 7));
        }
        let mut short = [rank as u8; 10];
        let room = if rank == root { 10 } else { 4 };
        let got = commstream::scope(|s| Ok(s.broadcast_bytes(c, Some(&mut short[..room]), root)?.wait().map(|bytes| bytes.len())))?;
        if rank == root {
            assert_eq!(got?, 10);
        } else {
            let error = got.unwrap_err();
            assert_eq!((error.kind, &error.text[..]), (ErrorKind::Truncated, "broadcast_bytes: the root sent 10 bytes; the buffer has 4"));
        }
        let given_up = c.broadcast_bytes(Some(&mut short[..]).filter(|_| rank != root), root);
        assert_eq!(kind(given_up), ErrorKind::Aborted);
        assert_eq!(kind(c.broadcast_bytes(Some(&mut short), size)), ErrorKind::Argument);
        Ok(())
    });
    with_ranks(|c| c.broadcast_bytes(Some(&mut []), 0).map(drop)); // nothing is a length too
}

/// Run by hand: `cargo test --release --test inspect -- --ignored`.
#[test]
#[ignore = "needs 5 GB of memory"]
fn more_than_2_to_the_31_bytes() {
    let config = Config::new().backend("local").operation_timeout(Duration::from_secs(600)); // memory may be slow to come
    run(config.open_ranks(2).unwrap(), &|c: &commstream::Communicator| {
        let length = (1 << 31) + 10;
        let mut buffer = vec![c.rank() as u8; length + c.rank() as usize];
        buffer[length - 1] = 9 * (1 - c.rank() as u8);
        assert_eq!(c.broadcast_bytes(Some(&mut buffer), 0)?, length);
        assert_eq!((buffer[0], buffer[1 << 31], buffer[length - 1]), (0, 0, 9));
        c.broadcast(&mut buffer[..length], 1)
    });
}
