//! A stream of random numbers (splitmix64, Steele, Lea, Flood 2014): small, seeded, the same on every machine.

/// One stream; each part of the disk has its own, so that one more draw in one leaves the others as they were.
#[derive(Clone, Debug)]
pub(crate) struct SimRng(u64);

impl SimRng {
    /// Stream number `stream` of a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407));
        mixed.next();
        mixed
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in [0, `end`); 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// `true` with this probability. Draws also when the probability is 0, so that a schedule does not depend on it.
    pub fn chance(&mut self, probability: f64) -> bool {
        let drawn = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < probability
    }
}
