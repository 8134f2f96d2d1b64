//! Random moments that can be had again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Random numbers from a seed (`splitmix64`), which is printed with the test that fails.
pub(crate) struct Chance {
    state: u64,
}

impl Chance {
    /// From the seed in `GANDER_TEST_SEED`, else from the clock.
    pub(crate) fn new(name: &str) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "to see a failure again; gander itself does not know it"
        )]
        let given = std::env::var("GANDER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = given.unwrap_or_else(|| since.as_secs() << 20 | u64::from(since.subsec_micros()));
        #[expect(clippy::print_stdout, reason = "cargo shows it with the failed test")]
        {
            println!("--- {name}: GANDER_TEST_SEED={seed}");
        }
        Self { state: seed }
    }

    /// Another one, for what goes on beside this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self { state: self.next() }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True so often of a hundred times.
    pub(crate) fn percent(&mut self, often: u64) -> bool {
        self.below(100) < often
    }

    /// A span shorter than `bound`.
    pub(crate) fn span(&mut self, bound: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(bound.as_micros()).unwrap().max(1)))
    }

    /// One of some.
    pub(crate) fn pick<'all, T>(&mut self, all: &'all [T]) -> &'all T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}
