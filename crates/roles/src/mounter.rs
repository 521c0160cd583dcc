//! One volume in userspace.

use std::error::Error;
use std::path::PathBuf;

use volmedic_driver::mounter::Mounter;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The id of the volume.
    #[arg(long)]
    volume: String,
    /// The directory of the volume in the driver's state directory.
    #[arg(long)]
    volume_dir: PathBuf,
    /// Where the directory on standard input is, for the record.
    #[arg(long)]
    mountpoint: PathBuf,
    /// The process that starts this one.
    #[arg(long)]
    parent: u32,
    #[arg(long)]
    readonly: bool,
    /// Standard input is the session of a mounter that died; go on with it.
    #[arg(long)]
    take_over: bool,
}

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let Args { volume, volume_dir, mountpoint, parent, readonly, take_over } = args;
    Ok(volmedic_driver::mounter::run(&Mounter {
        volume,
        volume_dir,
        mountpoint,
        parent,
        readonly,
        take_over,
    })?)
}
