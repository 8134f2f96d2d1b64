use super::*;
use crate::goose::home;

#[test]
fn a_host_that_is_full_is_told_from_a_goose_that_does_not_run() {
    let system = |errno: Errno| SpawnError::System(errno.into());
    for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
        assert_eq!(not_spawned(&system(errno)), no_room(), "{errno}");
        // As a home that cannot be written says it: the system's error is the source of another.
        let source = io::Error::from(errno);
        let error = home::HomeError::Io { action: "make", path: "/x".into(), source };
        assert_eq!(not_made("no home", &error), no_room(), "{errno}");
    }
    let program = || PathBuf::from("goose");
    for error in [
        system(Errno::TOOBIG),
        SpawnError::HelperEnded,
        SpawnError::ProgramNotFound { program: program() },
        SpawnError::NotExecutable { program: program(), source: Errno::ACCESS.into() },
    ] {
        assert!(matches!(not_spawned(&error), LaunchError::Failed { .. }), "{error}");
    }
    assert_eq!(not_made("no home", &io::Error::from(Errno::ACCESS)), failed("no home"));
}
