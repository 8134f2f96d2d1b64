//! Deletions of sessions of which something cannot be removed.

use super::*;
use doubles::Discards;

#[tokio::test(start_paused = true)]
async fn a_session_is_deleted_whatever_becomes_of_what_belonged_to_it() {
    for discards in [Discards::Fail, Discards::Hang] {
        let mut world = World::new(|_| {}).await;
        let (session, _agent) = world.ready().await;
        world.discards(discards);
        session.delete(&"alice".into()).await.unwrap();
        assert_eq!(world.store.deleted(), 1, "{discards:?}");
        world.registry.all_ended().await;
        // What hangs keeps gander from nothing.
        session.tasks.hard().cancel();
        session.tasks.finished().await;
    }
}
