//! Memory and streams of a device. Most cases need a CUDA driver: tests/rust/crates.sh runs them with the mock driver.
use std::time::Duration;

use commstream::{
    BucketOptions, Communicator, Config, DeviceBuckets, DeviceSliceMut, ErrorKind, Event, Layout, Op, Operator, Result, Stream,
};

mod device;
mod world;
use device::{use_device, Device};
use world::{kind, run, with};

fn on_devices(backend: &str, body: &(impl Fn(&Communicator, &Device) -> Result<()> + Sync)) {
    let config = Config::new().backend(backend).operation_timeout(Duration::from_secs(30));
    let worlds = if backend == "local" { config.open_ranks(2) } else { config.open_devices(&[Some("cuda:0"), Some("cuda:1")]) };
    run(worlds.unwrap(), &|c: &Communicator| {
        use_device(if backend == "local" { 0 } else { c.rank() });
        body(c, &Device::new())
    });
}

/// Floats that differ between ranks, of which sums are exact.
fn of(rank: i32, n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 100) as f32 + 1000.0 * rank as f32).collect()
}

fn sum(n: usize) -> Vec<f32> {
    of(0, n).iter().zip(of(1, n)).map(|(a, b)| a + b).collect()
}

fn every_call(c: &Communicator, device: &Device) -> Result<()> {
    let (rank, n) = (c.rank(), 3000);
    let (mine, all) = (device.memory(&of(rank, n)), device.memory(&[of(0, n), of(1, n)].concat()));
    let (mut one, mut both) = (device.memory(&vec![-1f32; n]), device.memory(&vec![-1f32; 2 * n]));
    let greatest = Operator::commutative(c, "greatest", f32::max)?;
    device.sync();
    macro_rules! is {
        ($call:ident ($($value:expr),*) $into:ident, $expected:expr) => {
            commstream::scope(|s| s.on_device().$call(c, $($value),*)?.wait().map(drop))?;
            assert_eq!($into.read(), $expected, stringify!($call));
        };
    }
    is!(allreduce(mine.slice(), one.slice_mut(), Op::Sum) one, sum(n));
    is!(allreduce(mine.slice(), one.slice_mut(), &greatest) one, of(1, n));
    is!(broadcast(one.slice_mut(), 1) one, of(1, n));
    is!(allreduce_in_place(one.slice_mut(), Op::Min) one, of(1, n));
    is!(reduce(mine.slice(), Some(one.slice_mut()), Op::Sum, 0) one, if rank == 0 { sum(n) } else { of(1, n) });
    is!(scan(mine.slice(), one.slice_mut(), Op::Sum) one, if rank == 0 { of(0, n) } else { sum(n) });
    is!(exscan(mine.slice(), one.slice_mut(), Op::Sum) one, of(0, n));
    is!(reduce_scatter(all.slice(), one.slice_mut(), Op::Max) one, of(rank, n));
    is!(reduce_scatter_v(all.slice(), one.slice_mut(), &[n, n], Op::Min) one, of(rank, n));
    is!(allgather(mine.slice(), both.slice_mut()) both, all.read());
    is!(alltoall(all.slice(), both.slice_mut()) both, [of(rank, n), of(rank, n)].concat());
    let dense = [n, n];
    is!(allgather_v(mine.slice(), both.slice_mut(), Layout::dense(&dense)) both, all.read());
    is!(alltoall_v(all.slice(), Layout::dense(&dense), both.slice_mut(), Layout::dense(&dense)) both, [of(rank, n), of(rank, n)].concat());
    is!(gather(mine.slice(), Some(both.slice_mut()), 0) both, if rank == 0 { all.read() } else { [of(1, n), of(1, n)].concat() });
    is!(gather_v(mine.slice(), Some((both.slice_mut(), Layout::dense(&dense))), 0) both, if rank == 0 { all.read() } else { both.read() });
    is!(scatter(Some(all.slice()), one.slice_mut(), 1) one, of(rank, n));
    is!(scatter_v(Some((all.slice(), Layout::dense(&dense))), one.slice_mut(), 1) one, of(rank, n));
    is!(allgather_in_place(both.slice_mut()) both, both.read());
    is!(reduce_in_place(one.slice_mut(), Op::Sum, 1) one, if rank == 1 { sum(n) } else { of(0, n) });
    let mut whole = one.slice_mut();
    commstream::scope(|s| {
        let came = if rank == 0 {
            let _ = s.on_device().send(c, mine.slice().part(0..10), 1, 0)?;
            None
        } else {
            let (_, status) = s.on_device().receive(c, whole.part(0..10), Some(0), Some(0))?.wait()?;
            Some(status.count::<f32>())
        };
        assert_eq!(came, (rank == 1).then_some(10));
        Ok(())
    })?;
    assert!(rank == 0 || one.read()[..11] == [&of(0, 10)[..], &sum(n)[10..11]].concat());
    c.barrier()
}

