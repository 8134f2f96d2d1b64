use super::*;
use crate::goose::extensions::ExtensionLevel;
use crate::goose::home;
use crate::goose::noted::{self, GooseSession};
use crate::session::agent::Mode;

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

#[test]
fn a_start_in_another_home_than_the_one_that_failed_leaves_nothing_of_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let (root, users) = (dir.path().join("homes/one"), dir.path().join("users"));
    let own = Places::own(&root);
    let shared = Places::shared(&root, SharedHome::in_folder(&users).unwrap());
    let settings = LaunchSettings {
        extensions: ExtensionLevel::default(),
        scheduler: false,
        inherited: Vec::new(),
        last: Vec::new(),
        own: launch::OwnSettings::default(),
    };
    let launch = settings.launch(&LaunchSpec::new(Mode::Chat), &own).unwrap();
    folders::make_places(&own, None, &launch).unwrap();
    // Else the session would be taken for one at home there.
    folders::make_places(&shared, None, &launch).unwrap();
    assert!(!home::configuration_folder(&root).exists());
    // What has been made in the shared home is still to be deleted with the session.
    let made = GooseSession { id: "20261130_1".into(), created_at: Some("then".into()) };
    noted::note(&root, &made).unwrap();
    std::fs::write(root.join("left"), "").unwrap();
    folders::make_places(&own, None, &launch).unwrap();
    assert!(home::configuration_in(&home::configuration_folder(&root)).is_file());
    assert!(!root.join("left").exists());
    assert_eq!(noted::noted(&root).unwrap(), [made]);
}
