//! Which kinds of objects an archive has, which of their fields, and which of these are names.

/// Whose objects a kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Volmedic's. The first of them are enough.
    Volmedic,
    /// The cluster's. Where names are replaced, the names of all of them must be known.
    Cluster,
}

/// One kind of object.
#[derive(Debug)]
pub(super) struct Kind {
    /// Its file in the archive.
    pub(super) file: &'static str,
    pub(super) plural: &'static str,
    /// As in `/apis/apps/v1`.
    pub(super) group: &'static str,
    pub(super) of: Of,
    /// Further parameters of the query.
    pub(super) select: &'static str,
    /// What its name is replaced by, with a number; empty if the name stays.
    pub(super) called: &'static str,
    /// The fields that are kept, apart from [`METADATA`]; see [`super::fields::Fields`].
    pub(super) fields: &'static [&'static str],
    /// Where names of other objects are, and what they are replaced by.
    pub(super) names: &'static [(&'static str, &'static str)],
}

const OURS: &str = "&labelSelector=app.kubernetes.io%2Fname%3Dvolmedic";

/// Of every object. Labels and annotations are chosen by `is_public` in `objects.rs`.
pub(super) const METADATA: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata.annotations.**",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.generation",
    "metadata.labels.**",
    "metadata.name",
    "metadata.namespace",
    "!metadata.ownerReferences.kind",
    "!metadata.ownerReferences.name",
    "!metadata.ownerReferences.uid",
    "metadata.resourceVersion",
    "metadata.uid",
];

/// Of pods of the cluster: what Volmedic reads.
const POD: &[&str] = &[
    "spec.nodeName",
    "!spec.volumes.name",
    "spec.volumes.csi.driver",
    "spec.volumes.ephemeral",
    "spec.volumes.hostPath",
    "!spec.volumes.hostPath.path",
    "spec.volumes.persistentVolumeClaim.claimName",
    "spec.volumes.persistentVolumeClaim.readOnly",
    "status.phase",
    "status.volumeHealth.healthConditions.message",
    "status.volumeHealth.healthConditions.reason",
    "status.volumeHealth.healthConditions.status",
    "status.volumeHealth.lastTransitionTime",
    "!status.volumeHealth.name",
];

/// Of containers that run Volmedic.
const CONTAINERS: &[&str] = &[
    "!spec.affinity.**",
    "spec.containers.args",
    "spec.containers.command",
    "!spec.containers.env.**",
    "spec.containers.image",
    "spec.containers.name",
    "!spec.containers.resources.**",
    "spec.containers.resources.limits.cpu",
    "spec.containers.resources.limits.memory",
    "spec.containers.resources.requests.cpu",
    "spec.containers.resources.requests.memory",
    "spec.containers.securityContext.**",
    "!spec.containers.volumeMounts.**",
    "spec.hostPID",
    "!spec.nodeSelector.**",
    "!spec.priorityClassName",
    "spec.serviceAccountName",
    "!spec.tolerations.**",
    "status.conditions.lastTransitionTime",
    "!status.conditions.message",
    "status.conditions.reason",
    "status.conditions.status",
    "status.conditions.type",
    "!status.containerStatuses.image",
    "!status.containerStatuses.imageID",
    "!status.containerStatuses.lastState.terminated.message",
    "status.containerStatuses.lastState.terminated.exitCode",
    "status.containerStatuses.lastState.terminated.finishedAt",
    "status.containerStatuses.lastState.terminated.reason",
    "status.containerStatuses.lastState.terminated.signal",
    "status.containerStatuses.lastState.terminated.startedAt",
    "status.containerStatuses.name",
    "status.containerStatuses.ready",
    "status.containerStatuses.restartCount",
    "status.containerStatuses.started",
    "status.containerStatuses.state.running.startedAt",
    "!status.containerStatuses.state.terminated.message",
    "status.containerStatuses.state.terminated.exitCode",
    "status.containerStatuses.state.terminated.finishedAt",
    "status.containerStatuses.state.terminated.reason",
    "status.containerStatuses.state.terminated.signal",
    "status.containerStatuses.state.terminated.startedAt",
    "!status.containerStatuses.state.waiting.message",
    "status.containerStatuses.state.waiting.reason",
    "!status.message",
    "status.reason",
    "status.startTime",
];

/// Of pods that run Volmedic.
pub(super) const OWN_POD: &[&[&str]] = &[METADATA, POD, CONTAINERS];

