//! What the release of Kubernetes under test has, for tests that depend on it.
//!
//! A test asks [`server_has`] and asserts what either release does. Only a test that is about the feature and nothing else
//! is not run without it.

use std::fmt;
use std::io::Write;

use crate::kubernetes::Version;

/// What `cargo xtask test` looks for, to name the tests that were not run.
const NOT_RUN: &str = "not run:";

/// What not every supported release of Kubernetes has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// `status.healthStatus` of claims, behind the gate `CSIVolumeHealth`. Older releases have a gate of that name too, for
    /// the kubelet only, and refuse an apply of the field.
    ClaimHealth,
    /// `status.volumeHealth` of pods, which the kubelet writes, behind the same gate.
    PodHealth,
}

impl Feature {
    /// The first release that has it.
    fn since(self) -> Version {
        match self {
            Self::ClaimHealth | Self::PodHealth => Version::minor(37),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClaimHealth => "status.healthStatus of claims",
            Self::PodHealth => "status.volumeHealth of pods",
        })
    }
}

/// Whether the release under test has this, where its gate is on.
pub fn server_has(feature: Feature) -> bool {
    Version::under_test() >= feature.since()
}

/// Whether the test of this name has nothing to check on the release under test. Then it says so where the test harness
/// does not capture it.
pub fn is_not_run_without(feature: Feature, test: &str) -> bool {
    let is_not_run = !server_has(feature);
    if is_not_run {
        let line = format!("{test} {NOT_RUN} Kubernetes {} has no {feature}\n", Version::under_test());
        // As in `seed`: a macro would be captured, and a test is none the worse where nothing reads this.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    is_not_run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_feature_from_its_first_one_on() {
        let older: Version = "v1.36.9".parse().unwrap();
        for feature in [Feature::ClaimHealth, Feature::PodHealth] {
            assert!(older < feature.since() && feature.since() <= Version::DEFAULT, "{feature}");
        }
    }
}
