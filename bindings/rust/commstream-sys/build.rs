//! Where the C library is: COMMSTREAM_LIB_DIR names its folder; otherwise pkg-config does.
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=COMMSTREAM_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rustc-link-lib=dylib=commstream");
    if let Ok(folder) = std::env::var("COMMSTREAM_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        return;
    }
    let found = Command::new("pkg-config")
        .args(["--print-errors", "--libs-only-L", "commstream >= 0.1"])
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1") // or it leaves out what LD_LIBRARY_PATH names
        .output();
    match found {
        Ok(output) if output.status.success() => {
            for flag in String::from_utf8_lossy(&output.stdout).split_whitespace() {
                println!("cargo:rustc-link-search=native={}", flag.trim_start_matches("-L"));
            }
        }
        Ok(output) => panic!(
            "the C library commstream was not found; install it, or set COMMSTREAM_LIB_DIR to the folder of libcommstream.so: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(why) => panic!("pkg-config does not run ({why}); set COMMSTREAM_LIB_DIR to the folder of libcommstream.so"),
    }
}