fn streams(c: &Communicator, device: &Device) -> Result<()> {
    let n = 5000;
    let stream = device.stream();
    let mut memory = device.memory(&of(c.rank(), n)); // the stream copies it there; nobody waits for that
    let mut slice = memory.slice_mut();
    assert_eq!((slice.len(), slice.part(7..9).len(), slice.is_empty()), (n, 2, false));
    commstream::scope(|s| {
        stream.before(c)?;
        let request = s.on_device().allreduce_in_place(c, slice.reborrow(), Op::Sum)?;
        request.before_stream(stream) // the stream copies it back after that
    })?;
    assert_eq!(memory.read(), sum(n));
    let event = Event::new(c)?;
    let mut again = device.memory(&of(c.rank(), n));
    let (left, mut right) = again.slice_mut().split_at(n / 2);
    event.record_stream(stream)?;
    event.before(c)?;
    commstream::scope(|s| {
        let _ = s.on_device().allreduce_in_place(c, left, Op::Sum)?;
        let _ = s.on_device().broadcast(c, right.reborrow(), 1)?;
        event.record(c)?;
        event.before_stream(stream)
    })?;
    assert_eq!(again.read(), [&sum(n)[..n / 2], &of(1, n)[n / 2..]].concat());
    Ok(())
}

#[test]
#[ignore = "needs a CUDA driver"]
fn device_every_call_through_the_host() {
    on_devices("local", &every_call);
}

#[test]
#[ignore = "needs a CUDA driver"]
fn device_every_call_by_nccl() {
    on_devices("nccl", &every_call);
}

#[test]
#[ignore = "needs a CUDA driver"]
fn device_streams_through_the_host() {
    on_devices("local", &streams);
}

#[test]
#[ignore = "needs a CUDA driver"]
fn device_streams_by_nccl() {
    on_devices("nccl", &|c: &Communicator, device: &Device| {
        streams(c, device)?;
        assert!(!c.stream()?.is_null());
        assert!(c.stream_sync(Duration::from_secs(10))?);
        let own = c.duplicate_on(device.stream())?;
        assert_eq!(own.stream()?, device.stream().as_raw());
        streams(&own, device)
    });
}

/// A start that fails has started a message before, which has ended then.
#[test]
#[ignore = "needs a CUDA driver"]
fn device_plans_that_fail_in_the_middle() {
    on_devices("nccl", &|c: &Communicator, device: &Device| {
        let memory = device.memory(&of(c.rank(), 3000));
        device.sync();
        let (at, other) = (memory.slice().as_ptr() as usize, 1 - c.rank());
        let mut plan = c.plan((), move |s, recorder, ()| {
            // SAFETY: the plan ends before the memory.
            let whole = unsafe { DeviceSliceMut::new(at as *mut f32, 3000) };
            let (one, two) = whole.split_at(1000);
            if other == 1 {
                let _ = s.on_device().send(recorder, one.into_slice(), other, 0)?;
            } else {
                let _ = s.on_device().receive(recorder, one, Some(other), Some(0))?;
            }
            s.on_device().receive(recorder, two, None, Some(0)).map(drop) // NCCL must know the peer
        })?;
        assert_eq!(kind(plan.start()), ErrorKind::Unsupported);
        assert_eq!(memory.read(), [&of(0, 1000)[..], &of(c.rank(), 3000)[1000..]].concat());
        plan.buffers()?;
        assert_eq!(kind(plan.start()), ErrorKind::Unsupported);
        drop(plan);
        c.barrier()
    });
}