/// Of Deployments and DaemonSets of the chart.
const WORKLOAD: &[&str] = &[
    "spec.replicas",
    "!spec.template.**",
    "!spec.updateStrategy.**",
    "status.availableReplicas",
    "status.conditions.lastTransitionTime",
    "!status.conditions.message",
    "status.conditions.reason",
    "status.conditions.status",
    "status.conditions.type",
    "status.currentNumberScheduled",
    "status.desiredNumberScheduled",
    "status.numberAvailable",
    "status.numberMisscheduled",
    "status.numberReady",
    "status.numberUnavailable",
    "status.observedGeneration",
    "status.readyReplicas",
    "status.replicas",
    "status.unavailableReplicas",
    "status.updatedNumberScheduled",
    "status.updatedReplicas",
];

const POLICY: &[&str] = &[
    "!spec.**",
    "spec.failurePolicy",
    "spec.policyName",
    "spec.validationActions",
    "status.observedGeneration",
];

const POD_NAMES: &[(&str, &str)] = &[
    ("spec.nodeName", "node"),
    ("spec.serviceAccountName", "account"),
    ("spec.volumes.persistentVolumeClaim.claimName", "claim"),
    ("status.hostIP", "address"),
    ("status.hostIPs.ip", "address"),
    ("status.podIP", "address"),
    ("status.podIPs.ip", "address"),
];

const fn cluster(plural: &'static str, group: &'static str, called: &'static str) -> Kind {
    Kind { file: plural, plural, group, of: Of::Cluster, select: "", called, fields: &[], names: &[] }
}

const fn ours(plural: &'static str, group: &'static str, select: &'static str) -> Kind {
    Kind { file: plural, plural, group, of: Of::Volmedic, select, called: "", fields: &[], names: &[] }
}

