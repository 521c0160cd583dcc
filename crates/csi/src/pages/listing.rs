//! The two lists that can be walked, and what differs between them.

use volmedic_proto::csi;

use crate::answer::{Cleaner, ListedVolume, Nameless, VolumeHealth};
use crate::method::{Method, Request};
use crate::secrets::Secrets;

pub(super) trait Listing {
    const METHOD: Method;
    type Request: Request;
    type Entry;

    fn request(&self, max_entries: i32, starting_token: String) -> Self::Request;
    fn secrets(&self) -> &Secrets;
    fn clean(&self, cleaner: &mut Cleaner<'_>, entry: &[u8]) -> Result<Self::Entry, Nameless>;
    fn id(entry: &Self::Entry) -> &str;
}

pub(super) struct Volumes;

impl Listing for Volumes {
    const METHOD: Method = Method::ListVolumes;
    type Request = csi::ListVolumesRequest;
    type Entry = ListedVolume;

    fn request(&self, max_entries: i32, starting_token: String) -> Self::Request {
        csi::ListVolumesRequest { max_entries, starting_token }
    }

    fn secrets(&self) -> &Secrets {
        Secrets::none()
    }

    fn clean(&self, cleaner: &mut Cleaner<'_>, entry: &[u8]) -> Result<ListedVolume, Nameless> {
        cleaner.listed_volume(entry)
    }

    fn id(entry: &ListedVolume) -> &str {
        &entry.volume_id
    }
}

pub(super) struct Health<'a> {
    pub(super) secrets: &'a Secrets,
}

impl Listing for Health<'_> {
    const METHOD: Method = Method::ControllerListVolumeHealth;
    type Request = csi::ControllerListVolumeHealthRequest;
    type Entry = VolumeHealth;

    fn request(&self, max_entries: i32, starting_token: String) -> Self::Request {
        csi::ControllerListVolumeHealthRequest {
            max_entries,
            starting_token,
            secrets: self.secrets.for_wire(),
        }
    }

    fn secrets(&self) -> &Secrets {
        self.secrets
    }

    fn clean(&self, cleaner: &mut Cleaner<'_>, entry: &[u8]) -> Result<VolumeHealth, Nameless> {
        cleaner.listed_health(entry)
    }

    fn id(entry: &VolumeHealth) -> &str {
        &entry.volume_id
    }
}
