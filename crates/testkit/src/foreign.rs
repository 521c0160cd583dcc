//! Drivers and provisioners of other projects, each built from the Go module that its authors published, in one version.

use std::path::PathBuf;

use anyhow::Result;

use crate::go_module::{GoModule, Published, Source};

/// What leaves the stores out of JuiceFS that need a cloud or a server. What stays is badger for metadata and files for
/// data.
const JUICEFS_TAGS: &str = "nogateway,nowebdav,nocos,nobos,nohdfs,noibmcos,noobs,nooss,noqingstor,nosftp,noswift,noazure,\
                            nogs,noufile,nob2,nonfs,nodragonfly,nosqlite,nomysql,nopg,notikv,noetcd,noredis";

const HOSTPATH: GoModule = GoModule {
    folder: "foreign/hostpath",
    what: "the hostpath driver",
    source: Source::Published(Published {
        module: "github.com/kubernetes-csi/csi-driver-host-path",
        version: "v1.7.2",
        sum: "h1:Q/xVHE0+JvgExSZGW8BuY36y+eHRUfhyR+bRfAdHoCY=",
        tags: "",
        cgo: false,
        stamp: Some("main.version"),
        kept: &["deploy/kubernetes-1.20/hostpath", "examples/csi-storageclass.yaml"],
    }),
    packages: &["./cmd/hostpathplugin"],
    programs: &["hostpathplugin"],
};

const LOCAL_PATH: GoModule = GoModule {
    folder: "foreign/local-path",
    what: "local-path-provisioner",
    source: Source::Published(Published {
        module: "github.com/rancher/local-path-provisioner",
        version: "v0.0.30",
        sum: "h1:OkiuofkCSscddl7tma/B9Ox1wu+JEVSrP7IcZI65Ggo=",
        tags: "",
        cgo: false,
        stamp: None,
        kept: &["deploy/local-path-storage.yaml"],
    }),
    packages: &["."],
    programs: &["local-path-provisioner"],
};

const JUICEFS: GoModule = GoModule {
    folder: "foreign/juicefs",
    what: "JuiceFS",
    source: Source::Published(Published {
        module: "github.com/juicedata/juicefs",
        version: "v1.3.1",
        sum: "h1:xB2I2vnOEMS77XpZuOm/Cl9SqSfUWohw+U0Wsw4N5C0=",
        tags: JUICEFS_TAGS,
        cgo: true,
        stamp: None,
        kept: &[],
    }),
    packages: &["."],
    programs: &["juicefs"],
};

const JUICEFS_DRIVER: GoModule = GoModule {
    folder: "foreign/juicefs-csi-driver",
    what: "the JuiceFS CSI driver",
    source: Source::Published(Published {
        module: "github.com/juicedata/juicefs-csi-driver",
        version: "v0.28.3",
        sum: "h1:rVC+B3U6Tum3u7J3T1Gy96bCs8JojI92NVO6GoXcJEY=",
        tags: "",
        cgo: false,
        stamp: None,
        kept: &["deploy/k8s.yaml"],
    }),
    packages: &["./cmd"],
    programs: &["cmd"],
};

/// Only its manifests: the program is built with the other sidecars.
const PROVISIONER: GoModule = GoModule {
    folder: "foreign/external-provisioner",
    what: "the rights of csi-provisioner",
    source: Source::Published(Published {
        module: "github.com/kubernetes-csi/external-provisioner/v5",
        version: "v5.1.0",
        sum: "h1:pUwwaJNxBt3BRbZBYqNRvGYnOGNCicBOeLAAayroTwI=",
        tags: "",
        cgo: false,
        stamp: None,
        kept: &["deploy/kubernetes/rbac.yaml"],
    }),
    packages: &[],
    programs: &[],
};

/// A program of another project, and its manifests.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// As its module has it.
    pub version: &'static str,
    /// What was built.
    pub program: PathBuf,
    folder: PathBuf,
}

impl Foreign {
    /// A file that is kept of its module, such as `deploy/local-path-storage.yaml`.
    pub fn file(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    fn of(module: &GoModule) -> Result<Self> {
        let folder = module.build()?;
        let Source::Published(Published { version, .. }) = &module.source else {
            unreachable!("all modules in here are published")
        };
        let program = module.programs.first().map_or_else(|| folder.clone(), |name| folder.join(name));
        Ok(Self { version, program, folder })
    }
}

/// kubernetes-csi's hostpath driver. Built first if need be, which takes minutes; so are the others.
pub fn hostpath() -> Result<Foreign> {
    Foreign::of(&HOSTPATH)
}

/// rancher's local-path-provisioner, which makes hostPath volumes.
pub fn local_path() -> Result<Foreign> {
    Foreign::of(&LOCAL_PATH)
}

/// The file system itself, which is also the program that mounts it.
pub fn juicefs() -> Result<Foreign> {
    Foreign::of(&JUICEFS)
}

/// The CSI driver beside it.
pub fn juicefs_driver() -> Result<Foreign> {
    Foreign::of(&JUICEFS_DRIVER)
}

/// csi-provisioner's manifests, in the version of [`crate::sidecars`].
pub fn provisioner() -> Result<Foreign> {
    Foreign::of(&PROVISIONER)
}