/// Volmedic's pods first: they are in the archive however many pods a cluster has.
pub(super) const KINDS: &[Kind] = &[
    Kind { file: "volmedic-pods", called: "pod", names: POD_NAMES, ..ours("pods", "/api/v1", OURS) },
    Kind { fields: WORKLOAD, ..ours("deployments", "/apis/apps/v1", OURS) },
    Kind { fields: WORKLOAD, ..ours("daemonsets", "/apis/apps/v1", OURS) },
    Kind { fields: &["spec.phase", "status.phase"], ..cluster("namespaces", "/api/v1", "namespace") },
    Kind {
        fields: &[
            "!spec.taints.**",
            "spec.unschedulable",
            "status.conditions.lastHeartbeatTime",
            "status.conditions.lastTransitionTime",
            "!status.conditions.message",
            "status.conditions.reason",
            "status.conditions.status",
            "status.conditions.type",
            "status.nodeInfo.architecture",
            "status.nodeInfo.containerRuntimeVersion",
            "status.nodeInfo.kernelVersion",
            "status.nodeInfo.kubeletVersion",
            "status.nodeInfo.operatingSystem",
            "status.nodeInfo.osImage",
            "!status.volumesAttached.**",
            "!status.volumesInUse",
        ],
        names: &[
            ("spec.podCIDR", "address"),
            ("spec.podCIDRs", "address"),
            ("spec.providerID", "provider-id"),
            ("status.addresses.address", "address"),
            ("status.nodeInfo.bootID", "machine"),
            ("status.nodeInfo.machineID", "machine"),
            ("status.nodeInfo.systemUUID", "machine"),
        ],
        ..cluster("nodes", "/api/v1", "node")
    },
    Kind {
        fields: &[
            "spec.accessModes",
            "spec.capacity.storage",
            "spec.claimRef.name",
            "spec.claimRef.namespace",
            "spec.claimRef.uid",
            "spec.csi.driver",
            "spec.csi.fsType",
            "spec.csi.readOnly",
            "!spec.csi.volumeAttributes.**",
            "spec.csi.volumeHandle",
            "spec.hostPath",
            "!spec.hostPath.**",
            "spec.local",
            "!spec.local.**",
            "!spec.mountOptions",
            "spec.nfs",
            "!spec.nfs.**",
            "!spec.nodeAffinity.**",
            "spec.persistentVolumeReclaimPolicy",
            "spec.storageClassName",
            "spec.volumeMode",
            "!status.message",
            "status.phase",
            "!status.reason",
        ],
        names: &[
            ("spec.claimRef.name", "claim"),
            ("spec.claimRef.namespace", "namespace"),
            ("spec.csi.volumeHandle", "handle"),
            ("spec.storageClassName", "class"),
        ],
        ..cluster("persistentvolumes", "/api/v1", "volume")
    },
    Kind {
        fields: &[
            "spec.accessModes",
            "spec.resources.requests.storage",
            "spec.storageClassName",
            "spec.volumeMode",
            "spec.volumeName",
            "status.capacity.storage",
            "status.healthStatus.healthConditions.lastTransitionTime",
            "status.healthStatus.healthConditions.message",
            "status.healthStatus.healthConditions.reason",
            "status.healthStatus.healthConditions.status",
            "status.healthStatus.lastTransitionTime",
            "status.phase",
        ],
        names: &[
            ("spec.dataSource.name", "source"),
            ("spec.dataSourceRef.name", "source"),
            ("spec.dataSourceRef.namespace", "namespace"),
            ("spec.storageClassName", "class"),
            ("spec.volumeName", "volume"),
        ],
        ..cluster("persistentvolumeclaims", "/api/v1", "claim")
    },
    Kind {
        fields: &[
            "allowVolumeExpansion",
            "!allowedTopologies.**",
            "!mountOptions",
            "!parameters.**",
            "provisioner",
            "reclaimPolicy",
            "volumeBindingMode",
        ],
        ..cluster("storageclasses", "/apis/storage.k8s.io/v1", "class")
    },
    Kind {
        fields: &[
            "spec.attachRequired",
            "spec.fsGroupPolicy",
            "spec.nodeAllocatableUpdatePeriodSeconds",
            "spec.podInfoOnMount",
            "spec.requiresRepublish",
            "spec.seLinuxMount",
            "spec.storageCapacity",
            "spec.volumeLifecycleModes",
        ],
        ..cluster("csidrivers", "/apis/storage.k8s.io/v1", "")
    },
    Kind {
        fields: &[
            "spec.drivers.allocatable.count",
            "spec.drivers.name",
            "spec.drivers.nodeID",
            "status.storageHealth.healthConditions.accessMode",
            "status.storageHealth.healthConditions.lastTransitionTime",
            "status.storageHealth.healthConditions.message",
            "status.storageHealth.healthConditions.reason",
            "status.storageHealth.healthConditions.status",
            "status.storageHealth.healthConditions.volumeMode",
            "status.storageHealth.name",
        ],
        names: &[("spec.drivers.nodeID", "node-id")],
        ..cluster("csinodes", "/apis/storage.k8s.io/v1", "node")
    },
    Kind {
        fields: &[
            "spec.attacher",
            "spec.nodeName",
            "spec.source.persistentVolumeName",
            "!status.attachError.message",
            "status.attachError.time",
            "status.attached",
            "!status.detachError.message",
            "status.detachError.time",
        ],
        names: &[("spec.nodeName", "node"), ("spec.source.persistentVolumeName", "volume")],
        ..cluster("volumeattachments", "/apis/storage.k8s.io/v1", "attachment")
    },
    Kind { fields: POD, names: POD_NAMES, ..cluster("pods", "/api/v1", "pod") },
    Kind {
        called: "claim",
        fields: &["spec.**", "status.**"],
        names: &[
            ("status.controllerReport.lease.namespace", "namespace"),
            ("status.heals.node", "node"),
            ("status.persistentVolumeName", "volume"),
            ("status.vantages.node", "node"),
            ("status.vantages.source", "source"),
            ("status.volumeHandle", "handle"),
        ],
        ..ours("volumehealths", "/apis/volmedic.dev/v1alpha1", "")
    },
    Kind {
        called: "node",
        fields: &["spec.**"],
        names: &[
            ("spec.nodeName", "node"),
            ("spec.report.coverage.groups.persistentVolumes", "volume"),
            ("spec.report.volumes.claim.name", "claim"),
            ("spec.report.volumes.claim.namespace", "namespace"),
            ("spec.report.volumes.persistentVolumeName", "volume"),
            ("spec.report.volumes.pods.name", "pod"),
            ("spec.report.volumes.pods.namespace", "namespace"),
            ("spec.report.volumes.volumeHandle", "handle"),
        ],
        ..ours("nodevolumehealths", "/apis/volmedic.dev/v1alpha1", "")
    },
    Kind {
        fields: &[
            "spec.acquireTime",
            "spec.holderIdentity",
            "spec.leaseDurationSeconds",
            "spec.leaseTransitions",
            "spec.renewTime",
        ],
        names: &[("spec.holderIdentity", "pod")],
        ..ours(
            "leases",
            "/apis/coordination.k8s.io/v1",
            "&fieldSelector=metadata.namespace%21%3Dkube-node-lease",
        )
    },
    Kind {
        fields: POLICY,
        ..ours("validatingadmissionpolicies", "/apis/admissionregistration.k8s.io/v1", "")
    },
    Kind {
        fields: POLICY,
        ..ours("validatingadmissionpolicybindings", "/apis/admissionregistration.k8s.io/v1", "")
    },
    Kind {
        // Its name is made from the name of the object that it is about.
        called: "event",
        fields: &[
            "count",
            "eventTime",
            "firstTimestamp",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "lastTimestamp",
            "message",
            "reason",
            "reportingComponent",
            "!reportingInstance",
            "source.component",
            "!source.host",
            "type",
        ],
        names: &[
            ("involvedObject.namespace", "namespace"),
            ("related.name", "object"),
            ("reportingInstance", "pod"),
            ("source.host", "node"),
        ],
        ..ours("events", "/api/v1", "")
    },
];
