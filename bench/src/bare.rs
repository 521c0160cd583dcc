//! A bare client: asks for one page after the other and throws them away. In a process of its own, as the programs are
//! that it is compared with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tonic::transport::{Channel, Endpoint};
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::{ControllerListVolumeHealthRequest, ListVolumesRequest};

/// As large as the controller's pages become.
pub(crate) const PAGE: i32 = 4000;
/// More pages than this in one pass is a list without end.
const MOST_PAGES: usize = 100_000;
const DEADLINE: Duration = Duration::from_mins(5);
/// The default limit of 4 MiB is less than a page of rich entries.
const LARGEST: usize = 64 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    socket: PathBuf,
    #[arg(value_enum)]
    list: List,
    passes: u32,
}

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum List {
    Volumes,
    Health,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = format!("unix:{}", args.socket.display());
        let channel = Endpoint::from_shared(address).context("the socket's path cannot be used")?;
        let channel = channel.timeout(DEADLINE).connect().await.context("cannot connect to the driver")?;
        let mut client = ControllerClient::new(channel).max_decoding_message_size(LARGEST);
        for _ in 0..args.passes {
            drain(&mut client, args.list).await?;
        }
        Ok(())
    })
}

async fn drain(client: &mut ControllerClient<Channel>, list: List) -> Result<()> {
    let mut starting_token = String::new();
    for _ in 0..MOST_PAGES {
        let max_entries = PAGE;
        starting_token = match list {
            List::Volumes => {
                let answer = client.list_volumes(ListVolumesRequest { max_entries, starting_token }).await;
                answer.context("ListVolumes failed")?.into_inner().next_token
            }
            List::Health => {
                let request =
                    ControllerListVolumeHealthRequest { max_entries, starting_token, ..Default::default() };
                let answer = client.controller_list_volume_health(request).await;
                answer.context("ControllerListVolumeHealth failed")?.into_inner().next_token
            }
        };
        if starting_token.is_empty() {
            return Ok(());
        }
    }
    bail!("the list does not end after {MOST_PAGES} pages")
}

/// Drains the list `passes` times from a process of its own.
pub(crate) async fn drain_apart(socket: &Path, list: List, passes: u32) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the program that runs")?;
    let list = if list == List::Volumes { "volumes" } else { "health" };
    let mut command = tokio::process::Command::new(program);
    command.arg("drain").arg(socket).args([list, &passes.to_string()]).kill_on_drop(true);
    let status = tokio::time::timeout(DEADLINE, command.status()).await;
    let status =
        status.context("the bare client did not end in time")?.context("the bare client did not start")?;
    if status.success() { Ok(()) } else { bail!("the bare client failed ({status})") }
}
