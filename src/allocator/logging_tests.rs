use super::super::fake::{Fake, request, upstream};
use super::*;
use crate::error::Status;
use std::ffi::CString;

/// A path in the folder for temporary files that no other test has.
fn path(name: &str) -> (PathBuf, CString) {
    let path = std::env::temp_dir().join(format!("warpmem-{}-{name}.log", std::process::id()));
    let text = CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL");
    (path, text)
}

fn take(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("the log is there");
    std::fs::remove_file(path).expect("the log can be removed");
    text
}

#[test]
fn every_call_is_a_line() {
    let (file, name) = path("lines");
    let (below, _fake) = upstream(Fake { fail_every: 2, ..Fake::default() });
    let logging = Logging::new(below, &name).unwrap();
    let tagged = Request { tag: tag::intern(c"a \"b\",\\\n\x01\xff\xc3\xbc"), ..request(100) };
    let address = logging.allocate(&tagged).unwrap();
    assert!(logging.allocate(&request(7)).is_err());
    logging.deallocate(address, &tagged).unwrap();
    assert!(logging.deallocate(address, &tagged).is_err());
    logging.flush().unwrap();
    let text = take(&file);
    let thread = thread::mine().number().to_string();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("warpmem-allocation-log 1"));
    assert_eq!(lines.next(), Some("thread,time,action,pointer,size,alignment,device,stream,tag,status"));
    let tag = r#""a \"b\",\\\n\x01\xffü""#;
    let expected = [
        format!("allocate,{address:#x},100,16,-1,0,{tag},0"),
        "allocate-failure,0x0,7,16,-1,0,\"\",101".to_string(),
        format!("deallocate,{address:#x},100,16,-1,0,{tag},0"),
        format!("deallocate,{address:#x},100,16,-1,0,{tag},103"),
    ];
    let mut before = 0;
    for (line, expected) in lines.by_ref().zip(&expected) {
        let mut parts = line.splitn(3, ',');
        assert_eq!(parts.next(), Some(thread.as_str()));
        let time: u64 = parts.next().unwrap().parse().expect("nanoseconds");
        assert!(time >= before, "{text}");
        before = time;
        assert_eq!(parts.next(), Some(expected.as_str()), "{text}");
    }
    assert_eq!((lines.next(), text.lines().count()), (None, 6), "{text}");
}

#[test]
fn lines_of_many_threads_stay_whole_and_are_written_at_the_end() {
    let (file, name) = path("threads");
    let (below, _fake) = upstream(Fake::default());
    let logging = Logging::new(below, &name).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let address = logging.allocate(&request(64)).unwrap();
                    logging.deallocate(address, &request(64)).unwrap();
                }
            });
        }
    });
    drop(logging);
    let text = take(&file);
    assert_eq!(text.lines().count(), 2 + 8 * 500 * 2);
    assert!(text.lines().skip(2).all(|line| line.split(',').count() == 10), "a line is torn");
}

#[test]
fn a_full_disk_fails_no_allocation_and_is_told_by_flush() {
    let (below, _fake) = upstream(Fake::default());
    let logging = Logging::new(below, c"/dev/full").unwrap();
    for _ in 0..2000 {
        let address = logging.allocate(&request(64)).unwrap();
        logging.deallocate(address, &request(64)).unwrap();
    }
    for _ in 0..2 {
        let error = logging.flush().unwrap_err();
        assert_eq!(error.status, Status::AllocatorFailed);
        assert!(error.message.contains("/dev/full") && error.message.contains("4000 lines"), "{error}");
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let (pipe, pipe_name) = path("pipe");
    // SAFETY: a terminated path.
    assert_eq!(unsafe { libc::mkfifo(pipe_name.as_ptr(), 0o600) }, 0);
    for name in [c"/nonexistent/a.log", c"", c"/", pipe_name.as_c_str()] {
        let (below, _fake) = upstream(Fake::default());
        let error = Logging::new(below, name).err().expect("no file");
        assert_eq!(error.status, Status::InvalidArgument);
        assert!(error.message.contains(&format!("\"{}\"", name.to_string_lossy())), "{error}");
    }
    std::fs::remove_file(pipe).unwrap();
}
