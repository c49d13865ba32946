//! Operations: one byte of the header.

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A login.
    Register,
    /// A command that changes nothing, by its code.
    Read(u32),
    /// The end of the session.
    Logout,
    /// A command that changes something, by the code that it has in older generations.
    Change(u32),
}

/// Commands that change something, by their operation. The numbers between 149 and 160 are free.
const CHANGES: &[(u8, u32)] = &[
    (128, 202),
    (129, 204),
    (130, 203),
    (131, 205),
    (132, 302),
    (133, 304),
    (134, 303),
    (135, 305),
    (136, 402),
    (137, 403),
    (138, 503),
    (139, 602),
    (140, 603),
    (141, 33),
    (142, 35),
    (143, 34),
    (144, 37),
    (145, 36),
    (146, 42),
    (147, 43),
    (148, 604),
    (149, 605),
    (160, 101),
    (161, 121),
    (162, 122),
];
/// Codes that may stand with operation 2.
const READS: &[u32] = &[
    1, 10, 11, 12, 13, 20, 21, 22, 31, 32, 41, 100, 102, 120, 200, 201, 300, 301, 600, 601, 606,
];
/// Changes whose replies have no section for results.
const UNFRAMED: [u32; 2] = [101, 503];

impl Operation {
    /// The operation of a header. `None` = none has this number, or no read has this code.
    pub fn of(number: u8, code: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Register),
            2 => READS.contains(&code).then_some(Self::Read(code)),
            3 => Some(Self::Logout),
            _ => {
                let found = CHANGES.binary_search_by_key(&number, |(number, _)| *number);
                let (_, code) = CHANGES.get(found.ok()?)?;
                Some(Self::Change(*code))
            }
        }
    }

    /// Whether the body of a reply begins with a section for results: a count, 0 here.
    pub fn has_results(self) -> bool {
        match self {
            Self::Register => true,
            Self::Change(code) => !UNFRAMED.contains(&code),
            Self::Read(_) | Self::Logout => false,
        }
    }

    /// Whether the request has a number of its own in its session.
    pub fn takes_number(self) -> bool {
        matches!(self, Self::Change(_) | Self::Logout)
    }
}
