//! The fields of a certificate.
use std::time::UNIX_EPOCH;
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::name::Name;
use x509_cert::time::Time;

/// `commonName`, RFC 5280 appendix A.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The parts of a certificate that we look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Subject, as RFC 4514 writes it.
    pub(super) subject: String,
    /// Common name of the subject, the last one where there are several; `None` when it has none, or an empty one.
    pub(super) common_name: Option<String>,
    /// Validity, seconds since 1970, both inclusive.
    pub(super) begins_s: u64,
    pub(super) ends_s: u64,
}

/// Whether a certificate is valid at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    Valid,
    NotYet,
    Expired,
}

impl Facts {
    /// Reads a certificate. `None` when it is none.
    pub(super) fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?.tbs_certificate;
        let validity = certificate.validity;
        Some(Self {
            subject: certificate.subject.to_string(),
            common_name: common_name(&certificate.subject),
            begins_s: seconds(validity.not_before),
            ends_s: seconds(validity.not_after),
        })
    }

    pub(super) fn validity(&self, now_s: u64) -> Validity {
        if now_s < self.begins_s {
            Validity::NotYet
        } else if now_s > self.ends_s {
            Validity::Expired
        } else {
            Validity::Valid
        }
    }
}

fn seconds(time: Time) -> u64 {
    let since = time.to_system_time().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The string types of a common name; others are ignored.
fn common_name(subject: &Name) -> Option<String> {
    let attributes = subject.0.iter().flat_map(|part| part.0.iter());
    let mut named = attributes.filter(|attribute| attribute.oid == COMMON_NAME);
    let value = &named.next_back()?.value;
    let text = Utf8StringRef::try_from(value)
        .map(|text| text.as_str().to_owned())
        .or_else(|_| PrintableStringRef::try_from(value).map(|text| text.as_str().to_owned()))
        .or_else(|_| TeletexStringRef::try_from(value).map(|text| text.as_str().to_owned()))
        .or_else(|_| Ia5StringRef::try_from(value).map(|text| text.as_str().to_owned()));
    text.ok().filter(|text| !text.is_empty())
}