#[test]
#[ignore = "needs a CUDA driver"]
fn device_buckets() {
    on_devices("nccl", &|c: &Communicator, device: &Device| {
        let (stream, lengths) = (device.stream(), [700, 30, 5000]);
        let options = BucketOptions { bytes: 4096, first_bytes: 1024, op: Op::Sum };
        let mut buckets = DeviceBuckets::<f32>::new(c, &lengths, options)?;
        for _step in 0..3 {
            for i in (0..3).rev().filter(|i| *i != 1) {
                let computed = device.memory(&of(c.rank(), lengths[i]));
                // SAFETY: the copy runs on the stream.
                device.copy(computed.slice(), unsafe { buckets.gradient(i)? });
                buckets.ready(i, stream)?;
                // SAFETY: there is none.
                assert_eq!(kind(unsafe { buckets.gradient(i) }.map(drop)), ErrorKind::State);
                assert_eq!(kind(buckets.ready(i, stream)), ErrorKind::State);
                device.sync(); // `computed` is freed
            }
            buckets.wait(stream)?;
            for (i, n) in lengths.into_iter().enumerate() {
                let mut result = device.memory(&vec![-1f32; n]);
                // SAFETY: as above.
                let from = unsafe { buckets.gradient(i)? };
                let (from, to) = (from.as_slice(), result.slice_mut());
                device.copy(from, to);
                assert_eq!(result.read(), if i == 1 { vec![0.0; n] } else { sum(n) });
            }
        }
        // SAFETY: there is none.
        assert_eq!(kind(unsafe { buckets.gradient(3) }.map(drop)), ErrorKind::Argument);
        c.sync_all()
    });
}

/// Without a driver, addresses are those of the host, and streams are refused by name.
#[test]
fn without_a_device() {
    if std::env::var_os("MOCK_RUN").is_some() {
        return;
    }
    with(2, &|c: &Communicator| {
        let mut host = vec![c.rank(); 10];
        // SAFETY: memory of the host is also allowed.
        let slice = unsafe { DeviceSliceMut::new(host.as_mut_ptr(), 10) };
        commstream::scope(|s| s.on_device().allreduce_in_place(c, slice, Op::Sum)?.wait().map(drop))?;
        assert_eq!(host, [1; 10]);
        commstream::scope(|s| {
            let _ = s.on_device().send(c, device::nowhere(), c.rank(), 1)?;
            c.receive(&mut [0f32; 0], None, None)
        })?;
        let mut never = [0u8];
        let refused = commstream::scope(|s| {
            let request = s.receive(c, &mut never, None, Some(7))?;
            let refused = request.before_stream(Stream::DEFAULT);
            request.cancel()?;
            assert_eq!(kind(request.wait().map(drop)), ErrorKind::Cancelled);
            Ok(refused)
        })?;
        let event = Event::new(c)?;
        event.reset()?; // a point that is reached needs no stream
        for result in [refused, Stream::DEFAULT.before(c), event.record_stream(Stream::DEFAULT), event.before_stream(Stream::DEFAULT)] {
            assert_eq!(kind(result), ErrorKind::Unsupported);
        }
        assert_eq!(kind(c.stream().map(drop)), ErrorKind::Unsupported);
        assert_eq!(kind(DeviceBuckets::<f32>::new(c, &[1], BucketOptions::default()).map(drop)), ErrorKind::Unsupported);
        Ok(())
    });
    let refused = Config::new().backend("local").open_devices(&[Some("cuda:0")]).map(drop);
    assert!(matches!(kind(refused), ErrorKind::Argument | ErrorKind::Unsupported | ErrorKind::Config));
}
