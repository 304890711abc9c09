//! What a program may choose of a world, a communicator and a window, and functions of its own that a world uses.
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use commstream::{Call, Communicator, Config, DuplicateOptions, Error, ErrorKind, LogLevel, Op, Order, Placement, Result};

mod world;
use world::{kind, text, with};

#[test]
fn a_duplicate_of_its_own_kind() {
    with(2, &|c: &Communicator| {
        let options = DuplicateOptions::new().name("twin").priority(-1).order(Order::Fixed).operation_timeout(Duration::from_millis(50));
        let twin = c.duplicate_as(&options.algorithm("broadcast", "pipeline").algorithm("allreduce", "slices"))?;
        assert_eq!(twin.info()?.name, "twin");
        let allreduce = Call::new::<f32>("allreduce", 100);
        assert!(twin.explain(&allreduce)?.starts_with("allreduce") && twin.explain(&allreduce)?.contains("slices"));
        assert_eq!(kind(twin.receive(&mut [0u8], None, None).map(drop)), ErrorKind::Timeout);
        assert_eq!(c.duplicate_with("other", 1)?.info()?.name, "other");
        let long = text(c.duplicate_as(&DuplicateOptions::new().algorithm("allreduce", &"x".repeat(300))).map(drop));
        assert!(long.contains("options.options"), "{long}");
        assert!(text(c.duplicate_with("a\0b", 0).map(drop)).contains("zero byte"));
        c.sync()
    });
}

#[test]
fn windows_on_chosen_nodes() {
    with(2, &|c: &Communicator| {
        for placement in [Placement::FirstTouch, Placement::Interleave] {
            let window = c.window_placed(4096, 0, placement)?;
            window.put(&[7u64], 1 - c.rank(), 8)?;
            window.fence()?;
            let mut got = [0u64; 2];
            window.get(&mut got, c.rank(), 0)?;
            assert_eq!(got, [0, 7]);
            window.free()?;
        }
        Ok(())
    });
}

static LINES: Mutex<Vec<(LogLevel, String)>> = Mutex::new(Vec::new());

#[test]
fn a_log_of_the_programs_own() {
    let config = Config::new().backend("local").log_level(LogLevel::Debug);
    let write = |level, line: &str| LINES.lock().unwrap().push((level, line.to_string()));
    for world in config.clone().log(write).open_ranks(1).unwrap() {
        world.close(Duration::from_secs(5)).unwrap();
    }
    let lines = std::mem::take(&mut *LINES.lock().unwrap());
    assert!(!lines.is_empty() && lines.iter().all(|(level, line)| *level >= LogLevel::Error && !line.is_empty()), "{lines:?}");
    let broken = config.log(|_, _| panic!("a log that panics, which this test is about"));
    for world in broken.open_ranks(1).unwrap() {
        world.barrier().unwrap();
    }
}

#[test]
fn a_world_by_an_exchange() {
    let (slots, all) = (Mutex::new(vec![Vec::new(); 2]), Barrier::new(2));
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let (slots, all) = (&slots, &all);
            threads.spawn(move || {
                let config = Config::new().backend("tcp").rank(rank, 2);
                let world = config.open_by(|mine| {
                    slots.lock().unwrap()[rank as usize] = mine.to_vec();
                    all.wait();
                    let told = slots.lock().unwrap().concat();
                    all.wait();
                    Ok(told)
                });
                let mut one = [rank];
                world.and_then(|world| world.allreduce_in_place(&mut one, Op::Sum)).unwrap();
                assert_eq!(one[0], 1);
            });
        }
    });
}

#[test]
fn exchanges_that_fail() {
    let open = |exchange: &dyn Fn(&[u8]) -> Result<Vec<u8>>| {
        let config = Config::new().backend("tcp").rank(0, 2).log_level(LogLevel::Off);
        config.open_by(exchange).map(drop).expect_err("a world")
    };
    let error = open(&|_| Err(Error::from(std::io::Error::from_raw_os_error(5))));
    assert_eq!((error.kind, error.system_errno), (ErrorKind::System, 5));
    let error = open(&|mine| Ok(mine.to_vec()));
    assert!(error.kind == ErrorKind::Argument && error.text.contains("those of 2 ranks"), "{error}");
    let error = open(&|_| panic!("an exchange that panics, which this test is about"));
    assert!(error.kind == ErrorKind::Aborted && error.text.contains("which this test is about"), "{error}");
    let error = Config::new().open_by(|mine| Ok(mine.to_vec())).map(drop).expect_err("a world");
    assert!(error.kind == ErrorKind::Argument && error.text.contains("ranks is 0; expected"), "{error}");
}
